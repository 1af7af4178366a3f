package service_test

import (
	"fmt"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"example.org/rls/internal/testenv"
)

// waiting are limits of 5 or more hits that several descriptors of a request charge.
var waiting = map[string]string{
	"fixed_window":            "{unit: minute, requests_per_unit: 5}",
	"from_first_hit":          "{unit: minute, requests_per_unit: 5, window: from_first_hit}",
	"sliding_window":          "{unit: minute, requests_per_unit: 5, strategy: sliding_window}",
	"precision":               "{unit: minute, requests_per_unit: 5, strategy: sliding_window, precision: 6}",
	"sliding_log":             "{unit: minute, requests_per_unit: 5, strategy: sliding_log}",
	"concurrency":             "{unit: minute, requests_per_unit: 5, strategy: concurrency}",
	"token_bucket":            "{unit: second, requests_per_unit: 5, strategy: token_bucket}",
	"gcra":                    "{unit: minute, requests_per_unit: 5, burst: 6, strategy: gcra}",
	"leaky_bucket":            "{unit: minute, requests_per_unit: 7, burst: 5, strategy: leaky_bucket}",
	"queue":                   "{unit: minute, requests_per_unit: 60, burst: 5, strategy: leaky_bucket, max_delay: 10ms}",
	"overdraft":               "{unit: minute, requests_per_unit: 5, strategy: token_bucket, overdraft: 5}",
	"overdraft of a window":   "{unit: minute, requests_per_unit: 5, overdraft: 5}",
	"a pool":                  "{unit: hour, requests_per_unit: 1, borrow_from: bucket}",
	"a pool of a log":         "{unit: hour, requests_per_unit: 1, borrow_from: log}",
	"a pool of two windows":   "{unit: hour, requests_per_unit: 1, borrow_from: sliding}",
	"a pool and a small part": "{unit: hour, requests_per_unit: 1, borrow_from: bucket, max_borrow: 40%}",
}

const waitingPools = `
pools:
  bucket: {unit: minute, requests_per_unit: 5, strategy: token_bucket}
  log: {unit: minute, requests_per_unit: 5, strategy: sliding_log}
  sliding: {unit: minute, requests_per_unit: 5, strategy: sliding_window}
`

// TestADenialTellsAWait: a request that is denied tells a wait above 0, whatever else it charges
// to the same counter. If a charge: admitted request can pass at all, it passes after its wait.
func TestADenialTellsAWait(t *testing.T) {
	for name, limit := range waiting {
		t.Run(name, func(t *testing.T) {
			random := testenv.Random(t)
			rules := fmt.Sprintf("domain: d\ncharge: admitted\n%sdescriptors:\n- {key: k, rate_limit: %s}\n", waitingPools, limit)
			r := start(t, rules)
			for sequence := range 20 {
				key := fmt.Sprint(sequence)
				for range 20 {
					r.pass(testenv.OneOf(random, 0, 0, time.Second/10, time.Second, 7*time.Second, time.Minute))
					var descs []*rlcommon.RateLimitDescriptor
					total := uint64(0)
					for range 1 + random.IntN(3) {
						hits := uint64(random.IntN(5))
						total += hits
						descs = append(descs, withHits(hits, desc("k", key)))
					}
					wait := longestWait(t, r.call(request(descs...)))
					if total > 5 || neverPasses[name] {
						continue
					}
					// A pool, or another descriptor, may tell a further wait then.
					for tries := 0; wait > 0; tries++ {
						if tries == 4 {
							t.Fatalf("%d hits in %d descriptors are denied after their waits", total, len(descs))
						}
						r.pass(wait)
						wait = longestWait(t, r.call(request(descs...)))
					}
				}
			}
		})
	}
}

// neverPasses are limits whose denied hits are charged, or that may never have 5 hits, or that
// wait for a turn.
var neverPasses = map[string]bool{"overdraft": true, "overdraft of a window": true, "a pool and a small part": true, "queue": true}

// longestWait is the wait of a denial, and 0 if the request passes.
func longestWait(t *testing.T, resp *pb.RateLimitResponse) (wait time.Duration) {
	t.Helper()
	for _, s := range resp.Statuses {
		if s.Code != over {
			continue
		}
		d := s.DurationUntilReset.AsDuration()
		if d <= 0 {
			t.Fatalf("a denial tells a wait of %v: %v", d, resp)
		}
		wait = max(wait, d)
	}
	return wait
}

// TestTwoDescriptorsOfOneBucket: what the first descriptor takes is waited for by the second.
func TestTwoDescriptorsOfOneBucket(t *testing.T) {
	r := start(t, "domain: d\ncharge: admitted\ndescriptors:\n- {key: k, rate_limit: {unit: minute, requests_per_unit: 10, strategy: token_bucket}}\n")
	for _, c := range []struct {
		used, hits uint64
		wait       time.Duration
	}{{0, 6, time.Minute}, {4, 5, 24 * time.Second}, {6, 3, 12 * time.Second}} {
		key := fmt.Sprint("a", c.used)
		r.hit(withHits(c.used, desc("k", key)))
		resp := r.call(request(withHits(c.hits, desc("k", key)), withHits(c.hits, desc("k", key))))
		if wait := longestWait(t, resp); wait != c.wait {
			t.Errorf("%d of 10 used, and twice %d hits: %v, want %v", c.used, c.hits, wait, c.wait)
		}
	}
}

// TestTheOrderOfDescriptors: a descriptor that is denied takes nothing of a pool from another one of its request, whichever comes first.
func TestTheOrderOfDescriptors(t *testing.T) {
	const rules = `domain: d
pools: {spare: {unit: hour, requests_per_unit: 2}}
descriptors:
- {key: user, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1, borrow_from: spare, max_borrow: 50%}}
`
	for _, charge := range []string{"always", "admitted"} {
		for _, deniedFirst := range []bool{true, false} {
			r := start(t, "charge: "+charge+"\n"+rules)
			r.want(desc("user", "a"), ok, 0)
			r.want(desc("user", "a"), ok, 0) // borrowed: all that it may
			r.want(desc("user", "b"), ok, 0)
			denied, passes := desc("user", "a"), desc("user", "b")
			descs := []*rlcommon.RateLimitDescriptor{passes, denied}
			if deniedFirst {
				descs = []*rlcommon.RateLimitDescriptor{denied, passes}
			}
			for i, s := range r.call(request(descs...)).Statuses {
				if want := descs[i] == passes; (s.Code == ok) != want {
					t.Errorf("charge: %s, denied first %v: descriptor %d is %v", charge, deniedFirst, i, s)
				}
			}
		}
	}
}
