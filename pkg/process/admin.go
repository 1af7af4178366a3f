package process

import (
	"context"
	"path/filepath"
	"time"

	"example.org/rls/internal/cli"
	"example.org/rls/internal/reread"
	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/admin/events"
	"example.org/rls/pkg/admin/status"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/server"
)

// openAdmin opens the admin API: a listener with tokens, and a Unix socket. Without a setting that
// names them it opens neither. ctx ends when the process is told to end.
func (p *process) openAdmin(ctx context.Context) (err error) {
	if !p.adminOn() {
		return nil
	}
	a, o := &p.Admin, &p.api
	o.Limits, o.Quotas, o.Status, o.Events, o.Rules = p.operator, p.quotas, p.status, p.events, p.rulesInForce
	o.Hosts, o.Ending = a.Hosts(), ctx
	o.Log, o.Audit = p.log, newLog(p.stderr, "info", p.Log.Format)
	p.run(p.status.Run)
	if len(a.Replicas()) > 0 {
		replicas := admin.FleetOptions{Listed: a.Replicas(), Host: a.Host, Port: a.Port, Log: p.log}
		if p.tls.fleet.used {
			replicas.TLS = p.tls.fleet.own.Peer()
		}
		if o.Fleet, err = admin.NewFleet(replicas); err != nil {
			return err
		}
		p.run(o.Fleet.Run)
	}
	if p.linked() {
		o.Link, p.secretOfLink = admin.NewLink()
	}
	api := admin.New(*o)
	p.keep("changes", api)
	p.share("events", api)
	if a.TokenFile != "" || p.linked() {
		listen := server.HTTP{Name: onAdmin, Address: hostPort(a.Host, a.Port), Handler: api.Handler()}
		if a.TokenFile == "" {
			listen.Address = hostPort(a.Host, 0) // the link tells the port, and nobody else needs it
		}
		if a.UseTLS {
			listen.TLS = p.tls.admin.own.Server(a.ClientTLSSAN, "h2", "http/1.1")
		} else if !a.Loopback() {
			p.log.Warn("the admin listener has no TLS, so tokens cross the network in clear text", "ADMIN_HOST", a.Host)
		}
		p.listen.HTTP = append(p.listen.HTTP, listen)
	}
	if a.UDS != "" {
		p.listen.HTTP = append(p.listen.HTTP, server.HTTP{Name: "admin socket", UnixSocket: a.UDS, Handler: api.SocketHandler(a.UDS)})
	}
	return nil
}

// onAdmin is the name of the admin listener.
const onAdmin = "admin"

// linked reports whether a link opens the page: a person sees it, and only this machine reaches the
// listener. Replicas of a fleet would not know who comes by the link.
func (p *process) linked() bool {
	return p.person != nil && p.Admin.Loopback() && len(p.Admin.Replicas()) == 0
}

// noteEvents begins to note what happens to the process.
func (p *process) noteEvents() {
	p.events = events.New(p.measure.ByPolicy)
	p.keep("events", p.events)
	release, _ := cli.Build()
	p.events.Started(release, p.Backend.BackendType)
	p.health.Drains = p.events.Drains
	p.watch.Changed = func(name string, value any) {
		if m, is := value.(*reread.Material); !is {
			return
		} else if leaf := m.Leaf(); leaf != nil {
			p.events.Renewed(name, leaf.Subject.String(), leaf.NotAfter)
		} else {
			p.events.Renewed(name, "", time.Time{})
		}
	}
}

// newStatus returns the part of the admin API that tells how the process is doing. Each server of
// the store has a breaker.
func (p *process) newStatus() *status.Status {
	release, _ := cli.Build()
	facts := status.Document{
		Version: release, Installation: p.Installation.Name, Store: status.Store{Backend: p.Backend.BackendType},
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
	if p.granted != nil {
		o.GrantsKnown = p.granted.Known
	}
	if p.Backend.Shared() {
		o.Servers = func() []status.Server { return storeServers(p.watches) }
		if !p.Store.ReplicasUnknown() {
			o.Replicas = p.replicas.Count
		}
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
