package near_test

import (
	"context"
	"testing"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
)

// kinds are limits with a lease on every kind of cell.
func kinds() map[string]algorithms.Spec {
	specs := map[string]algorithms.Spec{}
	for _, s := range []algorithms.Strategy{algorithms.FixedWindow, algorithms.SlidingWindow, algorithms.SlidingLog, algorithms.TokenBucket} {
		spec := perMinute
		spec.Strategy = s
		specs[s.String()] = spec
	}
	return specs
}

// TestAResetEndsTheLease: the process does not use hits whose charge was reset, and
// does not give them back.
func TestAResetEndsTheLease(t *testing.T) {
	for name, spec := range kinds() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, 1, spec)
			p := w.processes[0]
			w.warm(p)
			p.steer(w.limit, "hot", 0)
			if held := p.Leases().Held; held != 0 {
				t.Errorf("%d hits are held after the reset", held)
			}
			w.ask(p, 1, false)
			if w.settle(300 * ms); w.cell() > 1 {
				t.Errorf("the cell has %d hits", w.cell())
			}
		})
	}
}

// TestAResetWhileAFetchIsUnderWay: the hits of a fetch that was charged before the
// reset are dropped.
func TestAResetWhileAFetchIsUnderWay(t *testing.T) {
	w := newWorld(t, 1, 1, perMinute)
	p := w.processes[0]
	fetched := false
	w.store.Store = after{w.store.Store, func(b *backends.Batch) {
		if b.Ops[0].Verb == backends.Charge && b.Ops[0].Lease == nil && !fetched {
			fetched = true
			p.steer(w.limit, "hot", 0)
		}
	}}
	for range 50 {
		w.settle(ms)
		w.ask(p, 1, false)
		if fetched {
			break
		}
	}
	stats := p.Leases()
	if w.settle(300 * ms); !fetched || stats.Held != 0 || stats.Lost == 0 || w.cell() > 1 {
		t.Errorf("fetched %v, then %+v and %d in the cell", fetched, stats, w.cell())
	}
}

// TestAResetWhileHitsAreGivenBack: hits that were charged before the reset do not lower
// the new cell.
func TestAResetWhileHitsAreGivenBack(t *testing.T) {
	w := newWorld(t, 1, 1, perMinute)
	p := w.processes[0]
	w.warm(p)
	store, looked := w.store.Store, false
	w.store.Store = after{store, func(b *backends.Batch) {
		if b.Ops[0].Verb == backends.Charge && b.Ops[0].By == (backends.Amount{}) && !looked {
			looked = true
			p.steer(w.limit, "hot", 0)
			other := *batchOf(w.limit, algorithms.Charge{Now: w.store.Now(), Cost: 50}, "hot")
			_ = store.Apply(t.Context(), &other)
		}
	}}
	w.settle(251 * ms)
	if !looked || w.cell() != 50 {
		t.Errorf("looked %v, then the cell has %d hits of 50", looked, w.cell())
	}
}

// TestAFetchIsOvertaken: the store does an operation of a later moment before a fetch. Whichever
// answer comes first, the lease loses none of the fetched hits, and replies count them.
func TestAFetchIsOvertaken(t *testing.T) {
	isFetch := func(b *backends.Batch) bool {
		return b.Ops[0].Lease == nil && b.Ops[0].Verb == backends.Charge && b.Ops[0].Times > 1
	}
	for name, spec := range kinds() {
		spec.Requests, spec.Window, spec.Lease = 100, 24*time.Hour, algorithms.Lease{Share: 100_000, TTL: 10 * time.Second}
		for first, overtake := range map[string]func(w *world, p *replica, overtaken *bool) backends.Store{
			"the answer of the operation": func(w *world, p *replica, overtaken *bool) backends.Store {
				return before{w.store.Store, func(b *backends.Batch) {
					if isFetch(b) && !*overtaken {
						*overtaken = true
						w.store.clock.Add(1)
						w.ask(p, 8, true)
					}
				}}
			},
			"the answer of the fetch": func(w *world, p *replica, overtaken *bool) backends.Store {
				return after{w.store.Store, func(b *backends.Batch) {
					if *overtaken = *overtaken || isFetch(b); !*overtaken {
						w.store.clock.Add(1)
						p.work.run()
					}
				}}
			},
		} {
			t.Run(name+", "+first, func(t *testing.T) {
				w, overtaken := newWorld(t, 1, 1, spec), false
				p := w.processes[0]
				w.store.Store = overtake(w, p, &overtaken)
				for !overtaken {
					w.store.clock.Add(1)
					if w.ask(p, 1, false); first == "the answer of the operation" {
						p.work.run()
					}
				}
				if d, r := w.ask(p, 0, false); !r.Leased || d.Remaining != 100-w.passed() {
					t.Errorf("%d remain, %d have passed; from the lease: %v", d.Remaining, w.passed(), r.Leased)
				}
				if w.settle(11 * second); w.cell() != w.passed() {
					t.Errorf("the cell has %d hits, %d have passed: %+v", w.cell(), w.passed(), p.Leases())
				}
			})
		}
	}
}

// before calls first before the store decides a batch.
type before struct {
	backends.Store
	first func(*backends.Batch)
}

func (s before) Apply(ctx context.Context, b *backends.Batch) error {
	s.first(b)
	return s.Store.Apply(ctx, b)
}

// after calls then when the store has answered, before the caller has the answer.
type after struct {
	backends.Store
	then func(*backends.Batch)
}

func (s after) Apply(ctx context.Context, b *backends.Batch) error {
	err := s.Store.Apply(ctx, b)
	s.then(b)
	return err
}

// TestAGrantEndsTheLease: hits that the process held come back, and no hit is lost.
func TestAGrantEndsTheLease(t *testing.T) {
	for name, spec := range kinds() {
		t.Run(name, func(t *testing.T) {
			spec.Window = time.Hour // so that a bucket does not refill meanwhile
			w := newWorld(t, 1, 1, spec)
			p := w.processes[0]
			w.warm(p)
			p.steer(w.limit, "hot", 5000)
			w.settle(ms)
			if got, want := w.cell(), w.passed()-5000; got < want || got > want+1 || p.Leases().Held != 0 {
				t.Errorf("the cell has %d hits, want %d; %+v", got, want, p.Leases())
			}
		})
	}
}

// TestCreditIsNotLeased: hits on a cell with credit go to the store, which shows what
// remains, until the credit is used up.
func TestCreditIsNotLeased(t *testing.T) {
	for name, spec := range kinds() {
		if spec.Strategy == algorithms.SlidingLog {
			continue // has no floor, and leases the sum
		}
		t.Run(name, func(t *testing.T) {
			spec.Window = time.Hour
			w := newWorld(t, 1, 1, spec)
			p := w.processes[0]
			p.steer(w.limit, "hot", 300)
			for i := range int64(300) {
				w.settle(ms)
				d, r := w.ask(p, 1, false)
				if !d.Allowed || r.Leased || d.Remaining != 10_299-i {
					t.Fatalf("hit %d: %+v, %+v", i, d, r)
				}
			}
			w.warm(p)
		})
	}
}

// TestOthersGiveBackAfterAReset: the hits that another process held go back into the
// new cell, which does not fall below 0.
func TestOthersGiveBackAfterAReset(t *testing.T) {
	for name, spec := range kinds() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, 2, spec)
			w.warm(w.processes[0])
			w.warm(w.processes[1])
			w.processes[0].steer(w.limit, "hot", 0)
			for range 5 {
				w.ask(w.processes[0], 1, false)
			}
			if w.settle(300 * ms); w.cell() < 0 || w.cell() > 5 {
				t.Errorf("the cell has %d hits", w.cell())
			}
		})
	}
}
