package near_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/backends/near"
)

// perMinute is a limit of 10,000 a minute, of which a process may hold 500.
var perMinute = algorithms.Spec{Requests: 10_000, Window: time.Minute, Lease: lease5}

// settle moves the clock on and does the background work of all processes.
func (w *world) settle(by int64) {
	w.store.clock.Add(by)
	for _, p := range w.processes {
		p.work.run()
		p.Sweep()
		p.work.run()
	}
}

// warm asks for 200 hits at 1,000 a second, so that p holds a lease.
func (w *world) warm(p *replica) {
	w.t.Helper()
	for range 200 {
		w.settle(ms)
		if d, r := w.ask(p, 1, false); !d.Allowed {
			w.t.Fatalf("a hit on a limit with room is denied: %v", r.Err)
		}
	}
	w.settle(0)
	if p.Leases().Held == 0 {
		w.t.Fatal("a hot key has no lease")
	}
}

// cell is the number of hits in the store's cell, without a lease.
func (w *world) cell() int64 {
	w.t.Helper()
	b := *batchOf(w.limit, algorithms.Charge{Now: w.store.Now()}, "hot")
	if err := w.store.Store.Apply(context.Background(), &b); err != nil {
		w.t.Fatal(err)
	}
	return int64(w.limit.Requests) - w.limit.Judge(&b.Ops[0], &b.Replies[0]).Remaining
}

func (w *world) passed() (n int64) {
	for _, h := range w.admitted {
		n += h.cost
	}
	return n
}

// TestAColdKeyCostsOneOperationPerHit as without a lease.
func TestAColdKeyCostsOneOperationPerHit(t *testing.T) {
	w := newWorld(t, 1, 1, perMinute)
	for range 100 {
		w.settle(40 * ms) // 25 a second
		w.ask(w.processes[0], 1, false)
	}
	if stats := w.processes[0].Leases(); w.store.ops.Load() != 100 || stats.Leased > 0 {
		t.Errorf("%d operations for 100 hits, %+v", w.store.ops.Load(), stats)
	}
}

// TestManyColdKeysTakeNoMemory: a key that is seen seldom gets no entry.
func TestManyColdKeysTakeNoMemory(t *testing.T) {
	w := newWorld(t, 1, 1, perMinute)
	b := backends.Batch{Ops: make([]backends.Op, 1), Replies: make([]backends.Reply, 1)}
	for i := range 20_000 {
		w.store.clock.Add(10)
		w.limit.Plan(&b.Ops[0], algorithms.Identity{ID: []byte{byte(i), byte(i >> 8), 'x'}}, algorithms.Charge{Now: w.store.Now(), Cost: 1})
		_ = w.processes[0].Apply(t.Context(), &b)
	}
	if keys := w.processes[0].Leases().Keys; keys != 0 {
		t.Errorf("%d of 20000 keys with one hit each are hot", keys)
	}
}

// TestAHotKeyCostsFewOperations, and every hit in the cell was asked for or is
// held.
func TestAHotKeyCostsFewOperations(t *testing.T) {
	w := newWorld(t, 1, 1, algorithms.Spec{Requests: 10_000_000, Window: time.Hour, Lease: lease5})
	for range 50_000 {
		w.settle(50) // 20,000 a second
		w.ask(w.processes[0], 1, false)
	}
	if w.store.ops.Load() > 500 {
		t.Errorf("%d operations for 50,000 hits", w.store.ops.Load())
	}
	stats := w.processes[0].Leases()
	if got := w.cell(); got != w.passed()+int64(stats.Held) {
		t.Errorf("the cell has %d hits: want %d that passed and %d held", got, w.passed(), stats.Held)
	}
}

// TestEveryHitHeldWasCharged, whatever the number of hits that a fetch asks for.
func TestEveryHitHeldWasCharged(t *testing.T) {
	w := newWorld(t, 1, 1, algorithms.Spec{Requests: 10_000_000, Window: time.Hour, Lease: lease5})
	for range 500 {
		w.settle(ms)
		w.ask(w.processes[0], 1+w.rng.Uint64N(200), false)
		if got, held := w.cell(), int64(w.processes[0].Leases().Held); got != w.passed()+held {
			t.Fatalf("the cell has %d hits: want %d that passed and %d held", got, w.passed(), held)
		}
	}
}

// TestUnusedHitsComeBack within one ttl and one sweep, and an idle key is
// forgotten.
func TestUnusedHitsComeBack(t *testing.T) {
	for name, strategy := range map[string]algorithms.Strategy{
		"fixed window": algorithms.FixedWindow, "sliding window": algorithms.SlidingWindow,
		"sliding log": algorithms.SlidingLog, "token bucket": algorithms.TokenBucket,
	} {
		t.Run(name, func(t *testing.T) {
			spec := perMinute
			spec.Strategy = strategy
			w := newWorld(t, 1, 1, spec)
			p := w.processes[0]
			w.warm(p)
			w.settle(251 * ms)
			if held := p.Leases().Held; held != 0 {
				t.Errorf("%d hits are held after a ttl", held)
			}
			want := w.passed()
			if strategy == algorithms.TokenBucket {
				want -= 200 * 10_000 / 60_000 // refilled meanwhile, and 251 ms more
				want -= 251 * 10_000 / 60_000
			}
			if got := w.cell(); got < want-1 || got > want+1 {
				t.Errorf("the cell has %d hits, want %d", got, want)
			}
			for range 40 {
				w.settle(100 * ms)
			}
			if keys := p.Leases().Keys; keys != 0 {
				t.Errorf("an idle key stays in memory")
			}
		})
	}
}

// TestALeaseEndsWithItsWindow: hits of the old window do not pass in the new one.
func TestALeaseEndsWithItsWindow(t *testing.T) {
	w := newWorld(t, 1, 1, perMinute)
	p := w.processes[0]
	w.store.clock.Store(start + 60*second - 201*ms)
	w.warm(p)
	held := p.Leases().Held
	w.store.clock.Store(start + 60*second)
	w.admitted = nil
	for range 12_000 {
		w.ask(p, 1, false)
		p.work.run()
	}
	if got := w.passed(); got != 10_000 {
		t.Errorf("%d hits passed in a window, with %d held from the one before", got, held)
	}
}

// TestAWindowEndsDuringACall: hits of a window that began at a hit are not given back into
// the next one, which has the same key, whichever background call is under way when the
// window ends.
func TestAWindowEndsDuringACall(t *testing.T) {
	spec := perMinute
	spec.FromFirstHit = true
	for name, under := range map[string]func(*backends.Op) bool{
		"fetch": func(op *backends.Op) bool { return op.Lease == nil && !op.Verb.GivesBack() && op.By.Whole > 0 },
		"look":  func(op *backends.Op) bool { return op.Lease == nil && op.By.Whole == 0 },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, 1, spec)
			p := w.processes[0]
			w.warm(p)
			store, ended := w.store.Store, false
			w.store.Store = after{store, func(b *backends.Batch) {
				if !ended && under(&b.Ops[0]) {
					ended = true
					w.store.clock.Store(start + 61*second)
					other := *batchOf(w.limit, algorithms.Charge{Now: w.store.Now(), Cost: 5000}, "hot")
					_ = store.Apply(t.Context(), &other)
				}
			}}
			for range 100 {
				if w.settle(10 * ms); !ended && name == "fetch" {
					w.ask(p, 1, false)
				}
			}
			if got := w.cell(); !ended || got != 5000 {
				t.Errorf("the window ended %v; the next one has %d hits of 5000", ended, got)
			}
		})
	}
}

// TestALeaseOfABucketIsNotHoarded: after a pause the held hits and the full
// bucket do not pass together.
func TestALeaseOfABucketIsNotHoarded(t *testing.T) {
	spec := perMinute
	spec.Strategy, spec.Burst = algorithms.TokenBucket, 100
	spec.Lease.Share = 200_000
	w := newWorld(t, 1, 1, spec)
	p := w.processes[0]
	for range 200 {
		w.settle(20 * ms) // 50 a second: the bucket is always full
		w.ask(p, 1, false)
	}
	if p.Leases().Held == 0 {
		t.Fatal("no lease")
	}
	w.store.clock.Add(240 * ms) // no sweep
	w.admitted = nil
	for range 300 {
		w.ask(p, 1, false)
	}
	if got := w.passed(); got != 100 {
		t.Errorf("%d hits passed at once, want the burst of 100", got)
	}
}

// TestTheStoreDies: the lease goes on past its ttl until it is used up; then
// replies have the error. When the store is back, the hits are exact again.
func TestTheStoreDies(t *testing.T) {
	w := newWorld(t, 1, 1, perMinute)
	p := w.processes[0]
	w.warm(p)
	before, held := w.passed(), int64(p.Leases().Held)
	w.store.away.Store(true)
	for range 40 {
		w.settle(100 * ms)
	}
	for range 500 {
		w.ask(p, 1, false)
	}
	if got := w.passed() - before; got != held {
		t.Errorf("%d hits passed without the store, want the %d held", got, held)
	}
	if _, r := w.ask(p, 1, false); r.Err == nil {
		t.Error("a hit beyond the lease has no error")
	}
	w.store.away.Store(false)
	for range 2000 {
		w.settle(ms)
		w.ask(p, 1, false)
	}
	if got := w.passed(); got < before+held+1990 {
		t.Errorf("%d hits passed after the store came back", got-before-held)
	}
	if w.settle(300 * ms); w.cell() < w.passed() {
		t.Errorf("the cell has %d hits, and %d have passed", w.cell(), w.passed())
	}
	if p.Leases().Leased < 1000 {
		t.Error("the key is not leased again")
	}
}

// TestTheStoreDiesAndTheWindowEnds: then nothing of the lease passes.
func TestTheStoreDiesAndTheWindowEnds(t *testing.T) {
	w := newWorld(t, 1, 1, perMinute)
	p := w.processes[0]
	w.warm(p)
	w.store.away.Store(true)
	w.store.clock.Store(start + 60*second)
	if d, r := w.ask(p, 1, false); d.Allowed || r.Err == nil {
		t.Error("a hit of a window that is over has passed")
	}
}

// TestReplies: remaining counts the hits of this process's lease, checks do not
// cost a round trip, and refunds go to the store.
func TestReplies(t *testing.T) {
	w := newWorld(t, 1, 1, perMinute)
	p := w.processes[0]
	w.warm(p)
	calls := w.store.ops.Load()
	d, r := w.ask(p, 1, false)
	if want := 10_000 - w.passed(); d.Remaining != want || !r.Leased {
		t.Errorf("remaining %d, want %d; from the lease: %v", d.Remaining, want, r.Leased)
	}
	if want := time.Duration(start+60*second-w.store.Now()) * time.Microsecond; d.Reset != want {
		t.Errorf("reset %v, want %v", d.Reset, want)
	}
	if d, r := w.ask(p, 0, false); !d.Allowed || d.Remaining != 10_000-w.passed() || !r.Leased {
		t.Errorf("a check: %+v, from the lease: %v", d, r.Leased)
	}
	if w.store.ops.Load() != calls {
		t.Errorf("%d operations", w.store.ops.Load()-calls)
	}
	if d, r := w.ask(p, 3, true); r.Leased || d.Remaining != 10_000-w.passed() {
		t.Errorf("a refund: %+v, from the lease: %v", d, r.Leased)
	}
}

// TestACostAboveTheLease goes to the store; if it is denied, the lease is given
// back, so that the same cost passes next time.
func TestACostAboveTheLease(t *testing.T) {
	w := newWorld(t, 1, 1, perMinute)
	p := w.processes[0]
	w.warm(p)
	rest := uint64(10_000 - w.passed())
	if d, _ := w.ask(p, rest, false); d.Allowed {
		t.Fatal("the store has the held hits")
	}
	w.settle(0)
	if d, r := w.ask(p, rest, false); !d.Allowed || d.Remaining != 0 {
		t.Errorf("%+v %v, held %d", d, r.Err, p.Leases().Held)
	}
}

// TestGroupsAndTiedBatchesGoToTheStore, and their replies are truthful.
func TestGroupsAndTiedBatchesGoToTheStore(t *testing.T) {
	w := newWorld(t, 1, 1, perMinute)
	p := w.processes[0]
	w.warm(p)
	for name, tie := range map[string]func(*backends.Batch){
		"group":          func(b *backends.Batch) { b.Ops[0].Group, b.Ops[1].Group = 1, 1 },
		"all or nothing": func(b *backends.Batch) { b.AllOrNothing = true },
	} {
		b := *batchOf(w.limit, algorithms.Charge{Now: w.store.Now(), Cost: 1}, "hot", "other")
		tie(&b)
		calls := w.store.ops.Load()
		if err := p.Apply(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		w.admitted = append(w.admitted, hit{w.store.Now(), 1})
		if got, want := w.limit.Judge(&b.Ops[0], &b.Replies[0]).Remaining, 10_000-w.passed(); got != want || w.store.ops.Load() != calls+2 {
			t.Errorf("%s: remaining %d, want %d, after %d operations", name, got, want, w.store.ops.Load()-calls)
		}
	}
}

// TestABatchIsAnsweredInPart: what the lease has comes from it, the rest from the
// store.
func TestABatchIsAnsweredInPart(t *testing.T) {
	w := newWorld(t, 1, 1, perMinute)
	p := w.processes[0]
	w.warm(p)
	b := *batchOf(w.limit, algorithms.Charge{Now: w.store.Now(), Cost: 1}, "cold", "hot", "other")
	calls := w.store.ops.Load()
	if err := p.Apply(t.Context(), &b); err != nil || w.store.ops.Load() != calls+2 {
		t.Fatal(err, w.store.ops.Load()-calls)
	}
	for i, leased := range []bool{false, true, false} {
		if r := b.Replies[i]; r.Leased != leased || r.Admitted != 1 {
			t.Errorf("operation %d: %+v", i, r)
		}
	}
}

// TestALimitThatIsLowered counts at once, whatever the lease holds.
func TestALimitThatIsLowered(t *testing.T) {
	w := newWorld(t, 1, 1, perMinute)
	p := w.processes[0]
	w.warm(p)
	spec := perMinute
	spec.Requests = 100
	w.limit = limit(t, spec)
	if d, _ := w.ask(p, 1, false); d.Allowed {
		t.Error("a hit above the lowered limit passed")
	}
	w.settle(251 * ms)               // the held hits belong to the old limit for a ttl
	if got := w.cell(); got != 100 { // remaining 0
		t.Errorf("used %d", got)
	}
	w.limit = limit(t, perMinute)
	if got := w.cell(); got != w.passed() {
		t.Errorf("the cell has %d hits, and %d have passed", got, w.passed())
	}
}

// TestCloseGivesBack all leases.
func TestCloseGivesBack(t *testing.T) {
	w := newWorld(t, 1, 1, perMinute)
	p := w.processes[0]
	w.warm(p)
	w.ask(p, 1, false)
	kept := &keptOpen{w.store.Store}
	w.store.Store = kept
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if got := w.cell(); got != w.passed() {
		t.Errorf("the cell has %d hits, and %d have passed", got, w.passed())
	}
}

type keptOpen struct{ backends.Store }

func (keptOpen) Close() error { return nil }

// TestNobodyStarves: while one process holds hits that it does not use, others
// are denied for no longer than a ttl and a sweep.
func TestNobodyStarves(t *testing.T) {
	w := newWorld(t, 1, 2, perMinute)
	holder, other := w.processes[0], w.processes[1]
	w.warm(holder)
	held := int64(holder.Leases().Held)
	for range 12_000 {
		w.ask(other, 1, false)
	}
	if got := w.passed(); got != 10_000-held {
		t.Fatalf("%d passed while %d were held", got, held)
	}
	w.settle(251 * ms)
	for range 2 * held {
		w.ask(other, 1, false)
	}
	if got := w.passed(); got != 10_000 {
		t.Errorf("%d passed in the end", got)
	}
}

// TestStranded: three processes on a limit of 10,000 a minute that is saturated
// throughout leave at most 2 % of it unused, though one is idle from time to time.
func TestStranded(t *testing.T) {
	w := newWorld(t, 7, 3, perMinute)
	for i := range 119_999 { // 2,000 a second until the window ends
		w.settle(500)
		p := w.processes[w.rng.IntN(3)]
		if i/1000%3 == 0 {
			p = w.processes[w.rng.IntN(2)]
		}
		w.ask(p, 1, false)
	}
	if got := w.passed(); got < 9_800 || got > 10_000 {
		t.Errorf("%d of 10,000 hits passed", got)
	}
	used := uint64(0)
	for _, p := range w.processes {
		used += p.Leases().Used
	}
	if used < 5000 {
		t.Errorf("only %d hits came from leases", used)
	}
}

// TestCloseWaitsForAFrozenStoreTwiceItsTimeout at most, whatever the number of
// leases.
func TestCloseWaitsForAFrozenStoreTwiceItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, err := memory.New(memory.Options{MaxKeys: 10_000})
		if err != nil {
			t.Fatal(err)
		}
		f := &frozen{Store: inner}
		s := near.New(f, near.Options{Timeout: time.Second})
		l, b := hotBatch(t, perMinute)
		for range 40 { // 400 keys with 100 hits a second each
			for key := range 400 {
				l.Plan(&b.Ops[0], algorithms.Identity{ID: []byte{'k', byte(key), byte(key >> 8)}}, algorithms.Charge{Now: s.Now(), Cost: 1})
				_ = s.Apply(t.Context(), b)
			}
			<-time.After(10 * time.Millisecond) // of the bubble's fake clock
		}
		if held := s.Leases().Held; held < 400 {
			t.Fatalf("only %d hits are held", held)
		}
		f.frozen.Store(true)
		begin := time.Now()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("closed after %v", took)
		}
	})
}

// frozen is a store that may answer no more.
type frozen struct {
	backends.Store
	frozen atomic.Bool
}

func (f *frozen) Apply(ctx context.Context, b *backends.Batch) error {
	if f.frozen.Load() {
		<-ctx.Done()
		return b.Fail(fmt.Errorf("%w: %w", backends.ErrUnavailable, ctx.Err()))
	}
	return f.Store.Apply(ctx, b)
}
