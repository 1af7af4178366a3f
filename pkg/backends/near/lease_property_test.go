package near_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
)

// world is several processes on one store and one clock, on one goroutine.
type world struct {
	t         *testing.T
	rng       *rand.Rand
	store     *server
	processes []*replica
	limit     *algorithms.Limit
	admitted  []hit
}

// hit is hits that passed, or with a cost below 0 hits that were given back.
type hit struct{ at, cost int64 }

func newWorld(t *testing.T, seed uint64, processes int, spec algorithms.Spec) *world {
	t.Helper()
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 1)), store: newServer(t), limit: limit(t, spec)}
	w.store.rnd = w.rng
	for range processes {
		w.processes = append(w.processes, newReplica(t, w.store, 1))
	}
	return w
}

// ask charges a cost through a process and returns the decision.
func (w *world) ask(p *replica, cost uint64, refund bool) (algorithms.Decision, *backends.Reply) {
	b := batchOf(w.limit, algorithms.Charge{Now: w.store.Now(), Cost: cost, Refund: refund}, "hot")
	_ = p.Apply(context.Background(), b)
	r := &b.Replies[0]
	if r.Err != nil {
		if refund { // the store may have applied it
			w.admitted = append(w.admitted, hit{w.store.Now(), -int64(cost)})
		}
		return algorithms.Decision{}, r
	}
	d := w.limit.Judge(&b.Ops[0], r)
	if d.Allowed && cost > 0 {
		if refund {
			w.admitted = append(w.admitted, hit{w.store.Now(), -int64(cost)})
		} else {
			w.admitted = append(w.admitted, hit{w.store.Now(), int64(cost)})
		}
	}
	return d, r
}

// play makes random requests, at changing rates, for a time in seconds. Background
// work is done late, and in any order between processes.
func (w *world) play(seconds int, costs bool) {
	end := w.store.Now() + int64(seconds)*second
	pause, swept := ms, w.store.Now()
	// check compares the other strategies with a model that has no refunds.
	refunds := costs && (w.limit.Strategy == algorithms.FixedWindow || w.limit.Strategy == algorithms.SlidingWindow)
	for w.store.Now() < end {
		if w.rng.IntN(400) == 0 {
			pause = []int64{5, 100, ms, 5 * ms, 50 * ms, 700 * ms}[w.rng.IntN(6)]
		}
		w.store.clock.Add(w.rng.Int64N(2 * pause))
		p := w.processes[w.rng.IntN(len(w.processes))]
		cost := uint64(1)
		if costs {
			cost = w.rng.Uint64N(5)
		}
		w.ask(p, cost, refunds && w.rng.IntN(20) == 0)
		if w.rng.IntN(3) == 0 {
			w.processes[w.rng.IntN(len(w.processes))].work.run()
		}
		if w.store.Now()-swept >= 25*ms {
			swept = w.store.Now()
			for _, p := range w.processes {
				p.Sweep()
			}
		}
	}
}

var lease5 = algorithms.Lease{Share: 50_000, TTL: 250 * time.Millisecond}

// TestNeverAboveTheLimit: whatever the schedule and whatever calls are lost,
// leases admit no more than the bounds of ADR 2.
func TestNeverAboveTheLimit(t *testing.T) {
	specs := map[string]algorithms.Spec{
		"fixed window":                {Requests: 1000, Window: 10 * time.Second},
		"fixed window from first hit": {Requests: 1000, Window: 10 * time.Second, FromFirstHit: true},
		"sliding window":              {Strategy: algorithms.SlidingWindow, Requests: 1000, Window: 10 * time.Second},
		"sliding log":                 {Strategy: algorithms.SlidingLog, Requests: 1000, Window: 10 * time.Second},
		"token bucket":                {Strategy: algorithms.TokenBucket, Requests: 1000, Window: 10 * time.Second},
		"gcra":                        {Strategy: algorithms.GCRA, Requests: 700, Window: 10 * time.Second, Burst: 600},
		"leaky bucket":                {Strategy: algorithms.LeakyBucket, Requests: 3000, Window: time.Second, Burst: 300},
	}
	for name, spec := range specs {
		spec.Lease = lease5
		t.Run(name, func(t *testing.T) {
			used := uint64(0)
			for seed := range uint64(24) {
				processes := 1 + int(seed%4)
				w := newWorld(t, seed, processes, spec)
				if seed%3 == 2 {
					w.store.percent = 3
				}
				w.play(30, seed%2 == 1)
				w.check(seed)
				for _, p := range w.processes {
					used += p.Leases().Used
				}
			}
			if used < 3000 {
				t.Errorf("only %d hits came from leases", used)
			}
		})
	}
}

// check compares the admitted hits with the bounds.
func (w *world) check(seed uint64) {
	w.t.Helper()
	spec := w.limit.Spec
	window := spec.Window.Microseconds()
	base := int64(spec.Requests)
	if spec.Burst > 0 {
		base = int64(spec.Burst)
	}
	shares := int64(len(w.processes)) * base * 5 / 100
	switch {
	case spec.Strategy == algorithms.FixedWindow && !spec.FromFirstHit, spec.Strategy == algorithms.SlidingWindow:
		sums := map[int64]int64{}
		for _, h := range w.admitted {
			if sums[h.at/window] += h.cost; sums[h.at/window] > base {
				w.t.Fatalf("seed %d: %d hits passed in the window of %d", seed, sums[h.at/window], h.at)
			}
		}
	case spec.Strategy == algorithms.FixedWindow:
		var begin, sum int64
		for _, h := range w.admitted {
			if h.at >= begin+window { // the store may have begun the window earlier
				begin, sum = h.at, 0
			}
			if sum += h.cost; sum > base+base { // two windows of the store may touch one of these
				w.t.Fatalf("seed %d: %d hits passed within a window", seed, sum)
			}
		}
	case spec.Strategy == algorithms.SlidingLog:
		sum, first := int64(0), 0
		for _, h := range w.admitted {
			sum += h.cost
			for ; w.admitted[first].at <= h.at-window; first++ {
				sum -= w.admitted[first].cost
			}
			if sum > base+shares {
				w.t.Fatalf("seed %d: %d hits passed within a window, want at most %d and %d of leases", seed, sum, base, shares)
			}
		}
	default: // a meter of the hits that passed
		if len(w.processes) == 1 {
			shares = 0
		}
		interval := float64(window) / float64(spec.Requests)
		tat := 0.0
		for _, h := range w.admitted {
			tat = max(tat, float64(h.at)) + float64(h.cost)*interval
			if over := (tat-float64(h.at))/interval - float64(base) - float64(shares); over > 0.01 {
				w.t.Fatalf("seed %d, %d processes: %.2f hits too many at %d", seed, len(w.processes), over, h.at)
			}
		}
	}
}
