package algorithms_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/algorithms"
)

// hit is one charge that a model remembers.
type hit struct {
	at   int64
	cost int64
}

// admits is the rule of each strategy as its documentation states it, computed
// from all admitted hits, in exact arithmetic.
var admits = map[algorithms.Strategy]func(s algorithms.Spec, past []hit, now, cost int64) bool{
	algorithms.FixedWindow: func(s algorithms.Spec, past []hit, now, cost int64) bool {
		w := s.Window.Microseconds()
		if s.FromFirstHit {
			return inFirstHitWindow(past, now, w)+cost <= int64(s.Requests)
		}
		return inBucket(past, now/w, w)+cost <= int64(s.Requests)
	},
	algorithms.SlidingWindow: func(s algorithms.Spec, past []hit, now, cost int64) bool {
		w := s.Window.Microseconds()
		prev, cur := inBucket(past, now/w-1, w), inBucket(past, now/w, w)
		// previous × (window − elapsed) + (current + cost) × window <= limit × window
		return prev*(w-now%w)+(cur+cost)*w <= int64(s.Requests)*w
	},
	algorithms.SlidingLog: func(s algorithms.Spec, past []hit, now, cost int64) bool {
		for _, h := range past {
			if h.at > now-s.Window.Microseconds() {
				cost += h.cost
			}
		}
		return cost <= int64(s.Requests)
	},
	algorithms.TokenBucket: bucketAdmits,
	algorithms.GCRA:        bucketAdmits,
	algorithms.LeakyBucket: bucketAdmits,
}

// bucketAdmits fills a bucket of burst tokens at the rate, hit by hit. It counts
// in 1/window of a token, so that a refill of requests per window is a whole
// number.
func bucketAdmits(s algorithms.Spec, past []hit, now, cost int64) bool {
	unit := s.Window.Microseconds()
	capacity := int64(s.Burst) * unit
	tokens, at := capacity, now
	for i, h := range past {
		if i > 0 {
			tokens = min(capacity, tokens+(h.at-at)*int64(s.Requests))
		}
		tokens, at = tokens-h.cost*unit, h.at
	}
	tokens = min(capacity, tokens+(now-at)*int64(s.Requests))
	return tokens >= cost*unit
}

func inBucket(past []hit, bucket, window int64) (n int64) {
	for _, h := range past {
		if h.at/window == bucket {
			n += h.cost
		}
	}
	return n
}

func inFirstHitWindow(past []hit, now, window int64) (n int64) {
	start := int64(-1) << 62
	for _, h := range past {
		if h.at >= start+window {
			start, n = h.at, 0
		}
		n += h.cost
	}
	if now >= start+window {
		return 0
	}
	return n
}

// TestAgainstModels compares the decisions on random traffic, and the remaining
// hits, reset and retry-after that they promise, with the rules above. Other limits on
// the same key, as overrides and changed rules have them, take part in the traffic:
// windows and logs share their cells with them, a bucket has its own hits only.
func TestAgainstModels(t *testing.T) {
	for _, spec := range []algorithms.Spec{
		{Strategy: algorithms.FixedWindow, Requests: 7, Window: 10 * time.Second},
		{Strategy: algorithms.FixedWindow, Requests: 7, Window: 10 * time.Second, FromFirstHit: true},
		{Strategy: algorithms.SlidingWindow, Requests: 7, Window: 10 * time.Second},
		{Strategy: algorithms.SlidingLog, Requests: 7, Window: 10 * time.Second},
		{Strategy: algorithms.TokenBucket, Requests: 7, Window: 10 * time.Second, Burst: 11},
		{Strategy: algorithms.GCRA, Requests: 7, Window: 10 * time.Second, Burst: 1},
		{Strategy: algorithms.LeakyBucket, Requests: 3, Window: time.Second, Burst: 2},
	} {
		specs := []algorithms.Spec{spec, spec, spec, spec}
		specs[1].Requests, specs[1].Burst = 0, 0
		specs[2].Requests = 10_000
		if specs[3].Requests++; spec.Burst > 0 {
			specs[3].Burst++
		}
		t.Run(fmt.Sprintf("%v from_first_hit=%v", spec.Strategy, spec.FromFirstHit), func(t *testing.T) {
			rng := testenv.Random(t)
			for i := 0; i < 200 && !t.Failed(); i++ {
				runModel(t, rng, specs[:1+i%len(specs)])
			}
		})
	}
}

func runModel(t *testing.T, rng *rand.Rand, specs []algorithms.Spec) {
	c := newCells()
	ms := int64(1000)
	histories := make([][]hit, len(specs)) // of cells
	now := epoch
	for range 100 {
		which := rng.IntN(len(specs))
		spec, past := specs[which], &histories[0]
		bucket := spec.Strategy >= algorithms.TokenBucket
		if bucket {
			past = &histories[which]
		}
		l := mustNew(t, spec)
		// Whole milliseconds: weights of a sliding window have that resolution.
		now += rng.Int64N(3*spec.Window.Milliseconds()/int64(specs[0].Requests)) * ms
		cost := rng.Int64N(4)
		charge := algorithms.Charge{Now: now, Cost: uint64(cost), AdmittedOnly: true, Refund: bucket && rng.IntN(8) == 0}
		want := charge.Refund || admits[spec.Strategy](spec, *past, now, cost)
		d := c.charge(l, charge)
		if d.Allowed != want {
			t.Errorf("%+v, %+v at %d: allowed %v, want %v\npast %v", spec, charge, now-epoch, d.Allowed, want, *past)
			return
		}
		switch {
		case charge.Refund:
			*past = append(*past, hit{now, -cost})
		case cost == 0: // charges nothing
		case d.Allowed:
			*past = append(*past, hit{now, cost})
		default:
			checkRetryAfter(t, l, *past, now, cost, d)
		}
		for _, n := range []int64{1, d.Remaining, d.Remaining + 1} {
			if n > 0 && admits[spec.Strategy](spec, *past, now, n) != (n <= d.Remaining) {
				t.Errorf("remaining is %d, but a cost of %d is a different matter\npast %v", d.Remaining, n, *past)
				return
			}
		}
		if !admits[spec.Strategy](spec, *past, now+d.Reset.Microseconds(), l.Capacity()) {
			t.Errorf("reset is in %v, but the full quota is not back then\npast %v", d.Reset, *past)
			return
		}
	}
}

// checkRetryAfter checks that the same cost passes after RetryAfter, and not a
// microsecond earlier (a millisecond for strategies that round weights up to whole
// milliseconds).
func checkRetryAfter(t *testing.T, l *algorithms.Limit, past []hit, now, cost int64, d algorithms.Decision) {
	t.Helper()
	spec := l.Spec
	if cost > l.Capacity() {
		if d.RetryAfter != spec.Window && spec.Strategy != algorithms.FixedWindow {
			t.Errorf("a cost of %d never passes; retry after %v, want one window", cost, d.RetryAfter)
		}
		return
	}
	at, before := now+d.RetryAfter.Microseconds(), int64(1)
	if spec.Strategy == algorithms.SlidingWindow {
		before = 1000
	}
	if !admits[spec.Strategy](spec, past, at, cost) {
		t.Errorf("cost %d was told to retry after %v, but does not pass then\npast %v, now %d", cost, d.RetryAfter, past, now)
	}
	if d.RetryAfter > 0 && admits[spec.Strategy](spec, past, at-before, cost) {
		t.Errorf("cost %d was told to retry after %v, but passes before\npast %v, now %d", cost, d.RetryAfter, past, now)
	}
}
