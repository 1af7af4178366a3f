package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"example.org/rls/pkg/backends"
)

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
		span.SetStatus(codes.Error, err.Error())
	}
	return err
}
