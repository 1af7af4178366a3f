package tracing

import (
	"context"
	"maps"
	"path"
	"slices"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
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
	method := pb.RateLimitService_ShouldRateLimit_FullMethodName
	if called, ok := grpc.Method(ctx); ok && r.Call != nil {
		method = called
	}
	ctx, span := d.t.tracer.Start(ctx, method[1:], trace.WithSpanKind(trace.SpanKindServer))
	defer span.End()
	o, err := d.Decider.Decide(ctx, r)
	if span.IsRecording() {
		describe(span, method, r, o, err)
	}
	return o, err
}

func describe(span trace.Span, method string, r *service.Request, o *service.Outcome, err error) {
	code := status.Code(envoy.Error(err))
	span.SetAttributes(
		attribute.String("rpc.system", "grpc"),
		attribute.String("rpc.service", path.Dir(method)[1:]),
		attribute.String("rpc.method", path.Base(method)),
		attribute.Int("rpc.grpc.status_code", int(code)),
		attribute.String("ratelimit.domain", descriptors.Printable(r.Domain)),
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
		span.SetStatus(otelcodes.Error, descriptors.Printable(err.Error()))
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
	return slices.Collect(maps.Keys(c))
}

// store wraps a store and makes a span of each call.
type store struct {
	backends.Store
	t       *Tracer
	name    string
	options []trace.SpanStartOption
}

// Store returns next with a span for each call, as a child of the span of the
// decision that waits for it. system is OpenTelemetry's name of the server ("redis",
// "memcached"), or "" for a store in this process. Spans have no keys, because
// keys may identify people.
func (t *Tracer) Store(next backends.Store, system string) backends.Store {
	if t == nil {
		return next
	}
	s := &store{next, t, "apply", []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindInternal)}}
	if system != "" {
		s.name = "apply " + system
		s.options = []trace.SpanStartOption{
			trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attribute.String("db.system.name", system)),
		}
	}
	return s
}

// Unwrap is the decorated store; see backends.ScannerOf.
func (s *store) Unwrap() backends.Store { return s.Store }

// Apply implements [backends.Store]. It makes a span only if the decision has one.
func (s *store) Apply(ctx context.Context, b *backends.Batch) error {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return s.Store.Apply(ctx, b)
	}
	ctx, span := s.t.tracer.Start(ctx, s.name, s.options...)
	defer span.End()
	span.SetAttributes(attribute.Int("db.operation.batch.size", len(b.Ops)))
	err := s.Store.Apply(ctx, b)
	if err != nil {
		span.SetStatus(otelcodes.Error, descriptors.Printable(err.Error()))
	}
	return err
}
