package near_test

import (
	"context"
	"testing"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/backends/near"
)

// huge is a limit whose leases last for the whole benchmark.
func huge(strategy algorithms.Strategy) algorithms.Spec {
	return algorithms.Spec{Strategy: strategy, Requests: 4_000_000_000, Window: 24 * time.Hour,
		Lease: algorithms.Lease{Share: 500_000, TTL: 250 * time.Millisecond}}
}

func hotBatch(tb testing.TB, spec algorithms.Spec) (*algorithms.Limit, *backends.Batch) {
	l := limit(tb, spec)
	return l, &backends.Batch{Ops: make([]backends.Op, 1), Replies: make([]backends.Reply, 1)}
}

func plan(l *algorithms.Limit, b *backends.Batch, now int64) {
	l.Plan(&b.Ops[0], algorithms.Identity{ID: []byte("hot")}, algorithms.Charge{Now: now, Cost: 1})
}

// TestAHitFromALeaseDoesNotAllocate, fetches aside.
func TestAHitFromALeaseDoesNotAllocate(t *testing.T) {
	w := newWorld(t, 1, 1, huge(algorithms.FixedWindow))
	p := w.processes[0]
	w.warm(p)
	b := &backends.Batch{Ops: make([]backends.Op, 1), Replies: make([]backends.Reply, 1)}
	plan(w.limit, b, w.store.Now())
	allocs := testing.AllocsPerRun(20, func() {
		if _ = p.Apply(context.Background(), b); !b.Replies[0].Leased {
			t.Fatal("the lease is used up")
		}
	})
	if allocs > 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// BenchmarkHotKey compares a hit from a lease with a hit in the memory store.
func BenchmarkHotKey(b *testing.B) {
	for _, strategy := range []algorithms.Strategy{algorithms.FixedWindow, algorithms.TokenBucket} {
		inner, err := memory.New(memory.Options{MaxKeys: 1000})
		if err != nil {
			b.Fatal(err)
		}
		leased := near.New(inner, near.Options{Timeout: time.Second})
		for name, store := range map[string]backends.Store{"memory": inner, "lease": leased} {
			b.Run(strategy.String()+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					spec := huge(strategy)
					if name == "memory" {
						spec.Lease = algorithms.Lease{}
					}
					l, batch := hotBatch(b, spec)
					plan(l, batch, inner.Now())
					for i := 0; pb.Next(); i++ {
						if i%64 == 0 { // the key costs more than the decision
							plan(l, batch, inner.Now())
						}
						_ = store.Apply(context.Background(), batch)
					}
				})
			})
		}
		_ = leased.Close()
	}
}
