package server_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/server"
)

// The server waits for calls in flight, and ends health watches, which have no
// end of their own.
func TestStop(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	o := serving(decide(func(context.Context, *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
		close(entered)
		<-leave
		return &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK}, nil
	}))
	log := &testenv.Log{}
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	s := start(t, o)
	s.health.Store(true)
	s.health.Rules(true)

	watch, err := healthpb.NewHealthClient(s.dial(t)).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := watch.Recv(); err != nil || resp.Status != healthpb.HealthCheckResponse_SERVING {
		t.Fatal(resp, err)
	}
	called := make(chan error, 1)
	conn := s.dial(t)
	go func() { called <- call(t, conn) }()
	<-entered

	s.cancel()
	testenv.Eventually(t, deadline, func() bool { return !s.health.Serving() }, "unhealthy")
	select {
	case err := <-s.ended:
		t.Fatalf("stopped with a call in flight: %v", err)
	case err := <-called:
		t.Fatalf("the call in flight was cut off: %v", err)
	default:
	}
	close(leave)
	if err := <-called; err != nil {
		t.Errorf("call in flight: %v", err)
	}
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
	if strings.Contains(log.String(), "cut off") {
		t.Error("the health watch held up the end")
	}
}

// During the drain period the server is NOT_SERVING and answers: a balancer
// sends calls until its next health check.
func TestDrain(t *testing.T) {
	t.Parallel()
	o := options()
	o.DrainPeriod = deadline / 2 // ample time for the calls below
	s := start(t, o)
	s.health.Store(true)
	s.health.Rules(true)
	conn := s.dial(t)
	if err := call(t, conn); err != nil {
		t.Fatal(err)
	}
	kept := func() bool { // the HTTP connection may be used again
		resp, err := http.Get("http://" + s.Addr("HTTP").String() + "/json")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return !resp.Close
	}
	if !kept() {
		t.Error("HTTP connections are closed already")
	}
	var watches []healthpb.Health_WatchClient
	for _, name := range []string{"", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"} {
		watch, err := healthpb.NewHealthClient(conn).Watch(t.Context(), &healthpb.HealthCheckRequest{Service: name})
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := watch.Recv(); err != nil || resp.Status != healthpb.HealthCheckResponse_SERVING {
			t.Fatalf("watch of %q: %v %v", name, resp, err)
		}
		watches = append(watches, watch)
	}
	begin := time.Now()
	s.cancel()
	testenv.Eventually(t, deadline, func() bool { return !s.health.Serving() }, "unhealthy")
	if code, _ := get(t, s.Addr("HTTP"), "/healthcheck"); code != 500 {
		t.Errorf("/healthcheck: %d", code)
	}
	if kept() {
		t.Error("HTTP clients are not asked to connect elsewhere")
	}
	for _, watch := range watches {
		if resp, err := watch.Recv(); err != nil || resp.Status != healthpb.HealthCheckResponse_NOT_SERVING {
			t.Errorf("a watch is told %v %v", resp, err)
		}
	}
	for name, conn := range map[string]*grpc.ClientConn{"old connection": conn, "new connection": s.dial(t)} {
		if err := call(t, conn); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took < o.DrainPeriod {
		t.Errorf("ended after %v", took)
	}
}

func TestStopIsBounded(t *testing.T) {
	entered := make(chan struct{})
	o := serving(decide(func(ctx context.Context, _ *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
		close(entered)
		<-ctx.Done() // ends when the connection is closed
		return nil, ctx.Err()
	}))
	o.StopWithin = 50 * time.Millisecond
	s := start(t, o)
	conn := s.dial(t)
	called := make(chan error, 1)
	go func() { called <- call(t, conn) }()
	<-entered
	s.cancel()
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
	if err := <-called; err == nil {
		t.Error("the call that never ends was answered")
	}
}

func TestWatchStore(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	down := status.Error(codes.Unavailable, "down")
	t.Run("waits for the first answer", func(t *testing.T) {
		h := server.NewHealth()
		h.Rules(true)
		left := 2
		err := h.WatchStore(t.Context(), func(context.Context) error {
			if h.Serving() {
				t.Error("serving without a store")
			}
			if left--; left >= 0 {
				return down
			}
			return nil
		}, server.StoreWatch{}, log)
		if err != nil || !h.Serving() {
			t.Errorf("got %v, serving %v", err, h.Serving())
		}
	})
	t.Run("goes on when told", func(t *testing.T) {
		h := server.NewHealth()
		h.Rules(true)
		ctx, cancel := context.WithCancel(t.Context())
		asked, served := 0, false
		err := h.WatchStore(ctx, func(context.Context) error {
			if asked++; asked == 1 {
				return nil
			}
			if asked == 2 {
				served = h.Serving()
				return down
			}
			cancel()
			if h.Serving() {
				t.Error("serving after the store went down")
			}
			return nil
		}, server.StoreWatch{Always: true}, log)
		if err != nil || !served {
			t.Errorf("got %v, served %v", err, served)
		}
	})
	t.Run("gives up", func(t *testing.T) {
		h := server.NewHealth()
		err := h.WatchStore(t.Context(), func(context.Context) error { return down }, server.StoreWatch{GiveUpAfter: time.Millisecond}, log)
		if err == nil || !strings.Contains(err.Error(), "down") {
			t.Errorf("got %v", err)
		}
	})
}
