package redis_test

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/redis"
)

// BenchmarkApply is 64 callers with 10,000 keys, one batch each at a time. It
// reports the processor time of this process and of Redis, on which a busy
// machine has less influence than on elapsed time.
func BenchmarkApply(b *testing.B) {
	limited := func(op *backends.Op) { op.Max = backends.Amount{Whole: 1 << 40} }
	for _, c := range []struct {
		name string
		ops  int
		make func(*backends.Op)
	}{
		{"count", 1, func(*backends.Op) {}},
		{"count of 4", 4, func(*backends.Op) {}},
		{"limited counter", 1, limited},
		{"limited counter of 4", 4, limited},
		{"meter", 1, func(op *backends.Op) {
			op.Kind, op.By.Whole, op.Max.Whole = backends.Meter, 10, op.Now+1<<40
			op.Full.Whole = 1 << 40
		}},
		{"list of at most 100", 1, func(op *backends.Op) {
			op.Kind, op.Max.Whole, op.Window = backends.List, 100, time.Second.Microseconds()
		}},
		{"debt", 1, func(op *backends.Op) {
			op.Kind, op.By.Whole, op.Unit.Whole, op.Max.Whole = backends.Meter, 10, 10, op.Now+1<<40
			op.Debt, op.Shift = backends.Amount{Whole: 1 << 40}, backends.Amount{Whole: 1 << 40}
			op.Full.Whole = 2 << 40
		}},
		{"reservation and settlement", 1, func(op *backends.Op) { // of each key in turns
			limited(op)
			op.Hold = &backends.Hold{Key: op.Key + "|hold", ID: "0123456789abcdef", TTL: 600_000_000}
		}},
		{"sliding window", 1, func(op *backends.Op) {
			limited(op)
			op.Span, op.Window = backends.Sliding, time.Hour.Microseconds()
			op.Mark = op.Now / op.Window
			op.Until = (op.Mark + 2) * op.Window
		}},
		{"precision of 60", 1, func(op *backends.Op) {
			limited(op)
			op.Kind, op.Window = backends.List, time.Minute.Microseconds()
			op.Parts = 60
		}},
		{"slot", 1, func(op *backends.Op) {
			op.Kind, op.Max.Whole, op.Window = backends.List, 100, time.Minute.Microseconds()
			op.Oldest = true
		}},
	} {
		b.Run(c.name, func(b *testing.B) { benchmark(b, c.ops, c.make) })
	}
}

func benchmark(b *testing.B, ops int, change func(*backends.Op)) {
	const callers, keys = 64, 10_000
	server := testenv.Redis(b)
	s := open(b, redis.Options{URL: server.Addr})
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprintf("rl|bench|user=%05d|1h|12345", i)
	}
	var next atomic.Int64
	b.SetParallelism(callers / 2)
	b.ReportAllocs()
	ours, theirs := cpu(b), redisCPU(b, server)
	b.RunParallel(func(pb *testing.PB) {
		batch := backends.Batch{Ops: make([]backends.Op, ops), Replies: make([]backends.Reply, ops)}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for pb.Next() {
			for i := range batch.Ops {
				batch.Ops[i] = hit(names[next.Add(7919)%keys])
				change(&batch.Ops[i])
			}
			if err := s.Apply(ctx, &batch); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric((cpu(b)-ours)/float64(b.N), "µs-here/op")
	b.ReportMetric((redisCPU(b, server)-theirs)/float64(b.N), "µs-redis/op")
}

// cpu is the processor time in µs that this process has used.
func cpu(b *testing.B) float64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e3
}

// redisCPU is the processor time in µs that the server has used.
func redisCPU(b *testing.B, server *testenv.Server) float64 {
	b.Helper()
	total := 0.0
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(info(b, server, field), 64)
		if err != nil {
			b.Fatal(err)
		}
		total += seconds * 1e6
	}
	return total
}
