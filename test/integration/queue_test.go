package integration

import (
	"sync"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
)

const queueRules = `
domain: d
descriptors:
  - {key: queue, rate_limit: {unit: second, requests_per_unit: 1, strategy: leaky_bucket, max_delay: 20s}}
`

// TestQueueHoldsOnlyRequestsWithATurn: a queue holds the requests that take a turn,
// and answers all others at once.
func TestQueueHoldsOnlyRequestsWithATurn(t *testing.T) {
	t.Parallel()
	s := serve(t, queueRules)
	queue := func() *descriptor { return desc("queue", "x") }
	start := time.Now()
	s.want("d", queue(), ok, 0)
	var waiting sync.WaitGroup
	for range 2 { // their turns come after one and two seconds
		waiting.Go(func() {
			if resp, err := s.try(patience, "d", queue()); err != nil || resp.OverallCode != ok {
				t.Errorf("a call in the queue: %v %v", resp, err)
			}
		})
	}
	s.held(2)

	// A caller that cannot wait until its turn is denied at once and not charged.
	s.within(time.Second, func() bool {
		if resp, err := s.try(500*time.Millisecond, "d", queue()); err != nil || resp.OverallCode != over {
			t.Errorf("a call that cannot wait: %v %v", resp, err)
		}
		s.want("d", costing(0, queue()), ok, 0)
		s.want("d", refund(0, queue()), ok, 0)
		return true
	}, "a denial, a check and a refund are answered")
	waiting.Wait()
	if took := time.Since(start); took < 1950*time.Millisecond {
		t.Errorf("three turns, one a second, took %v", took)
	}
}

// held waits until that many calls wait for their turn.
func (s *service) held(calls int) {
	s.t.Helper()
	testenv.Eventually(s.t, patience, func() bool { return s.goroutinesIn("service.(*Service).Decide") == calls }, "calls wait for their turn")
}
