package server

import (
	"log/slog"
	"net/http"
	"time"
)

const (
	headerWithin = 5 * time.Second
	bodyWithin   = 10 * time.Second // with the header
	idleFor      = 2 * time.Minute
	maxHeader    = 64 << 10 // bytes
)

func (s *Server) newHTTP(h HTTP) *http.Server {
	mux := http.NewServeMux()
	for pattern, page := range h.Pages {
		mux.Handle(pattern, page)
	}
	return &http.Server{
		Handler:           http.MaxBytesHandler(s.edge.web(h.Name, s.parting(mux)), int64(s.options.MaxBytes)),
		ReadHeaderTimeout: headerWithin,
		ReadTimeout:       bodyWithin,
		IdleTimeout:       idleFor,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.options.Log.Handler(), slog.LevelDebug),
	}
}

// parting asks clients to connect anew, to another process, while the server
// drains: a request that meets the end of its connection is lost.
func (s *Server) parting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.options.Health.Draining() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
