package combine_test

import (
	"context"
	"testing"
	"time"

	"example.org/rls/pkg/backends"
)

// far is a memory store behind a round trip of some time.
type far struct{ backends.Store }

func (f far) Apply(ctx context.Context, b *backends.Batch) error {
	<-time.After(50 * time.Microsecond)
	return f.Store.Apply(ctx, b)
}

// BenchmarkHotKey is one operation of each of 64 callers at a time on one key.
func BenchmarkHotKey(b *testing.B) {
	s := over(b, far{inMemory(b)})
	b.SetParallelism(32)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		op := hit("hot")
		op.Max = backends.NoMax
		batch := backends.Batch{Ops: []backends.Op{op}, Replies: make([]backends.Reply, 1)}
		for pb.Next() {
			if err := s.Apply(b.Context(), &batch); err != nil {
				b.Error(err)
			}
		}
	})
}
