package server_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/server"
	"example.org/rls/pkg/settings"
)

const deadline = 10 * time.Second

// decide is a RateLimitService of one function.
type decide func(context.Context, *rls.RateLimitRequest) (*rls.RateLimitResponse, error)

func (d decide) ShouldRateLimit(ctx context.Context, req *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	return d(ctx, req)
}

func answer(code rls.RateLimitResponse_Code) decide {
	return func(context.Context, *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
		return &rls.RateLimitResponse{OverallCode: code}, nil
	}
}

func newMetrics() *metrics.Metrics {
	m, err := metrics.New(metrics.Options{})
	if err != nil {
		panic(err)
	}
	return m
}

// config listens on free loopback ports and answers OK.
func config() server.Config {
	return server.Config{
		Server:     settings.Server{UseGRPC: true, UseHTTP: true, UseDebug: true, Host: "127.0.0.1", DebugHost: "127.0.0.1"},
		GRPC:       settings.GRPC{Host: "127.0.0.1", MaxConcurrentStreams: 100, StreamWorkers: 4},
		Metrics:    settings.Metrics{PrometheusAddr: "127.0.0.1:0", PrometheusPath: "/metrics"},
		MaxBytes:   64 << 10,
		StopWithin: deadline,
		Service:    answer(rls.RateLimitResponse_OK),
		Rules:      func() string { return "web.user: the rules\n" },
		Measure:    newMetrics(),
		Log:        slog.New(slog.DiscardHandler),
	}
}

type running struct {
	*server.Server
	cancel func() // asks it to stop
	ended  chan error
}

func start(t *testing.T, cfg server.Config) *running {
	t.Helper()
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{s, cancel, make(chan error, 1)}
	go func() {
		r.ended <- s.Run(ctx)
		close(r.ended)
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-r.ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(2 * deadline):
			t.Error("the server did not stop")
		}
	})
	return r
}

// stop ends it and waits for its end.
func (r *running) stop(t *testing.T) {
	t.Helper()
	r.cancel()
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
}

func (r *running) dial(t *testing.T, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	target := r.Addrs().GRPC.String()
	if r.Addrs().GRPC.Network() == "unix" {
		target = "unix:" + target
	}
	options = append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, options...)
	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func call(t *testing.T, conn *grpc.ClientConn) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	_, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &rls.RateLimitRequest{Domain: "web"})
	return err
}

// get returns the status and the body of a URL.
func get(t *testing.T, addr net.Addr, path string) (int, string) {
	t.Helper()
	return request(t, http.MethodGet, addr, path, "")
}

func request(t *testing.T, method string, addr net.Addr, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr.String()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(got)
}

func TestOneHealthForAllNames(t *testing.T) {
	s := start(t, config())
	client := healthpb.NewHealthClient(s.dial(t))
	check := func(name string) (healthpb.HealthCheckResponse_ServingStatus, codes.Code) {
		resp, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
		return resp.GetStatus(), status.Code(err)
	}
	expect := func(when string, want healthpb.HealthCheckResponse_ServingStatus, http int) {
		t.Helper()
		for _, name := range []string{"", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"} {
			if got, code := check(name); got != want || code != codes.OK {
				t.Errorf("%s: %q is %v, %v", when, name, got, code)
			}
		}
		if got, _ := get(t, s.Addrs().HTTP, "/healthcheck"); got != http {
			t.Errorf("%s: /healthcheck is %d", when, got)
		}
	}
	expect("at first", healthpb.HealthCheckResponse_NOT_SERVING, 500)
	s.Health().Rules()
	expect("without a store", healthpb.HealthCheckResponse_NOT_SERVING, 500)
	s.Health().Store(true)
	expect("with both", healthpb.HealthCheckResponse_SERVING, 200)
	if _, body := get(t, s.Addrs().HTTP, "/healthcheck"); body != "OK" {
		t.Errorf("/healthcheck says %q", body)
	}
	s.Health().Store(false)
	expect("when the store is gone", healthpb.HealthCheckResponse_NOT_SERVING, 500)
	s.Health().Store(true)
	s.Health().Drain()
	s.Health().Store(true)
	expect("while draining", healthpb.HealthCheckResponse_NOT_SERVING, 500)
	if _, code := check("other"); code != codes.NotFound {
		t.Errorf("unknown name: %v", code)
	}
}

func TestJSON(t *testing.T) {
	const valid = `{"domain":"web","descriptors":[{"entries":[{"key":"user","value":"a"}]}]}`
	const bad = "Bad Request\n"
	refuse := decide(func(context.Context, *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
		return nil, status.Error(codes.Unavailable, "store unavailable")
	})
	broken := decide(func(context.Context, *rls.RateLimitRequest) (*rls.RateLimitResponse, error) { panic("broken") })
	tests := []struct {
		name    string
		service decide
		method  string
		body    string
		status  int
		holds   string
	}{
		{"allowed", answer(rls.RateLimitResponse_OK), "POST", valid, 200, `"OK"`},
		{"denied", answer(rls.RateLimitResponse_OVER_LIMIT), "POST", valid, 429, `"OVER_LIMIT"`},
		{"undecided", answer(rls.RateLimitResponse_UNKNOWN), "POST", valid, 500, ""},
		{"any method", answer(rls.RateLimitResponse_OK), "GET", valid, 200, `"OK"`},
		{"not JSON", answer(rls.RateLimitResponse_OK), "POST", "domain: web", 400, bad},
		{"empty", answer(rls.RateLimitResponse_OK), "POST", "", 400, bad},
		{"unknown field", answer(rls.RateLimitResponse_OK), "POST", `{"domian":"web"}`, 400, bad},
		{"too large", answer(rls.RateLimitResponse_OK), "POST", `{"domain":"` + strings.Repeat("a", 64<<10) + `"}`, 400, bad},
		{"as large as may be", answer(rls.RateLimitResponse_OK), "POST", `{"domain":"` + strings.Repeat("a", 64<<10-13) + `"}`, 200, ""},
		{"error", refuse, "POST", valid, 400, bad},
		{"panic", broken, "POST", valid, 400, bad},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := config()
			cfg.Service = tt.service
			s := start(t, cfg)
			got, body := request(t, tt.method, s.Addrs().HTTP, "/json", tt.body)
			if got != tt.status || !strings.Contains(body, tt.holds) {
				t.Errorf("got %d %q, want %d %q", got, body, tt.status, tt.holds)
			}
		})
	}
}

func TestPanicIsAnErrorAndCounted(t *testing.T) {
	cfg := config()
	var log bytes.Buffer
	cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	broken := true
	cfg.Service = decide(func(context.Context, *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
		if broken {
			panic("out of cheese")
		}
		return &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK}, nil
	})
	s := start(t, cfg)
	conn := s.dial(t)
	err := call(t, conn)
	if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "cheese") {
		t.Errorf("got %v, want Internal without details", err)
	}
	broken = false
	if err := call(t, conn); err != nil {
		t.Errorf("next call: %v", err)
	}
	_, stats := get(t, s.Addrs().Debug, "/stats")
	for _, want := range []string{"rls_panics_total 1\n", `rls_requests_total{code="Internal"} 1`, `rls_requests_total{code="OK"} 1`} {
		if !strings.Contains(stats, want) {
			t.Errorf("/stats lacks %s", want)
		}
	}
	s.stop(t)
	if !strings.Contains(log.String(), "out of cheese") || !strings.Contains(log.String(), "server_test.go") {
		t.Errorf("the log lacks the panic and its stack:\n%s", log.String())
	}
}

func TestReflectionAndChannelzAreOptIn(t *testing.T) {
	for _, on := range []bool{false, true} {
		cfg := config()
		cfg.GRPC.Reflection, cfg.GRPC.Channelz = on, on
		conn := start(t, cfg).dial(t)
		for _, method := range []string{
			"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
			"/grpc.channelz.v1.Channelz/GetServers",
		} {
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			// An empty message suits both: to reflection it is one that it
			// answers with an error inside.
			stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
			if err != nil {
				t.Fatal(err)
			}
			_ = stream.SendMsg(&healthpb.HealthCheckRequest{})
			_ = stream.CloseSend()
			err = stream.RecvMsg(&healthpb.HealthCheckRequest{})
			if served := status.Code(err) != codes.Unimplemented; served != on {
				t.Errorf("on is %v: %s: %v", on, method, err)
			}
		}
	}
}

func TestDebugPages(t *testing.T) {
	s := start(t, config())
	for path, want := range map[string]string{
		"/":                               "/rlconfig: the rules in force\n",
		"/rlconfig":                       "web.user: the rules\n",
		"/stats":                          "rls_panics_total 0\n",
		"/debug/pprof/":                   "goroutine",
		"/debug/pprof/heap":               "",
		"/debug/pprof/symbol":             "num_symbols",
		"/debug/pprof/trace?seconds=0.01": "",
	} {
		if code, body := get(t, s.Addrs().Debug, path); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %.200q, want %q", path, code, body, want)
		}
	}
	// Flags may hold passwords.
	for _, path := range []string{"/debug/pprof/cmdline", "/debug/vars", "/nothing"} {
		if code, _ := get(t, s.Addrs().Debug, path); code != 404 {
			t.Errorf("%s: %d, want 404", path, code)
		}
	}
	if code, _ := get(t, s.Addrs().HTTP, "/rlconfig"); code != 404 {
		t.Errorf("/rlconfig is public: %d", code)
	}
}

func TestMetricsListenerIsOptIn(t *testing.T) {
	if addr := start(t, config()).Addrs().Metrics; addr != nil {
		t.Errorf("listens on %v", addr)
	}
	cfg := config()
	cfg.Metrics.UsePrometheus, cfg.Metrics.PrometheusPath = true, "/m"
	s := start(t, cfg)
	if code, body := get(t, s.Addrs().Metrics, "/m"); code != 200 || !strings.Contains(body, "go_goroutines") {
		t.Errorf("got %d %.100q", code, body)
	}
}

// Whatever it holds, the path is a path.
func TestMetricsPathIsLiteral(t *testing.T) {
	for path, asked := range map[string]string{"/{m}": "/%7Bm%7D", "/{m": "/%7Bm", "/a b": "/a%20b", "/50%": "/50%25", "/m/": "/m/"} {
		cfg := config()
		cfg.Metrics.UsePrometheus, cfg.Metrics.PrometheusPath = true, path
		s := start(t, cfg)
		if code, _ := get(t, s.Addrs().Metrics, asked); code != 200 {
			t.Errorf("%s: %d", asked, code)
		}
		if code, _ := get(t, s.Addrs().Metrics, "/other"); code != 404 {
			t.Errorf("%s: /other is %d", path, code)
		}
	}
}

func TestLargeMessageIsRefused(t *testing.T) {
	s := start(t, config())
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	_, err := rls.NewRateLimitServiceClient(s.dial(t)).ShouldRateLimit(ctx, &rls.RateLimitRequest{Domain: strings.Repeat("a", 65<<10)})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v", err)
	}
}

func TestPortsInUseAreAllNamed(t *testing.T) {
	// By someone who does not share.
	taken := func() int {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l.Addr().(*net.TCPAddr).Port
	}
	cfg := config()
	cfg.Server.Port, cfg.GRPC.Port = taken(), taken()
	_, err := server.New(cfg)
	if err == nil || !strings.Contains(err.Error(), "gRPC: ") || !strings.Contains(err.Error(), "HTTP: ") {
		t.Errorf("got %v", err)
	}
}

// Ports are shared with other processes, but two listeners of one process
// would get each other's connections.
func TestListenersDoNotShareAPort(t *testing.T) {
	for name, hosts := range map[string][2]string{
		"the same":            {"127.0.0.1", "127.0.0.1"},
		"all and one of them": {"0.0.0.0", "127.0.0.1"},
		"all, twice":          {"::", "0.0.0.0"},
	} {
		cfg := config()
		cfg.GRPC.Host, cfg.Server.Host = hosts[0], hosts[1]
		cfg.GRPC.Port = testenv.FreePort(t)
		cfg.Server.Port = cfg.GRPC.Port
		if _, err := server.New(cfg); err == nil || !strings.Contains(err.Error(), "HTTP: ") || !strings.Contains(err.Error(), "gRPC") {
			t.Errorf("%s: %v", name, err)
		}
	}
	cfg := config()
	cfg.GRPC.Host, cfg.GRPC.Port = "127.0.0.2", testenv.FreePort(t)
	cfg.Server.Port = cfg.GRPC.Port
	start(t, cfg) // the same port of another address
}
