// Package server answers on the network: over gRPC for Envoy, and over HTTP for
// probes, operators, Prometheus and clients without gRPC.
//
// It promises that all ports are open when [New] returns; that a panic in a
// handler is an INTERNAL error, logged and counted, and does not end the
// process; that sizes, streams and times of a connection are bounded; and that
// [Server.Run] ends in bounded time, without a lost call of a client that obeys
// GOAWAY. It leaves the gRPC services and the HTTP pages to its [Options]; the
// program tells [Health] about the store and the rules.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// Options are the listeners of a [Server], their handlers and their bounds.
type Options struct {
	// GRPC is the gRPC listener; nil for none.
	GRPC *GRPC
	// HTTP are the HTTP listeners.
	HTTP []HTTP
	// SharePorts sets SO_REUSEPORT on TCP listeners, so that other processes of
	// the same user that set it too can listen on the same ports. The system
	// then deals out new connections among the processes.
	SharePorts bool
	// MaxBytes bounds one request.
	MaxBytes int
	// DrainPeriod is how long a server that is told to end goes on answering
	// while its health is NOT_SERVING.
	DrainPeriod time.Duration
	// StopWithin bounds the time in which calls in flight may finish after the
	// drain period; 0 cuts them off.
	StopWithin time.Duration
	Health     *Health
	Measure    Measure
	Log        *slog.Logger
}

// HTTP is one HTTP listener.
type HTTP struct {
	Name    string // in the log, in errors and for [Server.Addr]
	Address string // host:port; port 0 takes a free one
	// UnixSocket is the path of a Unix socket to listen on instead, which only the
	// user of the process can open.
	UnixSocket string
	// TLS is the server's side of TLS; nil for plain text.
	TLS *tls.Config
	// Pages are the handlers by the patterns of [http.ServeMux].
	Pages map[string]http.Handler
	// Handler answers all requests in place of Pages, over HTTP/1.1 and HTTP/2,
	// without TLS, too. It bounds the size and the time of bodies itself.
	Handler http.Handler
}

// Measure is told what happens at the edge of the process. Its methods are
// called by many goroutines at once and must not block.
type Measure interface {
	// Called reports the duration of a call of a gRPC method, with or without an
	// error.
	Called(method string, took time.Duration)
	// Answered gives the status of one ShouldRateLimit, over gRPC or /json.
	Answered(codes.Code)
	// Panicked says that a handler panicked.
	Panicked()
	// CutOff says that a gRPC connection was closed because too many of its
	// streams were reset.
	CutOff()
}

// nameGRPC is the name of the gRPC listener.
const nameGRPC = "gRPC"

// Server is a set of open listeners with their handlers.
type Server struct {
	options Options
	edge    *edge
	claims  claims
	addrs   map[string]net.Addr // by the names of listeners
	grpc    *grpc.Server        // nil without gRPC
	listen  *handshakes         // of grpc
	web     []*web
}

// web is an open HTTP listener.
type web struct {
	name   string
	listen net.Listener
	server *http.Server
}

// New opens all ports. Its error names every port that cannot be opened.
func New(o Options) (*Server, error) {
	s := &Server{options: o, edge: newEdge(o.Measure, o.Log), addrs: map[string]net.Addr{}}
	var errs []error
	if o.GRPC != nil {
		errs = append(errs, s.openGRPC())
	}
	for _, h := range o.HTTP {
		errs = append(errs, s.openHTTP(h))
	}
	if err := errors.Join(errs...); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *Server) openGRPC() error {
	s.grpc = s.newGRPC()
	l, err := s.listenGRPC()
	if err != nil {
		return fmt.Errorf("%s: %w", nameGRPC, err)
	}
	s.listen = newHandshakes(l)
	return s.opened(nameGRPC, l)
}

func (s *Server) openHTTP(h HTTP) error {
	l, err := s.listenHTTP(h)
	if err != nil {
		return fmt.Errorf("%s: %w", h.Name, err)
	}
	s.web = append(s.web, &web{h.Name, l, s.newHTTP(h)})
	return s.opened(h.Name, l)
}

// opened fails when another listener of this process has the address.
func (s *Server) opened(name string, l net.Listener) error {
	s.addrs[name] = l.Addr()
	return s.claims.add(name, l.Addr())
}

// Addr is where the listener of that name listens ("gRPC", or an [HTTP.Name]);
// nil if there is no such listener.
func (s *Server) Addr(name string) net.Addr { return s.addrs[name] }

// Run answers until ctx ends. Then it makes [Health] NOT_SERVING, goes on
// answering for the drain period, in which balancers notice, lets calls in
// flight finish and returns nil. It returns an error at once when a listener
// fails.
func (s *Server) Run(ctx context.Context) error {
	failed := make(chan error, 1+len(s.web))
	for _, w := range s.web {
		s.options.Log.Info("listening", "for", w.name, "on", w.listen.Addr().String())
		go func() { failed <- wrap(w.name, w.serve()) }()
	}
	if s.grpc != nil {
		s.options.Log.Info("listening", "for", nameGRPC, "on", s.listen.Addr().String())
		go func() { failed <- wrap(nameGRPC, s.grpc.Serve(s.listen)) }()
	}

	var err error
	select {
	case <-ctx.Done():
		s.options.Health.Drain()
		err = s.drain(failed)
	case err = <-failed:
		s.options.Health.Drain()
	}
	s.stop()
	return err
}

// drain waits for the drain period, or for the failure of a listener.
func (s *Server) drain(failed <-chan error) error {
	s.options.Log.Info("draining: NOT_SERVING, but answering", "for", s.options.DrainPeriod)
	select {
	case <-time.After(s.options.DrainPeriod):
		return nil
	case err := <-failed:
		return err
	}
}

// stop lets calls in flight finish, for StopWithin at most. It ends gRPC
// streams, which last as long as their client likes.
func (s *Server) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), s.options.StopWithin)
	defer cancel()
	s.edge.endStreams()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		if s.grpc != nil {
			s.listen.finish(time.Now().Add(s.options.StopWithin / lastHandshakes))
			s.grpc.GracefulStop()
		}
	}()
	cutOff := false
	for _, w := range s.web {
		cutOff = w.server.Shutdown(ctx) != nil || cutOff
	}
	select {
	case <-stopped:
	case <-ctx.Done():
		cutOff = true
	}
	if cutOff {
		s.options.Log.Warn("connections that did not come to an end are cut off", "after", s.options.StopWithin)
	}
	s.close()
}

// close closes all listeners and connections at once.
func (s *Server) close() {
	if s.grpc != nil {
		s.grpc.Stop()
	}
	if s.listen != nil {
		_ = s.listen.Close()
	}
	for _, w := range s.web {
		_ = w.server.Close()
		_ = w.listen.Close()
	}
}

func wrap(name string, err error) error {
	if err == nil || errors.Is(err, http.ErrServerClosed) || errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return fmt.Errorf("%s listener: %w", name, err)
}
