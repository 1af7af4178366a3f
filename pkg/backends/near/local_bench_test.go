package near_test

import (
	"fmt"
	"testing"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
)

// BenchmarkLocal takes in the answers of a store, and decides while the store is away.
func BenchmarkLocal(b *testing.B) {
	for name, l := range strategies(b, 10_000) {
		for _, away := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s, away %v", name, away), func(b *testing.B) {
				srv := newServer(b)
				r := newReplica(b, srv, 2)
				batches := make([]*backends.Batch, 1000)
				for i := range batches {
					batches[i] = local(l, fmt.Sprintf("domain|user_%d", i), algorithms.Charge{Now: start, Cost: 1})
				}
				srv.away.Store(away)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					_ = r.Apply(b.Context(), batches[i%1000])
				}
			})
		}
	}
}

// BenchmarkNewKeys decides another key each time, in full memory.
func BenchmarkNewKeys(b *testing.B) {
	srv := newServer(b)
	srv.away.Store(true)
	r, l := newReplica(b, srv, 2), limit(b, algorithms.Spec{Requests: 20})
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		_ = r.Apply(b.Context(), local(l, fmt.Sprintf("domain|user_%d", i), algorithms.Charge{Now: start, Cost: 1}))
	}
}
