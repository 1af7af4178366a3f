package main

import (
	"path/filepath"

	"example.org/rls/pkg/admin/status"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/explain"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/service/standin"
	"example.org/rls/pkg/settings"
)

// newStatus returns the part of the admin API that tells how the process is doing, nil if
// the API is off. Each server of the store has a breaker; replicas is nil for a store in
// this process.
func newStatus(s *settings.Settings, measure *metrics.Metrics, breakers []*breaker.Watch, replicas *standin.Replicas) *status.Status {
	if !adminOn(s) {
		return nil
	}
	release, _ := build()
	o := status.Options{
		Counts:     measure,
		Version:    release,
		Backend:    s.Backend.BackendType,
		Source:     "file",
		Path:       filepath.Join(s.Rules.RuntimeRoot, s.Rules.RuntimeSubdirectory, s.Rules.RuntimeAppdirectory),
		ShadowMode: s.Limits.ShadowMode,
	}
	if s.Rules.OverXDS() {
		o.Source, o.Path = "xds", s.XDS.ServerURL
	}
	if backendOf(s).shared {
		o.Servers = func() []status.Server { return storeServers(breakers) }
	}
	if replicas != nil && !s.Store.ReplicasUnknown() {
		o.Replicas = replicas.Count
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
func rulesInForce(s *status.Status) *explain.Rules {
	in := s.InForce()
	if in.Loaded == nil {
		return nil
	}
	return &explain.Rules{Source: in.Source, Path: in.Path, Hash: in.Hash, Loaded: *in.Loaded}
}
