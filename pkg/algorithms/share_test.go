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
		for _, n := range []int{-1, 1, 3, algorithms.MaxShares, math.MaxInt} {
			capacity := int64(l.Requests)
			if l.Burst > 0 {
				capacity = int64(l.Burst)
			}
			parts := int64(min(max(n, 1), algorithms.MaxShares))
			mine := (capacity + parts - 1) / parts
			if whole := capacity + parts - 1; whole > most {
				mine = most / parts // the room for rounding up ends at the largest limit
			}
			share := l.Share(n)
			var cell backends.Cell
			var log backends.Log
			ask := func(cost uint64) algorithms.Decision {
				var op backends.Op
				var r backends.Reply
				l.Plan(&op, algorithms.Identity{}, algorithms.Charge{Now: epoch, Cost: cost, AdmittedOnly: true})
				op = share.Plan(&op)
				if op.Kind == backends.List {
					log, r = log.Step(&op)
				} else {
					cell, r = cell.Step(&op, 0)
				}
				return share.Judge(&op, &r)
			}
			for _, cost := range []uint64{math.MaxUint64, uint64(mine) + 1} {
				if d := ask(cost); d.Allowed {
					t.Errorf("%+v, 1 of %d: a cost of %d passes", spec, n, cost)
				}
			}
			if d := ask(uint64(mine)); !d.Allowed || d.Remaining != 0 {
				t.Errorf("%+v, 1 of %d: %d hits get %+v", spec, n, mine, d)
			}
			if d := ask(1); d.Allowed {
				t.Errorf("%+v, 1 of %d: one hit more gets %+v", spec, n, d)
			}
		}
	}
}

// TestReplan names the same cell, in the window of the first operation.
func TestReplan(t *testing.T) {
	l := mustNew(t, algorithms.Spec{Requests: 10, Window: time.Minute, Strategy: algorithms.SlidingWindow})
	var first, again backends.Op
	l.Plan(&first, algorithms.Identity{ID: []byte("k")}, algorithms.Charge{Now: epoch, Cost: 1})
	l.Replan(&again, first.Key, first.Prev, first.Now, algorithms.Charge{Now: epoch + 90_000_000, Cost: 3})
	if again.Key != first.Key || again.Prev != first.Prev || again.Until != first.Until || again.By.Whole != 3 || again.Now >= epoch+60_000_000 {
		t.Errorf("%+v\nis not on the cell of\n%+v", again, first)
	}
}
