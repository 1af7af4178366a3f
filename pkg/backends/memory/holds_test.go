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

// TestReservationsAreBounded: as many reservations are remembered as cells. One more is
// charged, and not remembered. There is room again when others have ended or were evicted with
// their cells.
func TestReservationsAreBounded(t *testing.T) {
	const most = 50
	for _, r := range []algorithms.Reserve{{TTL: time.Minute}, {TTL: time.Minute, GiveBack: true}} {
		s := open(t, most)
		caller := newReserving(t, s, r)
		fill := func(keys ...string) {
			t.Helper()
			for id := range most {
				caller.call("refused", id, 10, true) // leaves nothing
				if state, _ := caller.call(keys[id%len(keys)], id, 10, false); state != backends.Held {
					t.Fatalf("%+v: reservation %d of %d: %v", r, id, most, state)
				}
			}
		}
		fill("a", "b")
		evicted := s.Evicted()
		state, used := caller.call("a", most, 7, false)
		if want := int64(most/2*10 + 7); state != backends.NoHold || used != want || s.Evicted() != evicted+1 {
			t.Errorf("%+v: a reservation too many: %v, %d hits, want %d; %d evicted", r, state, used, want, s.Evicted()-evicted)
		}
		if state, used := caller.call("a", most, 3, false); state != backends.NoHold || used != most/2*10+10 {
			t.Errorf("%+v: its settlement: %v, %d hits", r, state, used)
		}
		if state, used := caller.call("a", 0, 1, false); state != backends.Settled || used != most/2*10+1 {
			t.Errorf("%+v: the settlement of a remembered one: %v, %d hits", r, state, used)
		}
		caller.now += 5 * time.Minute.Microseconds()
		fill("a", "b")            // the others have ended
		for i := range 2 * most { // as many cells take the place of these
			charge(t, s, fmt.Sprint(i), caller.now, caller.now+time.Hour.Microseconds()*24)
		}
		fill("c")
		s.Clear()
		fill("d")
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
