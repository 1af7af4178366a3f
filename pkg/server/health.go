package server

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// healthNames are the services whose health can be asked; all have one state.
var healthNames = []string{"", "ratelimit", rls.RateLimitService_ServiceDesc.ServiceName}

// Health is whether this process should be sent requests: its store answers,
// rules were loaded or at least tried, and it is not about to stop. It is the
// same over gRPC, by any of its names, and over HTTP.
type Health struct {
	grpc *health.Server

	mu                     sync.Mutex
	store, rules, draining bool
}

func newHealth() *Health {
	h := &Health{grpc: health.NewServer()}
	h.set(func() {})
	return h
}

// Store says whether the store can decide.
func (h *Health) Store(ok bool) { h.set(func() { h.store = ok }) }

// Rules says that rules were loaded, or tried as far as that is required.
func (h *Health) Rules() { h.set(func() { h.rules = true }) }

// Drain makes the process unhealthy for good.
func (h *Health) Drain() { h.set(func() { h.draining = true }) }

// Serving is the state.
func (h *Health) Serving() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.store && h.rules && !h.draining
}

func (h *Health) set(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if h.store && h.rules && !h.draining {
		status = healthpb.HealthCheckResponse_SERVING
	}
	for _, name := range healthNames {
		h.grpc.SetServingStatus(name, status)
	}
}

// ServeHTTP is /healthcheck: 200 with OK, or 500.
func (h *Health) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if !h.Serving() {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	_, _ = w.Write([]byte("OK"))
}

const (
	firstPause = 50 * time.Millisecond
	pingPause  = time.Second // also the longest wait for an answer
)

// WatchStore asks the store until it answers, and on and on if always is set,
// until ctx ends. Answers and failures change the state and are logged when
// they are news.
func (h *Health) WatchStore(ctx context.Context, ping func(context.Context) error, always bool, log *slog.Logger) {
	pause, answered, failed := firstPause, false, false
	for {
		attempt, cancel := context.WithTimeout(ctx, pingPause)
		err := ping(attempt)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			if !answered {
				log.Info("store answers")
			}
			answered, failed, pause = true, false, pingPause
			h.Store(true)
			if !always {
				return
			}
		default:
			if !failed {
				log.Warn("store does not answer, not ready", "error", err.Error())
			}
			answered, failed = false, true
			h.Store(false)
			pause = min(2*pause, pingPause)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}
