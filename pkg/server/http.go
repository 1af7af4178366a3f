package server

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/pprof"
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

func (s *Server) newHTTP(h HTTP) *http.Server {
	server := &http.Server{
		TLSConfig:         h.TLS,
		ReadHeaderTimeout: headerWithin,
		IdleTimeout:       idleFor,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.options.Log.Handler(), slog.LevelDebug),
	}
	if h.Handler != nil {
		server.Handler = s.web(h.Name, h.Handler)
		server.DisableGeneralOptionsHandler = true // it answers OPTIONS * in place of Handler
		server.Protocols = new(http.Protocols)
		server.Protocols.SetHTTP1(true)
		server.Protocols.SetHTTP2(true)
		server.Protocols.SetUnencryptedHTTP2(true)
		return server
	}
	mux := http.NewServeMux()
	for pattern, page := range h.Pages {
		mux.Handle(pattern, page)
	}
	server.Handler = http.MaxBytesHandler(s.web(h.Name, mux), int64(s.options.MaxBytes))
	server.ReadTimeout = bodyWithin
	return server
}

// DebugPages are the pages for operators, with a list of them at /. They are
// not for the public: profiles show what the process is doing. The command line
// (pprof's cmdline) is left out because flags may hold passwords.
func DebugPages(rules func() string, stats http.Handler) map[string]http.Handler {
	pages := map[string]http.Handler{}
	var index string
	add := func(path, help string, page http.Handler) {
		index += path + ": " + help + "\n"
		pages[path] = page
	}
	// In alphabetical order, as the list shows them.
	add("/debug/pprof/", "profiles of goroutines, memory and locks", http.HandlerFunc(pprof.Index))
	add("/debug/pprof/profile", "profile of the CPU, ?seconds=30", http.HandlerFunc(pprof.Profile))
	add("/debug/pprof/symbol", "names of functions, for pprof", http.HandlerFunc(pprof.Symbol))
	add("/debug/pprof/trace", "trace of the scheduler, ?seconds=1", http.HandlerFunc(pprof.Trace))
	add("/rlconfig", "the rules in force", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, rules())
	}))
	add("/stats", "the metrics, as Prometheus reads them", stats)
	pages["/{$}"] = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, index) })
	return pages
}

// JSON is the RateLimitService for clients without gRPC: a page that takes a
// RateLimitRequest in protobuf's JSON, by any method. It answers 200 or 429
// with the RateLimitResponse. Every error is 400, as in envoyproxy/ratelimit,
// with the reason in the second line of the body.
type JSON struct {
	Service rls.RateLimitServiceServer
	Measure Measure
	Log     *slog.Logger // is told of panics
}

// ServeHTTP implements [http.Handler].
func (j *JSON) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resp, err := j.decide(r)
	var body []byte
	if err == nil {
		body, err = protojson.Marshal(resp)
	}
	if err != nil {
		http.Error(w, http.StatusText(http.StatusBadRequest)+"\n"+status.Convert(err).Message(), http.StatusBadRequest)
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

func (j *JSON) decide(r *http.Request) (resp *rls.RateLimitResponse, err error) {
	body, err := io.ReadAll(r.Body) // no more than Options.MaxBytes
	if err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	var req rls.RateLimitRequest
	if err := protojson.Unmarshal(body, &req); err != nil {
		return nil, fmt.Errorf("decode request: %w", err)
	}
	defer func() { j.Measure.Answered(status.Code(err)) }()
	defer recovered(j.Measure, j.Log, "/json", &err)
	return j.Service.ShouldRateLimit(r.Context(), &req)
}
