package server_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/server"
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

const anyPort = "127.0.0.1:0"

// options have a listener of each kind on free loopback ports and answer OK.
func options() server.Options { return serving(answer(rls.RateLimitResponse_OK)) }

func serving(service decide) server.Options {
	measure, health, log := newMetrics(), server.NewHealth(), slog.New(slog.DiscardHandler)
	return server.Options{
		GRPC: &server.GRPC{
			Address: anyPort, MaxConcurrentStreams: 100,
			Register: func(r grpc.ServiceRegistrar) { rls.RegisterRateLimitServiceServer(r, service) },
		},
		HTTP: []server.HTTP{
			{Name: "HTTP", Address: anyPort, Pages: map[string]http.Handler{
				"/healthcheck": health,
				"/json":        &server.JSON{Service: service, Measure: measure, Log: log},
			}},
			{Name: "debug", Address: anyPort, Pages: server.DebugPages(func() string { return "web.user: the rules\n" }, measure.Handler())},
		},
		MaxBytes:   64 << 10,
		StopWithin: deadline,
		Health:     health,
		Measure:    measure,
		Log:        log,
	}
}

type running struct {
	*server.Server
	health *server.Health
	cancel func() // asks it to stop
	ended  chan error
}

func start(t *testing.T, o server.Options) *running {
	t.Helper()
	s, err := server.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{s, o.Health, cancel, make(chan error, 1)}
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
	target := r.Addr("gRPC").String()
	if r.Addr("gRPC").Network() == "unix" {
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

// get returns the status and the body of a page.
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

// All names of the health service and /healthcheck have one state: that of the
// store, the rules and the drain period together.
func TestOneHealthForAllNames(t *testing.T) {
	s := start(t, options())
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
		if got, _ := get(t, s.Addr("HTTP"), "/healthcheck"); got != http {
			t.Errorf("%s: /healthcheck is %d", when, got)
		}
	}
	healthy := func(when string) {
		t.Helper()
		expect(when, healthpb.HealthCheckResponse_SERVING, 200)
	}
	unhealthy := func(when string) {
		t.Helper()
		expect(when, healthpb.HealthCheckResponse_NOT_SERVING, 500)
	}
	unhealthy("at first")
	s.health.Rules(true)
	unhealthy("without a store")
	s.health.Store(true)
	healthy("with a store and rules")
	if _, body := get(t, s.Addr("HTTP"), "/healthcheck"); body != "OK" {
		t.Errorf("/healthcheck says %q", body)
	}
	s.health.Store(false)
	unhealthy("when the store is gone")
	s.health.Store(true)
	healthy("when the store is back")
	s.health.Rules(false)
	unhealthy("when the rules do not suffice any more")
	s.health.Rules(true)
	healthy("when they do again")
	s.health.Drain()
	s.health.Store(true)
	unhealthy("while draining")
	if _, code := check("other"); code != codes.NotFound {
		t.Errorf("unknown name: %v", code)
	}
}

func TestJSON(t *testing.T) {
	const valid = `{"domain":"web","descriptors":[{"entries":[{"key":"user","value":"a"}]}]}`
	// The first line of the body is that of envoyproxy/ratelimit.
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
		{"not JSON", answer(rls.RateLimitResponse_OK), "POST", "domain: web", 400, bad + "decode request: "},
		{"empty", answer(rls.RateLimitResponse_OK), "POST", "", 400, bad + "decode request: "},
		{"not UTF-8", answer(rls.RateLimitResponse_OK), "POST", "{\"domain\":\"web\xff\"}", 400, bad + "decode request: "},
		{"unknown field", answer(rls.RateLimitResponse_OK), "POST", `{"domian":"web"}`, 400, `unknown field "domian"`},
		{"too large", answer(rls.RateLimitResponse_OK), "POST", `{"domain":"` + strings.Repeat("a", 64<<10) + `"}`, 400, bad + "read request: http: request body too large\n"},
		{"as large as may be", answer(rls.RateLimitResponse_OK), "POST", `{"domain":"` + strings.Repeat("a", 64<<10-13) + `"}`, 200, ""},
		{"error", refuse, "POST", valid, 400, bad + "store unavailable\n"},
		{"panic", broken, "POST", valid, 400, bad + "internal error\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t, serving(tt.service))
			got, body := request(t, tt.method, s.Addr("HTTP"), "/json", tt.body)
			if got != tt.status || !strings.Contains(body, tt.holds) {
				t.Errorf("got %d %q, want %d %q", got, body, tt.status, tt.holds)
			}
		})
	}
}

func TestPanicIsAnErrorAndCounted(t *testing.T) {
	broken := true
	o := serving(decide(func(context.Context, *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
		if broken {
			panic("out of cheese")
		}
		return &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK}, nil
	}))
	log := &testenv.Log{}
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	s := start(t, o)
	conn := s.dial(t)
	err := call(t, conn)
	if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "cheese") {
		t.Errorf("got %v, want Internal without details", err)
	}
	broken = false
	if err := call(t, conn); err != nil {
		t.Errorf("next call: %v", err)
	}
	_, stats := get(t, s.Addr("debug"), "/stats")
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
		o := options()
		o.GRPC.Reflection, o.GRPC.Channelz = on, on
		conn := start(t, o).dial(t)
		for _, method := range []string{
			"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
			"/grpc.channelz.v1.Channelz/GetServers",
		} {
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			// An empty message suits both services: reflection answers it with
			// an error in its message.
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
	s := start(t, options())
	for path, want := range map[string]string{
		"/":                               "/rlconfig: the rules in force\n",
		"/rlconfig":                       "web.user: the rules\n",
		"/stats":                          "rls_panics_total 0\n",
		"/debug/pprof/":                   "goroutine",
		"/debug/pprof/heap":               "",
		"/debug/pprof/symbol":             "num_symbols",
		"/debug/pprof/trace?seconds=0.01": "",
	} {
		if code, body := get(t, s.Addr("debug"), path); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %.200q, want %q", path, code, body, want)
		}
	}
	// Flags, which cmdline and vars show, may hold passwords.
	for _, path := range []string{"/debug/pprof/cmdline", "/debug/vars", "/nothing"} {
		if code, _ := get(t, s.Addr("debug"), path); code != 404 {
			t.Errorf("%s: %d, want 404", path, code)
		}
	}
	if code, _ := get(t, s.Addr("HTTP"), "/rlconfig"); code != 404 {
		t.Errorf("/rlconfig is public: %d", code)
	}
}

// TestLargeMessagesAreRefused: the service is handed messages of up to four times MaxBytes, which it
// denies; gRPC refuses larger ones.
func TestLargeMessagesAreRefused(t *testing.T) {
	s := start(t, options())
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	for size, want := range map[int]codes.Code{255 << 10: codes.OK, 257 << 10: codes.ResourceExhausted} {
		if _, err := rls.NewRateLimitServiceClient(s.dial(t)).ShouldRateLimit(ctx, &rls.RateLimitRequest{Domain: strings.Repeat("a", size)}); status.Code(err) != want {
			t.Errorf("%d: %v", size, err)
		}
	}
}

func TestPortsInUseAreAllNamed(t *testing.T) {
	// A listener without SO_REUSEPORT has the port.
	taken := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l.Addr().String()
	}
	o := options()
	o.SharePorts = true
	o.GRPC.Address, o.HTTP[0].Address = taken(), taken()
	_, err := server.New(o)
	if !errors.Is(err, server.ErrPortInUse) || !strings.Contains(err.Error(), "gRPC: ") || !strings.Contains(err.Error(), "HTTP: ") {
		t.Errorf("got %v", err)
	}
}

// With SO_REUSEPORT the system would let two listeners of one process share a
// port and deal out their connections among them.
func TestListenersDoNotShareAPort(t *testing.T) {
	share := func(one, other string) server.Options {
		o := options()
		port := strconv.Itoa(testenv.FreePort(t))
		o.SharePorts = true
		o.GRPC.Address, o.HTTP[0].Address = net.JoinHostPort(one, port), net.JoinHostPort(other, port)
		return o
	}
	for name, hosts := range map[string][2]string{
		"the same":            {"127.0.0.1", "127.0.0.1"},
		"all and one of them": {"0.0.0.0", "127.0.0.1"},
		"all, twice":          {"::", "0.0.0.0"},
	} {
		_, err := server.New(share(hosts[0], hosts[1]))
		if err == nil || !strings.Contains(err.Error(), "HTTP: ") || !strings.Contains(err.Error(), "gRPC") {
			t.Errorf("%s: %v", name, err)
		}
	}
	start(t, share("127.0.0.2", "127.0.0.1")) // two addresses
}

// A call costs no frames but its own: the server does not ping the client to measure
// the connection.
func TestCallsWithoutPings(t *testing.T) {
	a := abuse(t, start(t, options()))
	for range 3 {
		stream, err := a.open(a.framer)
		if err == nil {
			err = a.framer.WriteData(stream, true, make([]byte, 5)) // an empty message
		}
		if err != nil {
			t.Fatal(err)
		}
		for ended := false; !ended; {
			switch f := a.next().(type) {
			case nil:
				t.Fatal("the connection is closed")
			case *http2.PingFrame:
				t.Fatal("the server sends a PING")
			case *http2.HeadersFrame:
				ended = f.StreamEnded()
			}
		}
	}
}
