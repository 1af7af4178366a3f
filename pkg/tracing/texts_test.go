package tracing_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"example.org/rls/pkg/service"
	"example.org/rls/pkg/tracing"
)

// A text that is not UTF-8 does not cost the spans that are sent with its span.
func TestSpansOfAnyText(t *testing.T) {
	got := make(chan []byte, 10)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- body
	}))
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	tracer, err := tracing.Open(context.Background(), tracing.Options{ServiceName: "test", Protocol: "http", SamplingRate: 1, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for _, domain := range []string{"shop", "ann\xff"} {
		if _, err := tracer.Decider(fixed{}).Decide(t.Context(), &service.Request{Domain: domain}); err != nil {
			t.Fatal(err)
		}
	}
	if err := tracer.Close(); err != nil {
		t.Fatal(err)
	}
	close(got)
	var sent collector.ExportTraceServiceRequest
	if err := proto.Unmarshal(<-got, &sent); err != nil {
		t.Fatal(err)
	}
	domains := map[string]bool{}
	for _, span := range sent.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans() {
		for _, a := range span.GetAttributes() {
			domains[a.GetKey()+" "+a.GetValue().GetStringValue()] = true
		}
	}
	if !domains["ratelimit.domain shop"] || !domains[`ratelimit.domain ann\xff`] {
		t.Errorf("got %v", domains)
	}
}
