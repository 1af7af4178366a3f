package service_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/backends/stack"
)

// gated is a store whose first answer waits until the gate opens.
type gated struct {
	backends.Store
	gate  chan struct{}
	calls atomic.Int64
	asked atomic.Int64 // times that the clock was read
}

func (s *gated) Apply(ctx context.Context, b *backends.Batch) error {
	err := s.Store.Apply(ctx, b)
	if s.calls.Add(1) == 1 {
		<-s.gate
	}
	return err
}

func (s *gated) Now() int64 {
	s.asked.Add(1)
	return s.Store.Now()
}

// TestNoFalseDelayOfAHotKey: the second request for one queue waits, because the
// first is with the store. The third comes 10 s later by the clock, is merged with
// the second, and both are decided at the time of the third. The second must not
// wait for the difference. The second store, for limits per
// second, makes the stack split each batch. max_delay is shorter than the time
// that callers have, so that their operations are equal and can be merged.
func TestNoFalseDelayOfAHotKey(t *testing.T) {
	const rules = `
domain: d
descriptors:
  - {key: queue, rate_limit: {unit: minute, requests_per_unit: 60, strategy: leaky_bucket, burst: 3, max_delay: 1s}}
  - {key: second, rate_limit: {unit: second, requests_per_unit: 1000}}
`
	store := &gated{gate: make(chan struct{})}
	var clock *atomic.Int64
	r := start(t, rules, func(c *config) {
		store.Store = c.Store
		perSecond, err := memory.New(memory.Options{MaxKeys: 100, Now: func() int64 { return clock.Load() }})
		if err != nil {
			t.Fatal(err)
		}
		if c.Store, err = stack.Build(stack.Options{
			Main: stack.Tier{Store: store, Timeout: time.Minute}, PerSecond: stack.Tier{Store: perSecond, Timeout: time.Minute},
		}); err != nil {
			t.Fatal(err)
		}
	})
	clock = r.clock

	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var answers sync.WaitGroup
	ask := func() {
		resp, err := r.client.ShouldRateLimit(ctx, request(desc("queue", "a"), desc("second", "a")))
		if err != nil || resp.OverallCode != ok {
			t.Errorf("%v, %v", resp, err)
		}
	}
	begin := time.Now()
	for i, pass := range []time.Duration{time.Millisecond, 10 * time.Second, 10 * time.Second} {
		before := store.asked.Load()
		answers.Go(ask)
		testenv.Eventually(t, 10*time.Second, func() bool { return store.asked.Load() > before }, "the request is planned")
		if i == 0 {
			testenv.Eventually(t, 10*time.Second, func() bool { return store.calls.Load() == 1 }, "the first answer waits at the gate")
		}
		r.pass(pass)
	}
	close(store.gate)
	answers.Wait()
	if waited := time.Since(begin); waited > 5*time.Second {
		t.Errorf("the last answer came after %v; the bucket has room for all three requests", waited)
	}
}
