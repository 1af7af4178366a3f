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
	// TLS is the server's side of TLS; nil for plain text. A configuration that it
	// makes for each connection names the protocols itself.
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
	open    []*listener
	grpc    *grpc.Server // nil without gRPC
	listen  *handshakes  // of grpc

	epoch      time.Time       // time.Since reads one clock of the system, time.Now two
	streams    context.Context // ends when streams have to end
	endStreams context.CancelFunc
}

// listener is an open listener and its handlers.
type listener struct {
	net.Listener
	name  string
	serve func() error
	web   *http.Server // nil for gRPC
}

// New opens all ports. Its error names every port that cannot be opened.
func New(o Options) (*Server, error) {
	s := &Server{options: o, epoch: time.Now()}
	s.streams, s.endStreams = context.WithCancel(context.Background())
	var errs []error
	if o.GRPC != nil {
		errs = append(errs, s.openGRPC(o.GRPC))
	}
	for _, h := range o.HTTP {
		errs = append(errs, s.openHTTP(h))
	}
	if err := errors.Join(errs...); err != nil {
		s.close()
		return nil, err
	}
	for _, l := range s.open {
		o.Log.Info("listening", "for", l.name, "on", l.Addr().String())
	}
	return s, nil
}

func (s *Server) openGRPC(o *GRPC) (err error) {
	s.grpc = s.newGRPC(o)
	var l net.Listener
	if o.UnixSocket != "" {
		l, err = listenUnix(net.ListenConfig{}, o.UnixSocket)
	} else {
		l, err = s.listenTCP(o.Address)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", nameGRPC, err)
	}
	s.listen = newHandshakes(l)
	return s.listening(&listener{s.listen, nameGRPC, func() error { return s.grpc.Serve(s.listen) }, nil})
}

func (s *Server) openHTTP(h HTTP) (err error) {
	var l net.Listener
	if h.UnixSocket != "" {
		l, err = listenPrivate(h.UnixSocket)
	} else {
		l, err = s.listenTCP(h.Address)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", h.Name, err)
	}
	web := s.newHTTP(h)
	serve := func() error { return web.Serve(l) }
	if h.TLS != nil {
		serve = func() error { return web.ServeTLS(l, "", "") }
	}
	return s.listening(&listener{l, h.Name, serve, web})
}

// Addr is where the listener of that name listens ("gRPC", or an [HTTP.Name]);
// nil if there is no such listener.
func (s *Server) Addr(name string) net.Addr {
	for _, l := range s.open {
		if l.name == name {
			return l.Addr()
		}
	}
	return nil
}

// Run answers until ctx ends. Then it makes [Health] NOT_SERVING, goes on
// answering for the drain period, in which balancers notice, lets calls in
// flight finish and returns nil. It returns an error at once when a listener
// fails.
func (s *Server) Run(ctx context.Context) (err error) {
	failed := make(chan error, len(s.open))
	for _, l := range s.open {
		go func() { failed <- wrap(l.name, l.serve()) }()
	}
	select {
	case <-ctx.Done():
		s.options.Health.Drain()
		s.options.Log.Info("draining: NOT_SERVING, but answering", "for", s.options.DrainPeriod)
		select {
		case <-time.After(s.options.DrainPeriod):
		case err = <-failed:
		}
	case err = <-failed:
		s.options.Health.Drain()
	}
	s.stop()
	return err
}

// stop lets calls in flight finish, for StopWithin at most. It ends gRPC
// streams, which last as long as their client likes.
func (s *Server) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), s.options.StopWithin)
	defer cancel()
	s.endStreams()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		if s.grpc != nil {
			s.listen.finish(time.Now().Add(s.options.StopWithin / lastHandshakes))
			s.grpc.GracefulStop()
		}
	}()
	cutOff := false
	for _, l := range s.open {
		if l.web != nil {
			cutOff = l.web.Shutdown(ctx) != nil || cutOff
		}
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
	for _, l := range s.open {
		if l.web != nil {
			_ = l.web.Close()
		}
		_ = l.Close()
	}
}

func wrap(name string, err error) error {
	if err == nil || errors.Is(err, http.ErrServerClosed) || errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return fmt.Errorf("%s listener: %w", name, err)
}
