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

// service is another service with a span for each decision.
type service struct {
	pb.RateLimitServiceServer
	t *Tracer
}

// Service makes a span of each of next's decisions, with the caller's span, if
// it sent one in the metadata of its call, as the parent.
func (t *Tracer) Service(next pb.RateLimitServiceServer) pb.RateLimitServiceServer {
	if t == nil {
		return next
	}
	return &service{next, t}
}

// ShouldRateLimit is next's, in a span named as OpenTelemetry names RPCs.
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
	case code != codes.InvalidArgument && code != codes.Canceled: // those are the caller's
		span.SetStatus(otelcodes.Error, err.Error())
	}
}

// carrier is the metadata of a call as propagators read it.
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
