package service_test

import (
	"context"
	"strconv"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/descriptors/yaml"
	"example.org/rls/pkg/service"
)

// BenchmarkShouldRateLimit is a decision without the network: 10,000 keys in
// memory, one descriptor or four.
func BenchmarkShouldRateLimit(b *testing.B) { benchmark(b, service.Config{}) }

// BenchmarkHashedKeys is the same with CACHE_KEY_HASH.
func BenchmarkHashedKeys(b *testing.B) {
	benchmark(b, service.Config{KeySecret: []byte("sixteen bytes or more")})
}

func benchmark(b *testing.B, cfg service.Config) {
	tree, _, err := yaml.Load([]yaml.Text{{Name: "bench.yaml", Content: []byte(
		"domain: bench\ndescriptors:\n  - key: user\n    rate_limit: {unit: hour, requests_per_unit: 1000000000}\n")}}, yaml.Options{})
	if err != nil {
		b.Fatal(err)
	}
	store, err := memory.New(memory.Options{MaxKeys: 100_000})
	if err != nil {
		b.Fatal(err)
	}
	cfg.Store = store
	s, err := service.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	s.SetTree(tree)
	for _, n := range []int{1, 4} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			requests := make([]*pb.RateLimitRequest, 10_000)
			for i := range requests {
				requests[i] = &pb.RateLimitRequest{Domain: "bench"}
				for d := range n {
					requests[i].Descriptors = append(requests[i].Descriptors, desc("user", "v"+strconv.Itoa(d)+"-"+strconv.Itoa(i)))
				}
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if _, err := s.ShouldRateLimit(context.Background(), requests[i%len(requests)]); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}
