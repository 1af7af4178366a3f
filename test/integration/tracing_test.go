package integration

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"example.org/rls/internal/testenv"
)

const tracedRules = "domain: traced\ndescriptors:\n  - key: user\n    rate_limit: {unit: hour, requests_per_unit: 1}\n"

// The ids of Envoy's span.
const (
	envoyTrace = "0af7651916cd43dd8448eb211c80319c"
	envoySpan  = "b7ad6b7169203331"
)

var w3c = []string{"traceparent", "00-" + envoyTrace + "-" + envoySpan + "-01"}

// receiver is an OTLP collector, over gRPC and HTTP, that keeps what it gets.
type receiver struct {
	collector.UnimplementedTraceServiceServer

	grpc, http string // addresses

	mu  sync.Mutex
	got []*otlp.ResourceSpans
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	listen := func(addr *string, serve func(net.Listener) error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		*addr = l.Addr().String()
		go func() { _ = serve(l) }()
	}
	g := grpc.NewServer()
	collector.RegisterTraceServiceServer(g, r)
	listen(&r.grpc, g.Serve)
	t.Cleanup(g.Stop)

	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", func(w http.ResponseWriter, req *http.Request) {
		var export collector.ExportTraceServiceRequest
		body, err := io.ReadAll(req.Body)
		if err == nil {
			err = proto.Unmarshal(body, &export)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_, _ = r.Export(req.Context(), &export)
		w.Header().Set("Content-Type", "application/x-protobuf")
	})
	web := &http.Server{Handler: mux}
	listen(&r.http, web.Serve)
	t.Cleanup(func() { _ = web.Close() })
	return r
}

func (r *receiver) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, req.ResourceSpans...)
	return &collector.ExportTraceServiceResponse{}, nil
}

// span is a received span with its attributes and its sender's as text.
type span struct {
	*otlp.Span
	attributes, sender map[string]string
}

func (r *receiver) spans() (all []span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range r.got {
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				all = append(all, span{s, texts(s.Attributes), texts(of.Resource.Attributes)})
			}
		}
	}
	return all
}

// await waits for n spans.
func (r *receiver) await(t *testing.T, n int) []span {
	t.Helper()
	testenv.Eventually(t, patience, func() bool { return len(r.spans()) >= n }, fmt.Sprint(n, " spans"))
	return r.spans()
}

func texts(attributes []*common.KeyValue) map[string]string {
	m := map[string]string{}
	for _, a := range attributes {
		switch v := a.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			m[a.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			m[a.Key] = fmt.Sprint(v.IntValue)
		default:
			m[a.Key] = fmt.Sprint(a.Value)
		}
	}
	return m
}

// decisionAndStore are the only two spans there are.
func decisionAndStore(t *testing.T, spans []span) (decision, store span) {
	t.Helper()
	for _, s := range spans {
		switch s.Kind {
		case otlp.Span_SPAN_KIND_SERVER:
			decision = s
		default:
			store = s
		}
	}
	if len(spans) != 2 || decision.Span == nil || store.Span == nil {
		t.Fatalf("want a decision's span and a store's, got %v", spans)
	}
	return decision, store
}

// ask sends a request as Envoy does, with trace headers.
func (s *service) ask(domain, user string, headers ...string) pb.RateLimitResponse_Code {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), headers...), patience)
	defer cancel()
	resp, err := s.client.ShouldRateLimit(ctx, &pb.RateLimitRequest{Domain: domain, Descriptors: []*descriptor{desc("user", user)}})
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.OverallCode
}

// Whatever header Envoy's tracer writes and however spans are sent, the
// decision's span is below Envoy's, and the store's below the decision's.
func TestSpansHangBelowEnvoys(t *testing.T) {
	redis, memcached := testenv.Redis(t), testenv.Memcached(t)
	onRedis := redisAt(redis.Addr)
	tests := []struct {
		name     string
		protocol string
		headers  []string
		backend  []string
		system   string
		kind     otlp.Span_SpanKind
	}{
		{"W3C over gRPC, Redis", "grpc", w3c, onRedis, "redis", otlp.Span_SPAN_KIND_CLIENT},
		{"B3 over HTTP, Redis", "http", []string{"b3", envoyTrace + "-" + envoySpan + "-1"}, onRedis, "redis", otlp.Span_SPAN_KIND_CLIENT},
		{"Zipkin's B3 over HTTP, memcached", "http", []string{"x-b3-traceid", envoyTrace, "x-b3-spanid", envoySpan, "x-b3-sampled", "1"},
			memcachedAt(memcached.Addr), "memcached", otlp.Span_SPAN_KIND_CLIENT},
		{"W3C over HTTP, memory", "http", w3c, []string{"BACKEND_TYPE=memory"}, "", otlp.Span_SPAN_KIND_INTERNAL},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newReceiver(t)
			endpoint := map[string]string{"grpc": r.grpc, "http": r.http}[tt.protocol]
			s := serve(t, tracedRules, append(tt.backend,
				"TRACING_ENABLED=true", "TRACING_EXPORTER_PROTOCOL="+tt.protocol, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+endpoint,
				"TRACING_SERVICE_NAME=limits", "TRACING_SERVICE_NAMESPACE=edge", "TRACING_SERVICE_INSTANCE_ID=pod-1",
				"OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test,service.name=overruled", "OTEL_BSP_SCHEDULE_DELAY=10",
			)...)
			if code := s.ask("traced", "a "+tt.name, tt.headers...); code != pb.RateLimitResponse_OK {
				t.Fatalf("got %v", code)
			}
			decision, store := decisionAndStore(t, r.await(t, 2))
			if trace, parent := hex.EncodeToString(decision.TraceId), hex.EncodeToString(decision.ParentSpanId); trace != envoyTrace || parent != envoySpan {
				t.Errorf("the decision is in the trace %s below %s", trace, parent)
			}
			if trace, parent := hex.EncodeToString(store.TraceId), hex.EncodeToString(store.ParentSpanId); trace != envoyTrace || parent != hex.EncodeToString(decision.SpanId) {
				t.Errorf("the store's part is in the trace %s below %s", trace, parent)
			}
			if decision.Name != "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit" {
				t.Errorf("the decision is named %s", decision.Name)
			}
			are(t, decision.attributes, "ratelimit.domain", "traced", "ratelimit.descriptors", "1", "ratelimit.code", "OK", "rpc.grpc.status_code", "0")
			are(t, store.attributes, "db.system.name", tt.system, "db.operation.batch.size", "1")
			if store.Kind != tt.kind {
				t.Errorf("the store's part is %v, want %v", store.Kind, tt.kind)
			}
			are(t, decision.sender, "service.name", "limits", "service.namespace", "edge", "service.instance.id", "pod-1",
				"deployment.environment.name", "test")
		})
	}
}

// are wants attributes, given as keys and values, which alternate.
func are(t *testing.T, attributes map[string]string, want ...string) {
	t.Helper()
	for i := 0; i < len(want); i += 2 {
		if got := attributes[want[i]]; got != want[i+1] {
			t.Errorf("%s is %q, want %q", want[i], got, want[i+1])
		}
	}
}

// Spans of decisions that were not an OK have the right status, and a caller's bytes
// in spans are bounded.
func TestSpansTellHowRequestsEnd(t *testing.T) {
	redis, r := testenv.Redis(t), newReceiver(t)
	s := serve(t, tracedRules, append(redisAt(redis.Addr), "REDIS_TIMEOUT=300ms",
		"TRACING_ENABLED=true", "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+r.http, "OTEL_BSP_SCHEDULE_DELAY=10")...)
	s.ask("traced", "a")
	if code := s.ask("traced", "a"); code != pb.RateLimitResponse_OVER_LIMIT {
		t.Fatalf("got %v", code)
	}
	s.ask(strings.Repeat("long", 10_000), "a")
	redis.Kill()
	s.undecided("traced", desc("user", "b"), "")

	codes := map[string]int{}
	failed := map[otlp.Span_SpanKind]bool{}
	for _, span := range r.await(t, 7) {
		if span.Kind == otlp.Span_SPAN_KIND_SERVER {
			codes[span.attributes["ratelimit.code"]]++
			if len(span.ParentSpanId) > 0 {
				t.Errorf("a request without a trace is below %x", span.ParentSpanId)
			}
		}
		if domain := span.attributes["ratelimit.domain"]; len(domain) > 256 {
			t.Errorf("a caller put %d bytes into a span", len(domain))
		}
		if span.Status.GetCode() == otlp.Status_STATUS_CODE_ERROR {
			failed[span.Kind] = true
		}
		are(t, span.sender, "service.name", "RateLimit")
		if len(span.sender["service.instance.id"]) != len("00000000-0000-4000-8000-000000000000") {
			t.Errorf("service.instance.id is %q, want a UUID", span.sender["service.instance.id"])
		}
	}
	if codes["OK"] != 2 || codes["OVER_LIMIT"] != 1 || codes[""] != 1 {
		t.Errorf("got the codes %v", codes)
	}
	if !failed[otlp.Span_SPAN_KIND_SERVER] || !failed[otlp.Span_SPAN_KIND_CLIENT] {
		t.Errorf("failures are in the spans of %v", failed)
	}
}

// A caller's trace is sampled as the caller says; the rate is for traces that
// begin here. The last spans are sent at the end, though it is not yet their time.
func TestSamplingFollowsTheCaller(t *testing.T) {
	r := newReceiver(t)
	s := serve(t, tracedRules, "TRACING_ENABLED=true", "TRACING_SAMPLING_RATE=0", "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+r.http, "OTEL_BSP_SCHEDULE_DELAY=3600000")
	s.ask("traced", "a")
	s.ask("traced", "a", "traceparent", "00-"+envoyTrace+"-"+envoySpan+"-00")
	s.ask("traced", "a", w3c...)
	s.ends()
	decisionAndStore(t, r.spans()) // there are no others
}

// A collector that takes connections and says nothing delays neither decisions
// nor, by much, the end.
func TestCollectorThatHangs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	for _, protocol := range []string{"http", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			s := serve(t, tracedRules, "TRACING_ENABLED=true", "TRACING_EXPORTER_PROTOCOL="+protocol,
				"OTEL_EXPORTER_OTLP_ENDPOINT=http://"+l.Addr().String(), "OTEL_BSP_SCHEDULE_DELAY=10")
			start := time.Now()
			for range 100 {
				s.ask("traced", "a", w3c...)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("100 decisions took %v", took)
			}
			s.ends()
			if !strings.Contains(s.log.String(), "spans are lost") {
				t.Error("nothing is said about the spans that were lost")
			}
		})
	}
}

// A collector that is away does not fill the log.
func TestCollectorThatIsAway(t *testing.T) {
	s := serve(t, tracedRules, "TRACING_ENABLED=true", "OTEL_BSP_SCHEDULE_DELAY=1",
		fmt.Sprintf("OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:%d", testenv.FreePort(t)))
	warnings := func() int { return strings.Count(s.log.String(), `"@message":"tracing"`) }
	testenv.Eventually(t, patience, func() bool {
		s.ask("traced", "a")
		return warnings() > 0
	}, "a warning")
	for range 200 {
		s.ask("traced", "a")
	}
	if n := warnings(); n > 2 { // two when the machine was slow
		t.Errorf("%d warnings", n)
	}
}
