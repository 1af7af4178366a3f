package main

import (
	"context"
	"log/slog"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/standin"
	"example.org/rls/pkg/settings"
)

// newReplicas returns the number of processes that share the store, nil for a store in
// this process.
func newReplicas(s *settings.Settings, log *slog.Logger) *standin.Replicas {
	if !backendOf(s).shared {
		return nil
	}
	return standin.NewReplicas(max(1, s.Store.Replicas), s.Store.ReplicasDNS, log)
}

// newLocal returns what decides limits with on_error: local while the store is
// away, and the function that looks for other replicas and charges the store when
// it is back, until its context ends. A store in this process is never away, so
// nothing decides in its place; replicas is nil then.
func newLocal(store backends.Store, replicas *standin.Replicas, log *slog.Logger) (service.Local, func(context.Context) error, error) {
	if replicas == nil {
		return nil, func(context.Context) error { return nil }, nil
	}
	local, err := standin.New(standin.Options{Store: store, Replicas: replicas.Count, Log: log})
	if err != nil {
		return nil, nil, err
	}
	return local, func(ctx context.Context) error { return together(ctx, replicas.Run, local.Run) }, nil
}
