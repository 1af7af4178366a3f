package rlqs_test

import (
	"fmt"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.org/rls/pkg/service/envoy"
)

// loopback serves a replica of w over TCP on this machine, and returns a connection to it.
func (w *world) loopback(replica int) *grpc.ClientConn {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(envoy.Codec()))
	w.replicas[replica].quotas.Register(server)
	w.replicas[replica].envoy.Register(server)
	go server.Serve(l) //nolint:errcheck // ends with Stop
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		conn.Close()
		server.Stop()
	})
	return conn
}

// exchange has a stream report all of a report's buckets, and waits for their assignments.
func exchange(s pb.RateLimitQuotaService_StreamRateLimitQuotasClient, m *pb.RateLimitQuotaUsageReports) error {
	if err := s.Send(m); err != nil {
		return err
	}
	for assigned := 0; assigned < len(m.BucketQuotaUsages); {
		reply, err := s.Recv()
		if err != nil {
			return err
		}
		assigned += len(reply.BucketAction)
	}
	return nil
}

// processorTime is what this process has used until now.
func processorTime(t testing.TB) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkLoopback: Envoys report over TCP to a service in the same process. cpu-µs/op has the
// processor time of both sides for one bucket of a report, or for one request.
func BenchmarkLoopback(b *testing.B) {
	const streams, buckets = 16, 1000
	measure := func(b *testing.B, one func(stream, n int) error) {
		before := processorTime(b)
		b.ResetTimer()
		var all sync.WaitGroup
		for i := range streams {
			all.Go(func() {
				if err := one(i, (b.N+streams-1)/streams); err != nil {
					b.Error(err)
				}
			})
		}
		all.Wait()
		b.StopTimer()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "op/s")
		b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
	}
	for _, key := range []string{"second", "year"} {
		b.Run("reports/"+key, func(b *testing.B) {
			w := start(b, 1, rules+"  - {key: year, rate_limit: {unit: year, requests_per_unit: 4000000000}}\n")
			conn := w.loopback(0)
			client := pb.NewRateLimitQuotaServiceClient(conn)
			var all []pb.RateLimitQuotaService_StreamRateLimitQuotasClient
			m := reports("d")
			for i := range buckets {
				m.BucketQuotaUsages = append(m.BucketQuotaUsages, usage(5*time.Second, 1000, 0, key, fmt.Sprint("value-", i)))
			}
			for range streams {
				s, err := client.StreamRateLimitQuotas(b.Context())
				if err == nil {
					err = exchange(s, m)
				}
				if err != nil {
					b.Fatal(err)
				}
				all = append(all, s)
			}
			measure(b, func(stream, n int) (err error) {
				for ; n > 0 && err == nil; n -= buckets {
					err = exchange(all[stream], m)
				}
				return err
			})
		})
	}
	b.Run("ShouldRateLimit", func(b *testing.B) {
		conn := start(b, 1, rules).loopback(0)
		client := rls.NewRateLimitServiceClient(conn)
		m := &rls.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{
			{Entries: []*common.RateLimitDescriptor_Entry{{Key: "minute", Value: "v"}}},
		}}
		measure(b, func(_, n int) (err error) {
			for ; n > 0 && err == nil; n-- {
				_, err = client.ShouldRateLimit(b.Context(), m)
			}
			return err
		})
	})
}
