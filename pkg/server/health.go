package server

import (
	"context"
	"fmt"
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

// Draining reports whether the process is about to stop.
func (h *Health) Draining() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.draining
}

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

// StoreWatch says how long WatchStore goes on.
type StoreWatch struct {
	// Always goes on after the first answer and reports failures as well.
	Always bool
	// GiveUpAfter is how long the first answer may take; 0 is for ever.
	GiveUpAfter time.Duration
}

// WatchStore asks the store whether it can decide until it does, or ctx ends,
// and tells the state. Its error is that the store did not answer within
// GiveUpAfter.
func (h *Health) WatchStore(ctx context.Context, ping func(context.Context) error, how StoreWatch, log *slog.Logger) error {
	start, pause := time.Now(), firstPause
	answered := false // ever
	var last error
	for first := true; ; first = false {
		err := h.ask(ctx, ping)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil && (first || last != nil):
			log.Info("store answers")
		case err != nil && (first || last == nil):
			log.Warn("store does not answer, not ready", "error", err.Error())
		}
		last, answered = err, answered || err == nil
		if answered && !how.Always {
			return nil
		}
		if waited := time.Since(start); !answered && how.GiveUpAfter > 0 && waited >= how.GiveUpAfter {
			return fmt.Errorf("store did not answer within %v: %w", waited.Round(time.Millisecond), err)
		}
		if pause = min(2*pause, pingPause); answered {
			pause = pingPause
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

func (h *Health) ask(ctx context.Context, ping func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, pingPause)
	defer cancel()
	err := ping(ctx)
	h.Store(err == nil)
	return err
}
