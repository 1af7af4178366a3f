// Package server answers on the network: gRPC for Envoy, HTTP for probes and
// for clients without gRPC, a debug listener for operators and one for
// Prometheus.
//
// It promises that all ports are open when [New] returns, that no request ends
// the process (a panic is an INTERNAL error, logged and counted), that sizes,
// streams and times of a connection are bounded, and that [Server.Run] ends
// in bounded time, without a client noticing that it does. It leaves decisions to the RateLimitService that it is
// given, and what is healthy to those who tell [Health].
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"

	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/settings"
)

// Config is what a Server needs to know.
type Config struct {
	Server  settings.Server
	GRPC    settings.GRPC
	Metrics settings.Metrics
	// MaxBytes bounds one request.
	MaxBytes int
	// StopWithin bounds how long calls in flight may take to finish when the
	// server stops; 0 cuts them off.
	StopWithin time.Duration

	Service rls.RateLimitServiceServer
	// Rules is the text of /rlconfig.
	Rules   func() string
	Measure *metrics.Metrics
	Log     *slog.Logger
}

// Server is the open listeners and what answers on them.
type Server struct {
	cfg    Config
	health *Health
	edge   *edge
	grpc   *grpc.Server
	web    []*web
	certs  *certificates // nil without TLS
	addrs  Addrs
	claims claims
	listen *handshakes // of grpc; nil when gRPC is off
}

// web is one HTTP listener.
type web struct {
	name   string
	listen net.Listener
	server *http.Server
}

// Addrs is where the server listens; nil where it does not.
type Addrs struct{ GRPC, HTTP, Debug, Metrics net.Addr }

// New opens all ports. Its error names every one that cannot be opened, and
// what is wrong with the certificates.
func New(cfg Config) (_ *Server, err error) {
	s := &Server{cfg: cfg, health: newHealth(), edge: newEdge(cfg.Measure, cfg.Log)}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	var errs []error
	if cfg.Server.UseGRPC {
		s.grpc, err = s.newGRPC()
		errs = append(errs, err)
		s.listen, err = s.listenGRPC()
		errs = append(errs, err)
		if s.listen != nil {
			s.addrs.GRPC = s.listen.Addr()
			errs = append(errs, s.claims.add("gRPC", s.addrs.GRPC))
		}
	}

	open := func(name, addr string, handler http.Handler, at *net.Addr) {
		l, err := listenTCP(addr)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			return
		}
		*at = l.Addr()
		errs = append(errs, s.claims.add(name, l.Addr()))
		s.web = append(s.web, &web{name, l, s.newHTTP(name, handler)})
	}
	c := cfg.Server
	if c.UseHTTP {
		open("HTTP", address(c.Host, c.Port), s.mainHandler(), &s.addrs.HTTP)
	}
	if c.UseDebug {
		open("debug", address(c.DebugHost, c.DebugPort), s.debugHandler(), &s.addrs.Debug)
	}
	if cfg.Metrics.UsePrometheus {
		open("metrics", cfg.Metrics.PrometheusAddr, s.metricsHandler(), &s.addrs.Metrics)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s, nil
}

// Addrs says where the server listens.
func (s *Server) Addrs() Addrs { return s.addrs }

// Health is the state that the server reports; unhealthy at first.
func (s *Server) Health() *Health { return s.health }

// Run answers until ctx ends. Then it turns unhealthy, goes on answering for
// the drain period, in which balancers notice, lets calls in flight finish and
// returns nil. It returns an error, at once, when a listener fails.
func (s *Server) Run(ctx context.Context) error {
	var following sync.WaitGroup
	defer following.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if s.certs != nil {
		following.Go(func() { s.certs.follow(ctx) })
	}

	failed := make(chan error, 1+len(s.web))
	for _, w := range s.web {
		s.cfg.Log.Info("listening", "for", w.name, "on", w.listen.Addr().String())
		go func() { failed <- wrap(w.name, w.server.Serve(w.listen)) }()
	}
	if s.grpc != nil {
		s.cfg.Log.Info("listening", "for", "gRPC", "on", s.listen.Addr().String())
		go func() { failed <- wrap("gRPC", s.grpc.Serve(s.listen)) }()
	}

	var err error
	select {
	case <-ctx.Done():
		s.health.Drain()
		err = s.drain(failed)
	case err = <-failed:
		s.health.Drain()
	}
	s.stop()
	return err
}

// drain waits for the drain period.
func (s *Server) drain(failed <-chan error) error {
	period := s.cfg.Server.DrainPeriod
	s.cfg.Log.Info("draining: unhealthy, but answering", "for", period)
	select {
	case <-time.After(period):
		return nil
	case err := <-failed:
		return err
	}
}

// stop lets calls in flight finish, for StopWithin at most. Streams have no
// end of their own and are ended.
func (s *Server) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.StopWithin)
	defer cancel()
	s.edge.endStreams()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		if s.grpc != nil {
			s.listen.finish(time.Now().Add(s.cfg.StopWithin / lastHandshakes))
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
		s.cfg.Log.Warn("connections that did not come to an end are cut off", "after", s.cfg.StopWithin)
	}
	s.close()
}

// close releases everything at once.
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
