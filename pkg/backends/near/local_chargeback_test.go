package near_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/near"
)

// pass has the fake clock of the synctest bubble go on. It returns when every goroutine
// has done its work that was due.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// TestRun charges the server within a tenth of a second of its return, and ends
// with its context.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newServer(t)
		var log bytes.Buffer
		r := &replica{t: t}
		r.Store = near.New(srv, near.Options{Timeout: time.Second, Log: slog.New(slog.NewTextHandler(&log, nil))})
		l := limit(t, algorithms.Spec{Requests: 20})
		r.hits(l, "a", 10)
		srv.away.Store(true)
		r.hits(l, "a", 4)
		r.hits(l, "b", 30)
		pass(time.Minute)
		if got := remaining(srv, l, "a"); got != 10 {
			t.Errorf("%d remain on the server that is away, want 10", got)
		}
		srv.away.Store(false)
		pass(100 * time.Millisecond)
		if a, b := remaining(srv, l, "a"), remaining(srv, l, "b"); a != 6 || b != 0 {
			t.Errorf("%d and %d remain on the server, want 6 and 0", a, b)
		}
		pass(time.Second)
		if got := log.String(); !strings.HasSuffix(got, "msg=\"charged 2 keys for hits admitted during the outage (0 were already full)\" keys_forgotten=0\n") || strings.Count(got, "\n") != 1 {
			t.Errorf("the log says\n%s", got)
		}
		for range 100 { // calls that get lost now and then
			srv.away.Store(true)
			r.hits(l, "c", 1)
			srv.away.Store(false)
			srv.pass(time.Second)
			pass(time.Second)
		}
		if got := log.String(); strings.Count(got, "\n") != 2 {
			t.Errorf("the log of 100 lost calls in 100 s says\n%s", got)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestChargeIsBounded: as many hits as fit the limit are charged, and the server's
// counter never passes it.
func TestChargeIsBounded(t *testing.T) {
	for name, l := range strategies(t, 20) {
		t.Run(name, func(t *testing.T) {
			srv := newServer(t)
			r, other := newReplica(t, srv, 1), newReplica(t, srv, 1)
			srv.away.Store(true)
			r.hits(l, "k", 15)
			srv.away.Store(false)
			other.hits(l, "k", 12) // before r is told
			r.Step()
			if got := remaining(srv, l, "k"); got != 0 {
				t.Errorf("%d remain, want 0", got)
			}
			var op backends.Op
			l.Plan(&op, algorithms.Identity{ID: []byte("k")}, algorithms.Charge{Now: srv.clock.Load()})
			b := backends.Batch{Ops: []backends.Op{op.Look()}, Replies: make([]backends.Reply, 1)}
			_ = srv.Apply(t.Context(), &b)
			if v := b.Replies[0].Value; op.Max.Less(v) {
				t.Errorf("the cell has %+v, above %+v", v, op.Max)
			}
			asked := srv.batches.Load()
			r.Step()
			if srv.batches.Load() != asked {
				t.Error("what has no room is tried again")
			}
		})
	}
}

// TestToldAfterAnOutage: the log says how many keys were charged, how many of them had
// no room for all hits, and how many were forgotten.
func TestToldAfterAnOutage(t *testing.T) {
	for _, tt := range []struct {
		keys, full int // decided here during the outage, and filled by another replica
		want       string
	}{
		{5, 4, `msg="charged 5 keys for hits admitted during the outage (4 were already full)" keys_forgotten=0`},
		{1_000, 0, ` keys for hits admitted during the outage (0 were already full)" keys_forgotten=`},
	} {
		srv := newServer(t)
		var log bytes.Buffer
		r := newReplicaWith(t, srv, 1, near.Options{Cells: 256, Log: slog.New(slog.NewTextHandler(&log, nil))})
		other, l := newReplica(t, srv, 1), limit(t, algorithms.Spec{Requests: 20})
		srv.away.Store(true)
		for i := range tt.keys {
			r.hits(l, fmt.Sprint(i), 15)
		}
		srv.away.Store(false)
		for i := range tt.full {
			other.hits(l, fmt.Sprint(i), 12) // before r is told
		}
		for range 3 {
			r.Step()
		}
		none := strings.Contains(log.String(), "keys_forgotten=0")
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, tt.want) || none != (tt.keys == 5) {
			t.Errorf("%d keys, %d full: the log says\n%swant %s", tt.keys, tt.full, got, tt.want)
		}
	}
}

// TestEndedWindow: hits of a window that has ended are not charged.
func TestEndedWindow(t *testing.T) {
	for name, l := range strategies(t, 20) {
		t.Run(name, func(t *testing.T) {
			srv := newServer(t)
			r := newReplica(t, srv, 1)
			r.hits(l, "k", 5)
			srv.away.Store(true)
			r.hits(l, "k", 5)
			srv.pass(2*time.Minute + 2*time.Second)
			srv.away.Store(false)
			r.Step()
			if got := remaining(srv, l, "k"); got != 20 {
				t.Errorf("%d remain, want 20", got)
			}
			if n := srv.batches.Load(); n != 5+5 {
				t.Errorf("%d calls, want those of the hits alone", n)
			}
		})
	}
}

// TestPreviousWindow: of the hits that this process admitted in the window before, three quarters count in a
// sliding window, beside the hits of other processes in the running window; in the next outage, too.
func TestPreviousWindow(t *testing.T) {
	for _, tt := range []struct{ before, within, want int }{{16, 0, 8}, {16, 6, 2}, {2, 10, 8}} {
		srv := newServer(t)
		r, l := newReplica(t, srv, 1), limit(t, algorithms.Spec{Requests: 20, Strategy: algorithms.SlidingWindow})
		srv.away.Store(true)
		r.hits(l, "k", tt.before)
		srv.pass(75 * time.Second)
		srv.away.Store(false)
		newReplica(t, srv, 1).hits(l, "k", tt.within)
		r.Step()
		if got := remaining(srv, l, "k"); got != tt.want {
			t.Errorf("%+v: %d remain", tt, got)
		}
		r.left(l, "k")
		srv.away.Store(true)
		if got := r.hits(l, "k", 20); got != tt.want {
			t.Errorf("%+v: admitted %d in the next outage", tt, got)
		}
	}
}

// TestRefundsLowerTheCharge, also below what was admitted.
func TestRefundsLowerTheCharge(t *testing.T) {
	for name, l := range strategies(t, 20) {
		t.Run(name, func(t *testing.T) {
			srv := newServer(t)
			r := newReplica(t, srv, 2)
			r.hits(l, "k", 4)
			srv.away.Store(true)
			r.hits(l, "k", 5)
			r.ask(l, "k", algorithms.Charge{Cost: 2, Refund: true})
			if got := r.hits(l, "k", 20); got != 5 {
				t.Errorf("admitted %d after a refund of 2, want 5: a share of 8 less 3", got)
			}
			r.ask(l, "k", algorithms.Charge{Cost: 5, Refund: true})
			srv.away.Store(false)
			r.Step()
			if got := remaining(srv, l, "k"); got != 13 {
				t.Errorf("%d remain, want 13: 4 and 3 hits were charged", got)
			}
			srv.away.Store(true)
			r.hits(l, "k", 1)
			r.ask(l, "k", algorithms.Charge{Cost: 20, Refund: true})
			srv.away.Store(false)
			r.Step()
			if got := remaining(srv, l, "k"); got != 13 {
				t.Errorf("%d remain, want 13 as before", got)
			}
		})
	}
}

// TestGentleReturn: a server that stays away gets at most 64 calls in a Step, and one that
// comes back gets the charges of many keys.
func TestGentleReturn(t *testing.T) {
	srv := newServer(t)
	r, l := newReplica(t, srv, 2), limit(t, algorithms.Spec{Requests: 20})
	srv.away.Store(true)
	const keys = 1000
	for i := range keys {
		r.hits(l, fmt.Sprint(i), 3)
	}
	asked := srv.batches.Load()
	r.Step()
	if n := srv.batches.Load() - asked; n > 64 {
		t.Errorf("%d calls to a server that is away, want 64 at most", n)
	}
	srv.away.Store(false)
	r.Step() // tries one key of each shard
	r.Step()
	for i := range keys {
		if got := remaining(srv, l, fmt.Sprint(i)); got != 17 {
			t.Fatalf("key %d: %d remain, want 17", i, got)
		}
	}
}

// half is a server that does not decide the keys with an odd last byte.
type half struct{ *server }

func (h half) Apply(ctx context.Context, b *backends.Batch) (err error) {
	err = h.server.Apply(ctx, b)
	for i := range b.Ops {
		if key := b.Ops[i].Key; err == nil && strings.HasPrefix(key, "odd") {
			b.Replies[i] = backends.Reply{Err: backends.ErrUnavailable}
		}
	}
	return err
}

// TestPartialReturn: keys whose server stays away do not hold up the others, and
// lose nothing.
func TestPartialReturn(t *testing.T) {
	srv := newServer(t)
	r, l := newReplica(t, half{srv}, 1), limit(t, algorithms.Spec{Requests: 20})
	srv.away.Store(true)
	for i := range 100 {
		r.hits(l, fmt.Sprintf("odd%d", i), 3)
		r.hits(l, fmt.Sprintf("even%d", i), 3)
	}
	srv.away.Store(false)
	for range 5 { // until each shard has tried a key whose server is back
		r.Step()
	}
	if got := remaining(srv, l, "even99"); got != 17 {
		t.Errorf("%d remain of a key whose server is back, want 17", got)
	}
	srv.away.Store(true)
	if got := r.hits(l, "odd99", 30); got != 17 {
		t.Errorf("admitted %d of a key whose server is away, want 17", got)
	}
}

// TestSmallMemory: a memory that is full forgets cells, full ones last, and
// still decides.
func TestSmallMemory(t *testing.T) {
	srv := newServer(t)
	r, l := newReplicaWith(t, srv, 1, near.Options{Cells: 256}), limit(t, algorithms.Spec{Requests: 20})
	r.hits(l, "full", 21)
	for i := range 10_000 {
		r.hits(l, fmt.Sprint(i), 1)
	}
	srv.away.Store(true)
	if got := r.hits(l, "full", 20); got != 0 {
		t.Errorf("admitted %d hits of a full key, want 0", got)
	}
	for i := range 3_000 {
		if got := r.hits(l, fmt.Sprint("more", i), 21); got != 20 {
			t.Fatalf("admitted %d, want 20", got)
		}
	}
	srv.away.Store(false)
	for range 3 {
		r.Step()
	}
	charged := 0
	for i := range 3_000 {
		if remaining(srv, l, fmt.Sprint("more", i)) == 0 {
			charged++
		}
	}
	if charged < 200 || charged > 256 {
		t.Errorf("%d keys were charged, want those of 256 cells", charged)
	}
}

// used is a server without memory in which each cell has one hit.
type used struct{ *server }

func (u used) Apply(_ context.Context, b *backends.Batch) error {
	if u.away.Load() {
		return b.Fail(backends.ErrUnavailable)
	}
	for i := range b.Ops {
		b.Replies[i] = backends.Reply{Now: b.Ops[i].Now, Admitted: 1, Value: backends.Amount{Whole: 1}, Until: start + minute}
	}
	return nil
}

// TestBytesOfKeys: remembered keys take 200 bytes, and 400 more once they were decided
// here.
func TestBytesOfKeys(t *testing.T) {
	const keys = 30_000
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	srv := newServer(t)
	r, l := newReplica(t, used{srv}, 1), limit(t, algorithms.Spec{Requests: 20, Strategy: algorithms.SlidingWindow})
	var b *backends.Batch
	each := func(do func()) (bytes uint64) {
		before := heap()
		for i := range keys {
			b = local(l, fmt.Sprintf("domain|user_%d", i), algorithms.Charge{Now: start, Cost: 1})
			do()
		}
		return (heap() - before) / keys
	}
	if bytes := each(func() {
		_ = r.Apply(t.Context(), b)
	}); bytes > 220 {
		t.Errorf("%d bytes a key", bytes)
	}
	srv.away.Store(true)
	if bytes := each(func() { _ = r.Apply(t.Context(), b) }); bytes > 440 {
		t.Errorf("%d bytes more once it was decided", bytes)
	}
	runtime.KeepAlive(r)
}

// TestClockSetBack: a reply of a clock that was set back counts; a reply that
// another one overtook does not.
func TestClockSetBack(t *testing.T) {
	for back, want := range map[time.Duration]int{500 * time.Millisecond: 10, time.Hour: 19} {
		srv := newServer(t)
		r, l := newReplica(t, srv, 1), limit(t, algorithms.Spec{Requests: 20, FromFirstHit: true})
		r.hits(l, "k", 10)
		_ = srv.Store.Close() // forgets the counter
		srv.Store = newServer(t).Store
		srv.pass(-back)
		r.hits(l, "k", 1)
		srv.away.Store(true)
		if got := r.hits(l, "k", 30); got != want {
			t.Errorf("%v back: admitted %d, want %d", back, got, want)
		}
	}
}

// TestLongKeys are decided, and are not kept to be charged.
func TestLongKeys(t *testing.T) {
	srv := newServer(t)
	r, l := newReplica(t, srv, 2), limit(t, algorithms.Spec{Requests: 20})
	for _, bytes := range []int{500, 2000} {
		key := strings.Repeat("k", bytes)
		r.hits(l, key, 10)
		srv.away.Store(true)
		if got := r.hits(l, key, 20); got != 5 {
			t.Errorf("%d bytes: admitted %d, want 5", bytes, got)
		}
		srv.away.Store(false)
		r.Step()
		want := 5
		if bytes > 1024 {
			want = 10
		}
		if got := remaining(srv, l, key); got != want {
			t.Errorf("%d bytes: %d remain, want %d", bytes, got, want)
		}
	}
}

// keyless is a server that reports operations without a key.
type keyless struct {
	*server
	t *testing.T
}

func (k keyless) Apply(ctx context.Context, b *backends.Batch) error {
	for i := range b.Ops {
		if b.Ops[i].Key == "" {
			k.t.Error("an operation without a key")
		}
	}
	return k.server.Apply(ctx, b)
}

// TestLongKeyInAnothersPlace is not charged in place of the key that was evicted.
func TestLongKeyInAnothersPlace(t *testing.T) {
	srv := newServer(t)
	r, l := newReplicaWith(t, keyless{srv, t}, 1, near.Options{Cells: 1}), limit(t, algorithms.Spec{Requests: 20})
	srv.away.Store(true)
	r.hits(l, "short", 5)
	r.hits(l, strings.Repeat("k", 2000), 5)
	srv.away.Store(false)
	r.Step()
}

// TestHitThatComesLate: hits that have waited for the store until their window had
// ended count with the window's other hits.
func TestHitThatComesLate(t *testing.T) {
	srv := newServer(t)
	r, l := newReplica(t, srv, 1), limit(t, algorithms.Spec{Requests: 2})
	srv.away.Store(true)
	passed := 0
	for range 4 {
		b := local(l, "k", algorithms.Charge{Now: 59_900_000, Cost: 1})
		if _ = r.Apply(t.Context(), b); l.Judge(&b.Ops[0], &b.Replies[0]).Allowed {
			passed++
		}
		srv.clock.Store(60_100_000)
		r.Step()
	}
	if passed != 2 {
		t.Errorf("%d hits pass in one window, want 2", passed)
	}
}
