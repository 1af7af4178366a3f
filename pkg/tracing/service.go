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

	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/envoy"
)

// decider wraps a decider and makes a span of each decision.
type decider struct {
	service.Decider
	t *Tracer
}

// Decider returns next with a span for each decision. Its parent is the caller's
// span, if the metadata of the call has one.
func (t *Tracer) Decider(next service.Decider) service.Decider {
	if t == nil {
		return next
	}
	return &decider{next, t}
}

// Decide implements [service.Decider]. The span has the name that OpenTelemetry gives
// to an RPC.
func (d *decider) Decide(ctx context.Context, r *service.Request) (*service.Outcome, error) {
	if headers, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = d.t.callers.Extract(ctx, carrier(headers))
	}
	ctx, span := d.t.tracer.Start(ctx, pb.RateLimitService_ShouldRateLimit_FullMethodName[1:], trace.WithSpanKind(trace.SpanKindServer))
	defer span.End()
	o, err := d.Decider.Decide(ctx, r)
	if span.IsRecording() {
		describe(span, r, o, err)
	}
	return o, err
}

func describe(span trace.Span, r *service.Request, o *service.Outcome, err error) {
	code := status.Code(envoy.Error(err))
	span.SetAttributes(
		attribute.String("rpc.system", "grpc"),
		attribute.String("rpc.service", pb.RateLimitService_ServiceDesc.ServiceName),
		attribute.String("rpc.method", "ShouldRateLimit"),
		attribute.Int("rpc.grpc.status_code", int(code)),
		attribute.String("ratelimit.domain", r.Domain),
		attribute.Int("ratelimit.descriptors", len(r.Descriptors)),
	)
	switch {
	case err == nil:
		overall := pb.RateLimitResponse_OK
		if o.Over {
			overall = pb.RateLimitResponse_OVER_LIMIT
		}
		span.SetAttributes(attribute.String("ratelimit.code", overall.String()))
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
