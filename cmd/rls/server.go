package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"example.org/rls/pkg/certs"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/reread"
	"example.org/rls/pkg/server"
	"example.org/rls/pkg/service/envoy"
	"example.org/rls/pkg/settings"
)

// stopWithin bounds how long requests in flight may take when the process ends.
const stopWithin = 5 * time.Second

// answers has the services and pages that the listeners serve.
type answers struct {
	limits  *envoy.Server
	rules   func() string // the text of /rlconfig
	health  *server.Health
	measure *metrics.Metrics
	admin   []server.HTTP
}

// serverOptions says where to listen, with which pages and services.
func serverOptions(s *settings.Settings, a *answers, files *reread.Watcher, log *slog.Logger) (server.Options, error) {
	o := server.Options{
		SharePorts:  sharePorts(s),
		MaxBytes:    s.Request.MaxBytes,
		DrainPeriod: s.Server.DrainPeriod,
		StopWithin:  stopWithin,
		Health:      a.health,
		Measure:     a.measure,
		Log:         log,
	}
	if s.Server.UseGRPC {
		var err error
		if o.GRPC, err = grpcOptions(&s.GRPC, a, files); err != nil {
			return o, fmt.Errorf("gRPC: %w", err)
		}
	}
	o.HTTP = a.admin
	listen := func(name, address string, pages map[string]http.Handler) {
		o.HTTP = append(o.HTTP, server.HTTP{Name: name, Address: address, Pages: pages})
	}
	if s.Server.UseHTTP {
		listen("HTTP", hostPort(s.Server.Host, s.Server.Port), map[string]http.Handler{
			"/healthcheck": a.health,
			"/json":        &server.JSON{Service: a.limits, Measure: a.measure, Log: log},
		})
	}
	if s.Server.UseDebug {
		listen("debug", hostPort(s.Server.DebugHost, s.Server.DebugPort), server.DebugPages(a.rules, a.measure.Handler()))
	}
	if s.Metrics.UsePrometheus {
		path := url.URL{Path: s.Metrics.PrometheusPath} // escaped, so that a brace is no wildcard of ServeMux
		listen("metrics", s.Metrics.PrometheusAddr, map[string]http.Handler{path.EscapedPath(): a.measure.Handler()})
	}
	return o, nil
}

func grpcOptions(s *settings.GRPC, a *answers, files *reread.Watcher) (*server.GRPC, error) {
	o := &server.GRPC{
		Address:                   hostPort(s.Host, s.Port),
		UnixSocket:                s.UDS,
		Register:                  a.limits.Register,
		Codec:                     envoy.Codec(),
		Reflection:                s.Reflection,
		Channelz:                  s.Channelz,
		MaxConnectionAge:          s.MaxConnectionAge,
		MaxConnectionAgeGrace:     s.MaxConnectionAgeGrace,
		MaxConcurrentStreams:      s.MaxConcurrentStreams,
		MaxCancellationsPerSecond: s.MaxCancellationsPerSecond,
		StreamWorkers:             s.StreamWorkers,
	}
	if !s.Channelz {
		server.WithoutChannelz()
	}
	if s.ServerUseTLS {
		own, err := certs.Open(files, "gRPC", certs.Files{Cert: s.ServerTLSCert, Key: s.ServerTLSKey, CA: s.ClientCA()})
		if err != nil {
			return nil, err
		}
		o.TLS = own.Server(s.ClientTLSSAN)
	}
	return o, nil
}

func hostPort(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// sharePorts says whether other processes may listen on the same ports. By
// default they may where all of them count in one store.
func sharePorts(s *settings.Settings) bool {
	if s.Server.ReusePort == "auto" {
		return backendOf(s).shared
	}
	return s.Server.ReusePort == "true"
}

// openServer opens all ports. Its error says why a port that another process
// has is not shared with it.
func openServer(s *settings.Settings, o server.Options) (*server.Server, error) {
	srv, err := server.New(o)
	if errors.Is(err, server.ErrPortInUse) && !o.SharePorts {
		why := "REUSE_PORT=false"
		if s.Server.ReusePort == "auto" {
			why = "BACKEND_TYPE=" + s.Backend.BackendType + " counts in each process alone (REUSE_PORT=true turns it on)"
		}
		err = fmt.Errorf("%w\nports are not shared between processes: SO_REUSEPORT is off because %s", err, why)
	}
	return srv, err
}

// watchStore tells the health whether the store can decide.
func watchStore(ctx context.Context, s *settings.Settings, health *server.Health, ping func(context.Context) error, log *slog.Logger) error {
	var how server.StoreWatch
	if follow := backendOf(s).health; follow != nil {
		how = follow(s)
	}
	return health.WatchStore(ctx, ping, how, log)
}
