package process

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"google.golang.org/grpc"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
	language "example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/server"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/envoy"
	"example.org/rls/pkg/service/grants"
	"example.org/rls/pkg/service/kuadrant"
	"example.org/rls/pkg/service/operate"
	"example.org/rls/pkg/service/rlqs"
	"example.org/rls/pkg/settings"
)

// stopWithin bounds how long requests in flight may take when the process ends.
const stopWithin = 5 * time.Second

// openListeners decides where to listen, with which pages and services.
func (p *process) openListeners(ctx context.Context) error {
	limits := envoy.New(p.tracer.Decider(p.limits), replyOf(&p.Limits), p.Request.Bounds())
	p.listen = server.Options{
		// By default other processes may listen on the same ports if all count in one store.
		SharePorts:  p.Server.ReusePort == "true" || p.Server.ReusePort == "auto" && p.Backend.Shared(),
		MaxBytes:    p.Request.Bytes,
		DrainPeriod: p.Server.DrainPeriod,
		StopWithin:  stopWithin,
		Health:      p.health,
		Measure:     p.measure,
		Log:         p.log,
	}
	o := &p.listen
	if p.Server.UseGRPC {
		o.GRPC = p.grpcOptions(limits)
	}
	if err := p.openAdmin(ctx); err != nil {
		return err
	}
	p.run(p.answer)
	listen := func(name, address string, pages map[string]http.Handler) {
		o.HTTP = append(o.HTTP, server.HTTP{Name: name, Address: address, Pages: pages})
	}
	if p.Server.UseHTTP {
		listen("HTTP", hostPort(p.Server.Host, p.Server.Port), map[string]http.Handler{
			"/healthcheck": p.health,
			"/json":        &server.JSON{Service: limits, Measure: p.measure, Log: p.log},
		})
	}
	if p.Server.UseDebug {
		dump := func() string { return language.Dump(p.limits.Tree()) }
		listen("debug", hostPort(p.Server.DebugHost, p.Server.DebugPort), server.DebugPages(dump, p.measure.Handler()))
	}
	if p.Metrics.UsePrometheus {
		path := url.URL{Path: p.Metrics.PrometheusPath} // escaped, so that a brace is no wildcard of ServeMux
		listen("metrics", p.Metrics.PrometheusAddr, map[string]http.Handler{path.EscapedPath(): p.measure.Handler()})
	}
	return nil
}

// replyOf has the headers, body and metadata that the settings choose.
func replyOf(s *settings.Limits) envoy.Reply {
	reply := s.Reply
	reply.Metadata = s.ResponseDynamicMetadata
	names := envoy.HeaderNames{Limit: s.LimitLimitHeader, Remaining: s.LimitRemainingHeader, Reset: s.LimitResetHeader}
	if s.LimitResponseHeadersEnabled {
		reply.RateLimit = names
	}
	if s.LimitRequestHeadersEnabled {
		reply.Upstream = names
	}
	return reply
}

func (p *process) grpcOptions(limits *envoy.Server) *server.GRPC {
	s, o := &p.GRPC, p.GRPC.GRPC
	o.Address, o.Codec, o.Reflection, o.Channelz = hostPort(s.Host, s.Port), envoy.Codec(), s.Reflection, s.Channelz
	o.Register = func(to grpc.ServiceRegistrar) {
		limits.Register(to)
		p.quotas.Register(to)
		if p.Kuadrant.Enabled {
			kuadrant.Register(to, limits)
		}
	}
	if !s.Channelz {
		server.WithoutChannelz()
	}
	if s.ServerUseTLS {
		o.TLS = p.tls.grpc.own.Server(s.ClientTLSSAN)
	}
	return &o
}

// answer waits until the process may listen, opens all ports, and answers requests until
// ctx ends. Its error says why a port that another process has is not shared with it.
func (p *process) answer(ctx context.Context) error {
	select {
	case <-p.ready.Done():
	case <-ctx.Done():
		return nil
	}
	srv, err := server.New(p.listen)
	if errors.Is(err, server.ErrPortInUse) && !p.listen.SharePorts {
		why := "REUSE_PORT=false"
		if p.Server.ReusePort == "auto" {
			why = "BACKEND_TYPE=" + p.Backend.BackendType + " counts in each process alone (REUSE_PORT=true turns it on)"
		}
		err = fmt.Errorf("%w\nports are not shared between processes: SO_REUSEPORT is off because %s", err, why)
	}
	if err != nil {
		return err
	}
	greet := func(ctx context.Context) error { return p.greet(ctx, srv) }
	return together(ctx, srv.Run, greet, func(ctx context.Context) error {
		return p.health.WatchStore(ctx, p.store.Ping, p.storeWatch, p.log)
	})
}

// openService makes the service and the observers of its decisions.
func (p *process) openService(context.Context) error {
	p.observe()
	p.limits = service.New(p.Service(p.store, p.values, p.observers))
	p.quotas = rlqs.New(rlqs.Options{
		Service: p.limits, Now: p.store.Now, TTL: p.RLQS.AssignmentTTL.Truncate(time.Second), MaxBytes: p.Request.Bytes,
	})
	p.measure.Assigned(p.quotas.Counts, p.quotas.Refused)
	p.openGrants()
	return nil
}

// openGrants has the grants until a time, which a store with notes keeps, act on requests. A change drops
// what this process remembers of the counters.
func (p *process) openGrants() {
	p.operator = operate.New(p.limits, p.Backend.StoredKey)
	notes, has := p.main.Store.(backends.Notes)
	if !has {
		return
	}
	p.granted = grants.NewKeeper(grants.Options{
		Store: notes, Name: p.Backend.CacheKeyPrefix + "rls:grants", Log: p.log,
		Changed: func(now *descriptors.Grants, changed []*descriptors.Grant) {
			p.limits.SetGrants(now)
			p.operator.GrantsChanged(changed)
		},
	})
	p.operator.Keep(p.granted)
	p.keep("grants", p.granted)
	p.run(p.granted.Run)
}
