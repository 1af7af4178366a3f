package service_test

import (
	"context"
	"strconv"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/envoy"
)

// BenchmarkShouldRateLimit is a decision without the network, from message to
// message: 10,000 keys in memory, one descriptor or four.
func BenchmarkShouldRateLimit(b *testing.B) { benchmark(b) }

// BenchmarkHashedKeys is the same with CACHE_KEY_HASH.
func BenchmarkHashedKeys(b *testing.B) {
	benchmark(b, func(c *config) { c.Values = service.NewValueHash([]byte("sixteen bytes or more")) })
}

func benchmark(b *testing.B, change ...func(*config)) {
	store, err := memory.New(memory.Options{MaxKeys: 100_000}) // on the clock of the machine
	if err != nil {
		b.Fatal(err)
	}
	r := start(b, "domain: bench\ndescriptors:\n  - key: user\n    rate_limit: {unit: hour, requests_per_unit: 1000000000}\n",
		append(change, func(c *config) { c.Store = store })...)
	for _, n := range []int{1, 4} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			var requests []*pb.RateLimitRequest
			for i := range 10_000 {
				r := &pb.RateLimitRequest{Domain: "bench"}
				for d := range n {
					r.Descriptors = append(r.Descriptors, desc("user", "v"+strconv.Itoa(d)+"-"+strconv.Itoa(i)))
				}
				requests = append(requests, r)
			}
			loop(b, r.service, requests)
		})
	}
}

// loop measures the way of requests from the wire through d to the wire, in turn.
func loop(b *testing.B, d service.Decider, requests []*pb.RateLimitRequest) {
	var wire []mem.BufferSlice
	for _, r := range requests {
		data, err := proto.Marshal(r)
		if err != nil {
			b.Fatal(err)
		}
		wire = append(wire, mem.BufferSlice{mem.SliceBuffer(data)})
	}
	var h handler
	served(d).Register(&h)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if err := h.call(wire[i%len(wire)]); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

// handler calls a method as a gRPC server does, without the network.
type handler struct{ method grpc.MethodHandler }

var codec = envoy.Codec()

// RegisterService implements [grpc.ServiceRegistrar].
func (h *handler) RegisterService(desc *grpc.ServiceDesc, _ any) { h.method = desc.Methods[0].Handler }

func (h *handler) call(wire mem.BufferSlice) error {
	reply, err := h.method(nil, context.Background(), func(r any) error { return codec.Unmarshal(wire, r) }, nil)
	if err != nil {
		return err
	}
	_, err = codec.Marshal(reply)
	return err
}
