package process

import (
	"context"
	"path/filepath"
	"time"

	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/admin/events"
	"example.org/rls/pkg/admin/status"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/certs"
	"example.org/rls/pkg/explain"
	"example.org/rls/pkg/logging"
	"example.org/rls/pkg/server"
)

// newAdmin returns the listeners of the admin API: one with tokens, and a Unix socket. Without a
// setting that names them it returns no listener. ctx ends when the process is told to end.
func (p *process) newAdmin(ctx context.Context) (all []server.HTTP, err error) {
	a := &p.Admin
	if !p.adminOn() {
		return nil, nil
	}
	o := admin.Options{
		Limits: p.limits,
		Quotas: p.quotas,
		Status: p.status,
		Events: p.events,
		Rules:  p.rulesInForce,
		Log:    p.log,
		Audit:  logging.New(p.stderr, "info", p.Log.Format),
		Hosts:  a.Hosts(),
		Ending: ctx,
	}
	if p.top != nil {
		o.Top, o.Memories = p.top, append(o.Memories, p.top)
	}
	if p.denials != nil {
		o.Denials, o.Memories = p.denials, append(o.Memories, p.denials)
	}
	if p.fleet, err = p.newFleet(); err != nil {
		return nil, err
	}
	o.Fleet = p.fleet
	if a.TokenFile != "" {
		if o.Tokens, err = admin.OpenTokens(p.watch, a.TokenFile); err != nil {
			return nil, err
		}
	}
	api := admin.New(o)
	if a.TokenFile != "" {
		listen := server.HTTP{Name: "admin", Address: hostPort(a.Host, a.Port), Handler: api.Handler()}
		if a.UseTLS {
			files := tlsOf(p.Settings).admin
			own, err := files.open(p.watch, "admin")
			if err != nil {
				return nil, err
			}
			listen.TLS = own.Server(a.ClientTLSSAN, "h2", "http/1.1")
		} else if !a.Loopback() {
			p.log.Warn("the admin listener has no TLS, so tokens cross the network in clear text", "ADMIN_HOST", a.Host)
		}
		all = append(all, listen)
	}
	if a.UDS != "" {
		all = append(all, server.HTTP{Name: "admin socket", UnixSocket: a.UDS, Handler: api.SocketHandler(a.UDS)})
	}
	return all, nil
}

// openEvents begins to note what happens to the process.
func (p *process) openEvents(context.Context) error {
	p.events = events.New(p.measure.ByPolicy)
	release, _ := Build()
	p.events.Started(release, p.Backend.BackendType)
	p.health.Drains = p.events.Drains
	p.watch.Changed = func(name string, value any) {
		if m, is := value.(*certs.Material); !is {
			return
		} else if leaf := m.Leaf(); leaf != nil {
			p.events.Renewed(name, leaf.Subject.String(), leaf.NotAfter)
		} else {
			p.events.Renewed(name, "", time.Time{})
		}
	}
	return nil
}

// newFleet returns the other replicas, nil if the settings name none.
func (p *process) newFleet() (*admin.Fleet, error) {
	a := &p.Admin
	o := admin.FleetOptions{Listed: a.Replicas(), Host: a.Host, Port: a.Port, Log: p.log}
	if len(o.Listed) == 0 {
		return nil, nil
	}
	if files := tlsOf(p.Settings).fleet; files.used {
		own, err := files.open(p.watch, "admin fleet")
		if err != nil {
			return nil, err
		}
		o.TLS = own.Peer()
	}
	return admin.NewFleet(o)
}

// newStatus returns the part of the admin API that tells how the process is doing, nil if
// the API is off. Each server of the store has a breaker.
func (p *process) newStatus() *status.Status {
	if !p.adminOn() {
		return nil
	}
	release, _ := Build()
	facts := status.Document{
		Version: release, Store: status.Store{Backend: p.Backend.BackendType},
		ShadowMode: p.Limits.ShadowMode, Fleet: len(p.Admin.Replicas()) > 0,
		Rules: status.InForce{
			Source: "file",
			Path:   filepath.Join(p.Rules.RuntimeRoot, p.Rules.RuntimeSubdirectory, p.Rules.RuntimeAppdirectory),
		},
	}
	if p.Rules.OverXDS() {
		facts.Rules.Source, facts.Rules.Path = "xds", p.XDS.ServerURL
	}
	o := status.Options{Counts: p.measure, Facts: facts}
	if backendOf(p.Settings).shared {
		o.Servers = func() []status.Server { return storeServers(p.watches) }
	}
	if p.replicas != nil && !p.Store.ReplicasUnknown() {
		o.Replicas = p.replicas.Count
	}
	return status.New(o)
}

func storeServers(breakers []*breaker.Watch) []status.Server {
	conditions := map[breaker.Condition]string{breaker.Closed: "closed", breaker.HalfOpen: "half-open", breaker.Open: "open"}
	var all []status.Server
	for _, watch := range breakers {
		for _, server := range watch.States() {
			all = append(all, status.Server{Address: server.Address, Role: watch.Role, Breaker: conditions[server.Condition]})
		}
	}
	return all
}

// rulesInForce says where the rules in force come from, as explanations show it.
func (p *process) rulesInForce() *explain.Rules {
	in := p.status.InForce()
	if in.Loaded == nil {
		return nil
	}
	return &explain.Rules{Source: in.Source, Path: in.Path, Hash: in.Hash, Loaded: *in.Loaded}
}
