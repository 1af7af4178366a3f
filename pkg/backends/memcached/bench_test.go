package memcached_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/memcached"
)

func BenchmarkApply(b *testing.B) {
	server := testenv.Memcached(b)
	s := open(b, memcached.Options{Servers: []string{server.Addr}})
	for name, c := range map[string]struct {
		ops int
		max int64
	}{"incr": {1, -1}, "incr four": {4, -1}, "cas": {1, 1 << 40}, "cas four": {4, 1 << 40}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(32) // callers per core
			var n atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				batch := &backends.Batch{Replies: make([]backends.Reply, c.ops)}
				for pb.Next() {
					first := n.Add(1)
					batch.Ops = batch.Ops[:0]
					for k := range int64(c.ops) {
						batch.Ops = append(batch.Ops, hit(fmt.Sprintf("%s-%d", b.Name(), (first*4+k)%10_000), 1, c.max))
					}
					if err := s.Apply(context.Background(), batch); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}
