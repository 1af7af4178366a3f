package memory_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/memory"
)

// reserving is a limit whose reservations are called one after the other.
type reserving struct {
	t     testing.TB
	store *memory.Store
	limit *algorithms.Limit
	now   int64
}

func newReserving(t testing.TB, s *memory.Store, r algorithms.Reserve) *reserving {
	t.Helper()
	l, err := algorithms.New(algorithms.Spec{Requests: 1 << 30, Window: 24 * time.Hour, Reserve: r})
	if err != nil {
		t.Fatal(err)
	}
	return &reserving{t, s, l, 1_800_000_000_000_000}
}

// call makes a call of 10 hits with the ID of a number, in a batch of its own or in one of
// several that a full limit refuses. It returns the hits in use.
func (r *reserving) call(key string, id, hits int, refused bool) (backends.HoldState, int64) {
	r.t.Helper()
	b := backends.Batch{Ops: make([]backends.Op, 1), Replies: make([]backends.Reply, 1)}
	r.limit.Plan(&b.Ops[0], algorithms.Identity{ID: []byte(key)}, algorithms.Charge{Now: r.now, Cost: uint64(hits), Reservation: fmt.Sprintf("%016d", id)})
	if refused {
		full := hit("full", r.now, r.now+1)
		full.Max = backends.NoRoom
		b.Ops, b.Replies, b.AllOrNothing = append(b.Ops, full), make([]backends.Reply, 2), true
	}
	if err := r.store.Apply(context.Background(), &b); err != nil {
		r.t.Fatal(err)
	}
	return b.Replies[0].HoldState(), b.Replies[0].Value.Whole
}

// TestReservationsAreBounded: cells and reservations have one bound. Beyond it the one that ends
// soonest is evicted. A reservation that was evicted stays charged, and its ID is new. There is room
// again when others have ended, and a refused one takes none.
func TestReservationsAreBounded(t *testing.T) {
	const most = 50
	for _, r := range []algorithms.Reserve{{TTL: time.Minute}, {TTL: time.Minute, GiveBack: true}} {
		s := open(t, most)
		caller := newReserving(t, s, r)
		fill := func(key string, n int) {
			t.Helper()
			for id := range n {
				caller.now += time.Minute.Microseconds()
				if state, _ := caller.call(key, id, 10, false); state != backends.Held {
					t.Fatalf("%+v: reservation %d of %d: %v", r, id, n, state)
				}
			}
		}
		fill("a", 20)
		before := s.Len()
		caller.call("refused", 1, 10, true)
		if s.Len() != before {
			t.Errorf("%+v: a refused reservation leaves %d cells", r, s.Len()-before)
		}
		caller.now += 5 * time.Minute.Microseconds() // they have ended
		r.TTL = time.Hour
		caller = &reserving{t, s, newReserving(t, s, r).limit, caller.now}
		fill("a", most-1)
		if s.Evicted() > 0 {
			t.Fatalf("%+v: %d evicted although others have ended", r, s.Evicted())
		}
		fill("c", 2) // and its cell
		if got := s.Evicted(); got != 3 {
			t.Errorf("%+v: %d evicted, want 3", r, got)
		}
		for _, next := range []struct {
			id   int
			want backends.HoldState
		}{{3, backends.Settled}, {most - 2, backends.Settled}, {0, backends.Held}, {2, backends.Held}} {
			if state, _ := caller.call("a", next.id, 1, false); state != next.want {
				t.Errorf("%+v: the next call with ID %d: %v, want %v", r, next.id, state, next.want)
			}
		}
		s.Clear()
		fill("d", 3)
	}
}

// BenchmarkBytesPerReservation reports the memory that a million open reservations take.
func BenchmarkBytesPerReservation(b *testing.B) {
	const open = 1_000_000
	for b.Loop() {
		var before, after runtime.MemStats
		s, err := memory.New(memory.Options{MaxKeys: open})
		if err != nil {
			b.Fatal(err)
		}
		caller := newReserving(b, s, algorithms.DefaultReserve)
		runtime.GC()
		runtime.ReadMemStats(&before)
		for id := range open {
			caller.call("k", id, 1, false)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/open, "bytes/reservation")
		runtime.KeepAlive(s)
	}
}
