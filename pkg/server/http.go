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
