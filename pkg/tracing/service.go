package tracing

import (
	"context"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// service wraps a service and makes a span of each decision.
type service struct {
	pb.RateLimitServiceServer
	t *Tracer
}

// Service returns next with a span for each decision. Its parent is the caller's
// span, if the metadata of the call has one.
func (t *Tracer) Service(next pb.RateLimitServiceServer) pb.RateLimitServiceServer {
	if t == nil {
		return next
	}
	return &service{next, t}
}

// ShouldRateLimit implements [pb.RateLimitServiceServer]. The span has the name
// that OpenTelemetry gives to an RPC.
func (s *service) ShouldRateLimit(ctx context.Context, req *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	if headers, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = s.t.callers.Extract(ctx, carrier(headers))
	}
	ctx, span := s.t.tracer.Start(ctx, pb.RateLimitService_ShouldRateLimit_FullMethodName[1:], trace.WithSpanKind(trace.SpanKindServer))
	defer span.End()
	resp, err := s.RateLimitServiceServer.ShouldRateLimit(ctx, req)
	if span.IsRecording() {
		describe(span, req, resp, err)
	}
	return resp, err
}

func describe(span trace.Span, req *pb.RateLimitRequest, resp *pb.RateLimitResponse, err error) {
	code := status.Code(err)
	span.SetAttributes(
		attribute.String("rpc.system", "grpc"),
		attribute.String("rpc.service", pb.RateLimitService_ServiceDesc.ServiceName),
		attribute.String("rpc.method", "ShouldRateLimit"),
		attribute.Int("rpc.grpc.status_code", int(code)),
		attribute.String("ratelimit.domain", req.GetDomain()),
		attribute.Int("ratelimit.descriptors", len(req.GetDescriptors())),
	)
	switch {
	case err == nil:
		span.SetAttributes(attribute.String("ratelimit.code", resp.GetOverallCode().String()))
	case code != codes.InvalidArgument && code != codes.Canceled: // the caller's faults are no errors of this span
		span.SetStatus(otelcodes.Error, err.Error())
	}
}

// carrier lets propagators read the metadata of a call.
type carrier metadata.MD

func (c carrier) Get(key string) string {
	if values := metadata.MD(c).Get(key); len(values) > 0 {
		return values[0]
	}
	return ""
}

func (c carrier) Set(key, value string) { metadata.MD(c).Set(key, value) }

func (c carrier) Keys() []string {
	keys := make([]string, 0, len(c))
	for key := range c {
		keys = append(keys, key)
	}
	return keys
}
