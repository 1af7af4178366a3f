package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// Health says whether this process should be sent requests: its store answers,
// its rules can decide, and it is not about to stop. Its answer is the same over
// gRPC, under every name, and over HTTP. It is NOT_SERVING at first.
type Health struct {
	// Drains, if not nil, is called once, when the process begins to drain. It must not call
	// the Health.
	Drains func()

	grpc *health.Server

	mu                sync.Mutex // of changes
	names             []string
	store, rules      bool
	draining, serving atomic.Bool
}

// NewHealth returns the health of a process that has neither a store nor rules.
// It answers to "" and to "ratelimit", the name in envoyproxy/ratelimit; a
// [Server] adds the names of its services.
func NewHealth() *Health {
	h := &Health{grpc: health.NewServer()}
	h.add("", "ratelimit")
	return h
}

// Store says whether the store can decide.
func (h *Health) Store(ok bool) { h.set(func() { h.store = ok }) }

// Rules says whether the rules in force, or their absence, allow to serve.
func (h *Health) Rules(ok bool) { h.set(func() { h.rules = ok }) }

// Drain makes the process NOT_SERVING for good.
func (h *Health) Drain() {
	h.set(func() {
		if !h.draining.Swap(true) && h.Drains != nil {
			h.Drains()
		}
	})
}

// Serving reports whether this process should be sent requests.
func (h *Health) Serving() bool { return h.serving.Load() }

// add gives the health further names for gRPC's health service.
func (h *Health) add(names ...string) { h.set(func() { h.names = append(h.names, names...) }) }

func (h *Health) set(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
	h.serving.Store(h.store && h.rules && !h.draining.Load())
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if h.Serving() {
		status = healthpb.HealthCheckResponse_SERVING
	}
	for _, name := range h.names {
		h.grpc.SetServingStatus(name, status)
	}
}

// ServeHTTP is /healthcheck: 200 with the body OK, or 500.
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

// StoreWatch says how long [Health.WatchStore] goes on.
type StoreWatch struct {
	// Always goes on after the first answer, so that a store that is lost later
	// makes the process NOT_SERVING.
	Always bool
	// GiveUpAfter is how long the first answer may take; 0 is for ever.
	GiveUpAfter time.Duration
}

// WatchStore calls ping, which says whether the store can decide, until it
// does, and calls [Health.Store] with each outcome; it logs the first outcome
// and each change. It returns nil then, or when ctx ends, and an error when the
// store has not answered within GiveUpAfter.
func (h *Health) WatchStore(ctx context.Context, ping func(context.Context) error, how StoreWatch, log *slog.Logger) error {
	start, pause := time.Now(), firstPause
	answered := false // ever
	var last error
	for first := true; ; first = false {
		asking, cancel := context.WithTimeout(ctx, pingPause)
		err := ping(asking)
		cancel()
		h.Store(err == nil)
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
