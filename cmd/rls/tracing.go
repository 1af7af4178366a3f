package main

import (
	"context"
	"log/slog"

	"example.org/rls/pkg/settings"
	"example.org/rls/pkg/tracing"
)

// newTracer returns nil when tracing is off; a nil tracer makes no spans.
func newTracer(ctx context.Context, s *settings.Settings, log *slog.Logger) (*tracing.Tracer, error) {
	t := s.Tracing
	if !t.Enabled {
		return nil, nil
	}
	release, _ := build()
	return tracing.Open(ctx, tracing.Options{
		ServiceName:       t.ServiceName,
		ServiceNamespace:  t.ServiceNamespace,
		ServiceInstanceID: t.ServiceInstanceID,
		Version:           release,
		Protocol:          t.ExporterProtocol,
		SamplingRate:      t.SamplingRate,
		Log:               log,
	})
}

// endTracing sends the last spans, and logs when that fails.
func endTracing(tracer *tracing.Tracer, log *slog.Logger) {
	if err := tracer.Close(); err != nil {
		log.Warn("spans are lost", "error", err.Error())
	}
}
