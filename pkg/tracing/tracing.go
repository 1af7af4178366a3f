// Package tracing sends OpenTelemetry spans: one for each decision, whose parent
// is the span of the Envoy that asked, and as its child one for the wait for the
// store.
//
// It costs nothing when it is off: a nil [Tracer] returns the service and the store that it
// is given. When it is on, a collector that is slow or away delays no decision, and a bounded
// number of spans waits for it; further spans are dropped. OpenTelemetry's SDK reads the
// OTEL_* variables.
package tracing

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"go.opentelemetry.io/contrib/propagators/b3"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const (
	// maxValue bounds the length of an attribute, into which a caller may put bytes
	// of its own, unless OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT sets a bound.
	maxValue = 256
	// warnEvery is the least number of seconds between warnings that spans cannot be sent.
	warnEvery = 10
	// flushWithin bounds how long Close waits for the collector.
	flushWithin = 3 * time.Second
)

// Options configure a [Tracer]. The fields with a tag env are settings of the process.
type Options struct {
	// They identify this process in its spans. An empty namespace is left out; an empty
	// instance becomes a random UUID.
	ServiceName       string `env:"SERVICE_NAME" default:"RateLimit" help:"service.name of the spans."`
	ServiceNamespace  string `env:"SERVICE_NAMESPACE" help:"service.namespace of the spans."`
	ServiceInstanceID string `name:"service-instance-id" env:"SERVICE_INSTANCE_ID" help:"service.instance.id of the spans; by default a random UUID."`
	Version           string `kong:"-"`
	// Protocol is the transport of OTLP: "http" or "grpc".
	Protocol string `name:"exporter-protocol" env:"EXPORTER_PROTOCOL" default:"http" oneof:"http,grpc" help:"OTLP's transport: protobuf over HTTP, or gRPC."`
	// SamplingRate, 0 to 1, is the share of traces that are sampled among the
	// traces that begin here. A span with a parent is sampled if its parent is.
	SamplingRate float64 `env:"SAMPLING_RATE" default:"1" min:"0" max:"1" help:"Sampled share of traces without a parent; the caller decides about others."`
	// Log is told when spans cannot be sent.
	Log *slog.Logger `kong:"-"`
}

// Tracer makes spans and sends them in the background. A nil Tracer makes none.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	callers  propagation.TextMapPropagator
}

// Open starts a tracer and does not wait for the collector. As a side effect it
// sets OpenTelemetry's logger and error handler of the whole process, so a process
// should have one tracer.
func Open(ctx context.Context, o Options) (*Tracer, error) {
	otel.SetLogger(logr.FromSlogHandler(o.Log.Handler()))
	otel.SetErrorHandler(seldom(o.Log))
	from, err := sender(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("tracing: describe the sender: %w", err)
	}
	client := otlptracehttp.NewClient()
	if o.Protocol == "grpc" {
		client = otlptracegrpc.NewClient()
	}
	exporter, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("tracing: open exporter: %w", err)
	}
	limits := sdk.NewSpanLimits()
	if limits.AttributeValueLengthLimit < 0 {
		limits.AttributeValueLengthLimit = maxValue
	}
	provider := sdk.NewTracerProvider(
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(o.SamplingRate))),
		sdk.WithRawSpanLimits(limits),
		sdk.WithResource(from),
		sdk.WithBatcher(exporter),
	)
	return &Tracer{
		provider: provider,
		tracer:   provider.Tracer("example.org/rls"),
		// If a caller sends both headers, B3 wins over W3C, as in
		// envoyproxy/ratelimit: the last propagator counts.
		callers: propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, b3.New()),
	}, nil
}

// seldom logs OpenTelemetry's errors, at most one in warnEvery: under load a
// collector that is away makes many batches a second fail.
func seldom(log *slog.Logger) otel.ErrorHandlerFunc {
	var last atomic.Int64 // Unix time of the last error that was logged
	return func(err error) {
		now, before := time.Now().Unix(), last.Load()
		if now-before >= warnEvery && last.CompareAndSwap(before, now) {
			log.Warn("tracing", "error", err.Error())
		}
	}
}

// sender describes this process. Attributes of OTEL_RESOURCE_ATTRIBUTES count if
// the options do not have them.
func sender(ctx context.Context, o Options) (*resource.Resource, error) {
	who := []attribute.KeyValue{
		attribute.String("service.name", o.ServiceName),
		attribute.String("service.instance.id", cmp.Or(o.ServiceInstanceID, uuid.NewString())),
		attribute.String("service.version", o.Version),
	}
	if o.ServiceNamespace != "" {
		who = append(who, attribute.String("service.namespace", o.ServiceNamespace))
	}
	return resource.New(ctx, resource.WithTelemetrySDK(), resource.WithFromEnv(), resource.WithAttributes(who...))
}

// Close sends the spans that are left, for a few seconds at most, and stops.
func (t *Tracer) Close() error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushWithin)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("tracing: send the last spans: %w", err)
	}
	return nil
}
