package server

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"net/url"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
)

const (
	headerWithin = 5 * time.Second
	bodyWithin   = 10 * time.Second // with the header
	idleFor      = 2 * time.Minute
	maxHeader    = 64 << 10 // bytes
)

func (s *Server) newHTTP(name string, handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           http.MaxBytesHandler(s.edge.web(name, s.parting(handler)), int64(s.cfg.MaxBytes)),
		ReadHeaderTimeout: headerWithin,
		ReadTimeout:       bodyWithin,
		IdleTimeout:       idleFor,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
	}
}

// parting asks clients to connect anew, elsewhere, while the server drains: a
// request on a connection that is just being closed is lost.
func (s *Server) parting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.health.Draining() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) mainHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/healthcheck", s.health)
	mux.HandleFunc("/json", s.json)
	return mux
}

// json is the RateLimitService for clients without gRPC: a RateLimitRequest in
// protobuf's JSON, by any method. It answers 200 or 429 with the
// RateLimitResponse, and 400 for every error.
func (s *Server) json(w http.ResponseWriter, r *http.Request) {
	resp, err := s.decideJSON(r)
	var body []byte
	if err == nil {
		body, err = protojson.Marshal(resp)
	}
	if err != nil {
		s.cfg.Log.Warn("/json", "error", err.Error())
		http.Error(w, http.StatusText(http.StatusBadRequest), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch resp.GetOverallCode() {
	case rls.RateLimitResponse_OVER_LIMIT:
		w.WriteHeader(http.StatusTooManyRequests)
	case rls.RateLimitResponse_UNKNOWN:
		w.WriteHeader(http.StatusInternalServerError)
	}
	_, _ = w.Write(body)
}

func (s *Server) decideJSON(r *http.Request) (*rls.RateLimitResponse, error) {
	body, err := io.ReadAll(r.Body) // no more than MaxBytes
	if err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	var req rls.RateLimitRequest
	if err := protojson.Unmarshal(body, &req); err != nil {
		return nil, fmt.Errorf("decode request: %w", err)
	}
	resp, err := s.edge.call(r.Context(), &req, "/json", s.shouldRateLimit)
	s.cfg.Measure.Answered(status.Code(err))
	if err != nil {
		return nil, err
	}
	return resp.(*rls.RateLimitResponse), nil
}

func (s *Server) shouldRateLimit(ctx context.Context, req any) (any, error) {
	return s.cfg.Service.ShouldRateLimit(ctx, req.(*rls.RateLimitRequest))
}

// debugHandler answers operators; not for the public.
func (s *Server) debugHandler() http.Handler {
	mux := http.NewServeMux()
	var index string
	add := func(path, help string, handler http.Handler) {
		index += path + ": " + help + "\n"
		mux.Handle(path, handler)
	}
	// In alphabetical order. The command line (pprof/cmdline) is left out: it
	// may hold passwords.
	add("/debug/pprof/", "profiles of goroutines, memory and locks", http.HandlerFunc(pprof.Index))
	add("/debug/pprof/profile", "profile of the CPU, ?seconds=30", http.HandlerFunc(pprof.Profile))
	add("/debug/pprof/symbol", "names of functions, for pprof", http.HandlerFunc(pprof.Symbol))
	add("/debug/pprof/trace", "trace of the scheduler, ?seconds=1", http.HandlerFunc(pprof.Trace))
	add("/rlconfig", "the rules in force", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, s.cfg.Rules())
	}))
	add("/stats", "the metrics, as Prometheus reads them", s.cfg.Measure.Handler())
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, index) })
	return mux
}

func (s *Server) metricsHandler() http.Handler {
	mux := http.NewServeMux()
	path := url.URL{Path: s.cfg.Metrics.PrometheusPath} // a path, no pattern
	mux.Handle(path.EscapedPath(), s.cfg.Measure.Handler())
	return mux
}
