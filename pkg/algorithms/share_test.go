package algorithms_test

import (
	"math"
	"testing"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
)

// TestShareOfExtremes: the largest limits, bursts, costs and numbers of processes
// overflow nothing: a share admits its part at once and no hit more.
func TestShareOfExtremes(t *testing.T) {
	const most = math.MaxUint32
	for _, spec := range []algorithms.Spec{
		{Requests: most, Window: algorithms.MaxWindow},
		{Requests: 1, Window: algorithms.MaxWindow},
		{Requests: most, Window: time.Second, Strategy: algorithms.SlidingWindow},
		{Requests: algorithms.MaxLogRequests, Window: algorithms.MaxWindow, Strategy: algorithms.SlidingLog},
		{Requests: most, Window: algorithms.MaxWindow, Strategy: algorithms.TokenBucket},
		{Requests: 1, Burst: 10, Window: algorithms.MaxWindow, Strategy: algorithms.GCRA},
		{Requests: 1_000_003, Burst: most, Window: time.Hour, Strategy: algorithms.TokenBucket},
		{Requests: 7, Window: time.Second, Strategy: algorithms.LeakyBucket, MaxDelay: time.Minute},
	} {
		l := mustNew(t, spec)
		for _, parts := range []int64{1, 3, 10_000} {
			mine := (l.Capacity() + parts - 1) / parts
			store := newCells()
			charge := func(c algorithms.Charge) algorithms.Decision {
				var op backends.Op
				c.Now, c.AdmittedOnly = epoch, true
				l.Plan(&op, algorithms.Identity{}, c)
				b := backends.Batch{Ops: []backends.Op{op.Alone(parts)}, Replies: make([]backends.Reply, 1)}
				_ = store.Apply(t.Context(), &b) // never fails
				b.Replies[0].Replicas = parts
				return l.Judge(&op, &b.Replies[0])
			}
			ask := func(cost uint64) algorithms.Decision { return charge(algorithms.Charge{Cost: cost}) }
			for _, cost := range []uint64{math.MaxUint64, uint64(mine) + 1} {
				if d := ask(cost); d.Allowed {
					t.Errorf("%+v, 1 of %d: a cost of %d passes", spec, parts, cost)
				}
			}
			if d := ask(uint64(mine)); !d.Allowed || d.Remaining != 0 {
				t.Errorf("%+v, 1 of %d: %d hits get %+v", spec, parts, mine, d)
			}
			if d := ask(1); d.Allowed {
				t.Errorf("%+v, 1 of %d: one hit more gets %+v", spec, parts, d)
			}
			store = newCells()
			if d := charge(algorithms.Charge{Cost: 1, Beyond: true}); d.Remaining > mine-1 || d.Remaining < mine-2 {
				t.Errorf("%+v, 1 of %d: a hit that is charged whatever remains leaves %+v", spec, parts, d)
			}
		}
	}
}

// TestUsedHasTheHitsBeyondTheLimit: a charge of five whatever remains leaves five hits in use, in a
// cell of any kind.
func TestUsedHasTheHitsBeyondTheLimit(t *testing.T) {
	for s := range algorithms.Names() {
		l := mustNew(t, algorithms.Spec{Strategy: algorithms.Strategy(s), Requests: 3, Window: time.Hour})
		b := backends.Batch{Ops: make([]backends.Op, 1), Replies: make([]backends.Reply, 1)}
		l.Plan(&b.Ops[0], algorithms.Identity{}, algorithms.Charge{Now: epoch, Cost: 5, Beyond: true})
		_ = newCells().Apply(t.Context(), &b) // never fails
		if used := l.Used(&b.Ops[0], &b.Replies[0]); used != 5 {
			t.Errorf("%v: %d hits in use after 5", l.Strategy, used)
		}
	}
}

// TestAt: an operation at another time is the one that the limit plans then, but in the last moment
// of its window if the window is over, or with the span Sliding one of its window at that time.
func TestAt(t *testing.T) {
	for _, spec := range []algorithms.Spec{
		{Requests: 10, Window: time.Minute},
		{Requests: 10, Window: time.Minute, FromFirstHit: true},
		{Requests: 10, Window: time.Minute, Strategy: algorithms.SlidingWindow},
		{Requests: 10, Window: time.Minute, Strategy: algorithms.SlidingLog},
		{Requests: 7, Window: time.Minute, Strategy: algorithms.TokenBucket},
		{Requests: 7, Window: time.Minute, Strategy: algorithms.LeakyBucket, MaxDelay: time.Second},
	} {
		l := mustNew(t, spec)
		plan := func(now int64) (op backends.Op) {
			l.Plan(&op, algorithms.Identity{ID: []byte("k")}, algorithms.Charge{Now: now, Cost: 3, Patience: math.MaxInt64})
			return op
		}
		first := plan(epoch + 10_000_000)
		for _, seconds := range []int64{10, 25, 59, 90} {
			now := epoch + seconds*1_000_000
			want := plan(now)
			if want.Span == backends.Sliding {
				want.Mark, want.Until = first.Mark, first.Until
			} else if want.Key != first.Key {
				want = plan(epoch + 59_999_999)
			}
			if got := first.At(now); got != want {
				t.Errorf("%+v, at %d s:\n%+v, want\n%+v", spec, seconds, got, want)
			}
		}
	}
}
