package server

import (
	"crypto/tls"
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
		TLSConfig:         withHTTP2(h.TLS),
		ReadHeaderTimeout: headerWithin,
		IdleTimeout:       idleFor,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.options.Log.Handler(), slog.LevelDebug),
	}
	if h.Handler != nil {
		server.Handler = s.edge.web(h.Name, s.parting(h.Handler))
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
	server.Handler = http.MaxBytesHandler(s.edge.web(h.Name, s.parting(mux)), int64(s.options.MaxBytes))
	server.ReadTimeout = bodyWithin
	return server
}

// withHTTP2 offers clients HTTP/2 also if the configuration is made anew for each
// connection: net/http adds the name of the protocol to c only.
func withHTTP2(c *tls.Config) *tls.Config {
	if c == nil || c.GetConfigForClient == nil {
		return c
	}
	c = c.Clone()
	each := c.GetConfigForClient
	c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		config, err := each(hello)
		if config != nil {
			config = config.Clone()
			config.NextProtos = []string{"h2", "http/1.1"}
		}
		return config, err
	}
	return c
}

func (w *web) serve() error {
	if w.server.TLSConfig != nil {
		return w.server.ServeTLS(w.listen, "", "")
	}
	return w.server.Serve(w.listen)
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
