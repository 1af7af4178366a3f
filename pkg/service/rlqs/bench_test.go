package rlqs_test

import (
	"context"
	"encoding"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"example.org/rls/internal/testenv"
)

// wire is the server's side of a stream without a network: it reads messages and keeps the replies.
type wire struct {
	grpc.ServerStream
	ctx      context.Context
	messages [][]byte
	again    int // how often the last message comes again
	replies  []*pb.RateLimitQuotaResponse
	sent     atomic.Int64  // bytes
	pause    chan struct{} // is waited for after the last message
}

func (w *wire) Context() context.Context { return w.ctx }

func (w *wire) RecvMsg(m any) error {
	next := w.messages
	switch {
	case len(next) == 1 && w.again > 0:
		w.again--
	case len(next) > 0:
		w.messages = next[1:]
	default:
		if w.pause != nil {
			<-w.pause
		}
		return io.EOF
	}
	return m.(encoding.BinaryUnmarshaler).UnmarshalBinary(next[0])
}

func (w *wire) Recv() (*pb.RateLimitQuotaUsageReports, error) { panic("RecvMsg is called") }

func (w *wire) Send(m *pb.RateLimitQuotaResponse) error {
	b, err := proto.Marshal(m)
	w.sent.Add(int64(len(b)))
	if len(w.replies) < 10 {
		w.replies = append(w.replies, m)
	}
	return err
}

// message is a report of n buckets of a key.
func message(t testing.TB, key string, n int) []byte {
	m := reports("d")
	for i := range n {
		m.BucketQuotaUsages = append(m.BucketQuotaUsages, usage(5*time.Second, 1, 0, key, fmt.Sprint("value-", i)))
	}
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// BenchmarkReports: ns/report is the time for a bucket in a report of many, or of one.
func BenchmarkReports(b *testing.B) {
	for _, key := range []string{"second", "year"} {
		for _, n := range []int{1, 100} {
			b.Run(fmt.Sprintf("%s/%d buckets", key, n), func(b *testing.B) {
				w := start(b, 1, rules+"  - {key: year, rate_limit: {unit: year, requests_per_unit: 4000000000}}\n")
				b.ReportAllocs()
				stream := &wire{ctx: b.Context(), messages: [][]byte{message(b, key, n)}, again: (b.N - 1) / n}
				b.ResetTimer()
				if err := w.replicas[0].quotas.StreamRateLimitQuotas(stream); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

// BenchmarkShouldRateLimit is what a request costs that asks, to compare.
func BenchmarkShouldRateLimit(b *testing.B) {
	w := start(b, 1, rules)
	m := &rls.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{
		{Entries: []*common.RateLimitDescriptor_Entry{{Key: "minute", Value: "v"}}},
	}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.replicas[0].envoy.ShouldRateLimit(b.Context(), m); err != nil {
			b.Fatal(err)
		}
	}
}

// TestMemory: 10,000 buckets of a stream take up to 20 MiB, store aside.
func TestMemory(t *testing.T) {
	const buckets = 10_000
	w := start(t, 2, rules)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	stream := &wire{ctx: t.Context(), messages: [][]byte{message(t, "second", buckets)}, pause: make(chan struct{})}
	w.replicas[1].quotas.StreamRateLimitQuotas(&wire{ctx: t.Context(), messages: stream.messages}) //nolint:errcheck // fills the store
	before := heap()
	done := make(chan error)
	go func() { done <- w.replicas[0].quotas.StreamRateLimitQuotas(stream) }()
	testenv.Eventually(t, time.Minute, func() bool {
		_, n, _ := w.replicas[0].quotas.Counts()
		return n == buckets && stream.sent.Load() > 0
	}, "the report is not answered")
	taken := heap() - before
	close(stream.pause)
	if err := <-done; err != nil || stream.sent.Load() == 0 {
		t.Fatal(err, stream.sent.Load())
	}
	t.Logf("%d buckets: %.1f MiB, an answer has %d bytes", buckets, float64(taken)/(1<<20), stream.sent.Load())
	if taken > 20<<20 {
		t.Errorf("%d bytes", taken)
	}
}
