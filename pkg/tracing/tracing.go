// Package tracing sends OpenTelemetry spans: one for each decision, below the
// span of the Envoy that asked, and below it one for the store's part.
//
// It promises to cost nothing when it is off: a nil [Tracer] hands back the
// service and the store that it is given. When it is on, a collector that is
// slow or away delays no decision and holds a bounded number of spans; others
// are dropped. It leaves to OpenTelemetry's SDK what the OTEL_* variables mean.
package tracing

import (
	"context"
	"errors"
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

// maxValue bounds what a caller can put into a span, in bytes of one
// attribute, where OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT does not.
const maxValue = 256

// warnEvery bounds how often it is said that spans cannot be sent, in seconds.
const warnEvery = 10

// flushWithin bounds how long Close waits for the collector.
const flushWithin = 3 * time.Second

// Options say who sends spans and how.
type Options struct {
	// ServiceName, ServiceNamespace and ServiceInstanceID name the sender. An
	// empty namespace is left out, an empty instance gets a random UUID.
	ServiceName, ServiceNamespace, ServiceInstanceID string
	Version                                          string
	// Protocol is how OTLP is spoken: "http" or "grpc".
	Protocol string
	// SamplingRate, 0 to 1, is the share of sampled traces among those that
	// begin here. Others follow their parent.
	SamplingRate float64
	// Log is told when spans cannot be sent.
	Log *slog.Logger
}

// Tracer makes spans and sends them in the background. Nil, it does neither.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	callers  propagation.TextMapPropagator
}

// Open starts a tracer. It does not wait for the collector. There is one per
// process: what OpenTelemetry has to say of itself goes to the last one's Log.
func Open(ctx context.Context, o Options) (*Tracer, error) {
	otel.SetLogger(logr.FromSlogHandler(o.Log.Handler()))
	otel.SetErrorHandler(&complaints{log: o.Log})
	from, err := sender(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("tracing: describe the sender: %w", err)
	}
	exporter, err := newExporter(ctx, o.Protocol)
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
		// Where a caller sends both, B3 goes before W3C, as it does in
		// envoyproxy/ratelimit.
		callers: propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, b3.New()),
	}, nil
}

// complaints logs what goes wrong, seldom: under load a collector that is away
// fails many batches a second.
type complaints struct {
	log  *slog.Logger
	last atomic.Int64 // Unix time of the last one that was logged
}

func (c *complaints) Handle(err error) {
	now, last := time.Now().Unix(), c.last.Load()
	if now-last >= warnEvery && c.last.CompareAndSwap(last, now) {
		c.log.Warn("tracing", "error", err.Error())
	}
}

// sender takes what OTEL_RESOURCE_ATTRIBUTES says and nothing else does.
func sender(ctx context.Context, o Options) (*resource.Resource, error) {
	instance := o.ServiceInstanceID
	if instance == "" {
		instance = uuid.NewString()
	}
	who := []attribute.KeyValue{
		attribute.String("service.name", o.ServiceName),
		attribute.String("service.instance.id", instance),
		attribute.String("service.version", o.Version),
	}
	if o.ServiceNamespace != "" {
		who = append(who, attribute.String("service.namespace", o.ServiceNamespace))
	}
	return resource.New(ctx, resource.WithTelemetrySDK(), resource.WithFromEnv(), resource.WithAttributes(who...))
}

func newExporter(ctx context.Context, protocol string) (*otlptrace.Exporter, error) {
	switch protocol {
	case "http":
		return otlptracehttp.New(ctx)
	case "grpc":
		return otlptracegrpc.New(ctx)
	}
	return nil, errors.New("unknown protocol " + protocol)
}

// Close sends what is left, within a few seconds.
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
