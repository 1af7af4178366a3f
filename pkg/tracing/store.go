package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"example.org/rls/pkg/backends"
)

// store is another store with a span for each call.
type store struct {
	backends.Store
	t       *Tracer
	name    string
	options []trace.SpanStartOption
}

// Store makes a span of each wait for next, below the span of the decision that
// waits. system is what OpenTelemetry calls the server ("redis", "memcached"),
// "" for a store in this process. Keys are not told: they hold what identifies
// people.
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

// Apply applies b, in a span if the decision has one.
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
