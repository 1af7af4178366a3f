package tracing_test

import (
	"context"
	"log/slog"
	"testing"

	"google.golang.org/grpc/metadata"

	"example.org/rls/pkg/service"
	"example.org/rls/pkg/tracing"
)

// fixed always gives the same answer, so that the benchmark measures the spans.
type fixed struct{}

func (fixed) Decide(context.Context, *service.Request) (*service.Outcome, error) {
	return new(service.Outcome), nil
}

// BenchmarkSpan measures the cost of a decision's span: nothing when tracing is
// off.
func BenchmarkSpan(b *testing.B) {
	sampled := metadata.Pairs("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	for _, bb := range []struct {
		name    string
		on      bool
		headers metadata.MD
	}{
		{"off", false, sampled},
		{"unsampled", true, metadata.Pairs()},
		{"sampled", true, sampled},
	} {
		b.Run(bb.name, func(b *testing.B) {
			var tracer *tracing.Tracer
			if bb.on {
				// Nobody listens at this port: spans are made, queued and dropped.
				b.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
				var err error
				if tracer, err = tracing.Open(context.Background(), tracing.Options{ServiceName: "bench", Protocol: "http", Log: slog.New(slog.DiscardHandler)}); err != nil {
					b.Fatal(err)
				}
			}
			defer func() { _ = tracer.Close() }()
			s := tracer.Decider(fixed{})
			ctx := metadata.NewIncomingContext(context.Background(), bb.headers)
			r := new(service.Request)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Decide(ctx, r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
