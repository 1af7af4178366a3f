package standin_test

import (
	"fmt"
	"testing"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
)

// planned is operations on 1,000 keys and the replies to them.
func planned(b *testing.B, l *algorithms.Limit) *backends.Batch {
	srv := newServer(b)
	batch := &backends.Batch{Ops: make([]backends.Op, 1000), Replies: make([]backends.Reply, 1000)}
	for i := range batch.Ops {
		id := algorithms.Identity{ID: fmt.Appendf(nil, "domain|user_%d", i)}
		l.Plan(&batch.Ops[i], id, algorithms.Charge{Now: start, Cost: 1})
	}
	if err := srv.Apply(b.Context(), batch); err != nil {
		b.Fatal(err)
	}
	return batch
}

func BenchmarkRemember(b *testing.B) {
	for name, l := range strategies(b, 10_000) {
		b.Run(name, func(b *testing.B) {
			r, batch := newReplica(b, newServer(b), 2), planned(b, l)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r.Remember(l, &batch.Ops[i%1000], &batch.Replies[i%1000])
			}
		})
	}
}

func BenchmarkDecide(b *testing.B) {
	for name, l := range strategies(b, 10_000) {
		b.Run(name, func(b *testing.B) {
			r, batch := newReplica(b, newServer(b), 2), planned(b, l)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r.Decide(l, &batch.Ops[i%1000])
			}
		})
	}
}

// BenchmarkNewKeys decides another key each time, in full memory.
func BenchmarkNewKeys(b *testing.B) {
	r, l := newReplica(b, newServer(b), 2), limit(b, algorithms.Spec{Requests: 20})
	var op backends.Op
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		l.Plan(&op, algorithms.Identity{ID: fmt.Appendf(nil, "domain|user_%d", i)}, algorithms.Charge{Now: start, Cost: 1})
		r.Decide(l, &op)
	}
}
