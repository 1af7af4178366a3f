package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/server"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/settings"
	"example.org/rls/pkg/sources"
)

// stopWithin bounds how long requests in flight may take when the process ends.
const stopWithin = 5 * time.Second

type serveCmd struct {
	settings.Settings
}

func (c *serveCmd) Run(k *kong.Kong, decoder *settings.Decoder) error {
	s := &c.Settings
	if err := decoder.Check(s); err != nil {
		return fmt.Errorf("wrong settings:\n%w", err)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer cancel()
	log := newLogger(k.Stderr, s.Log)
	measure := metrics.New()

	store, err := openBackend(s, measure)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()

	limits, err := service.New(serviceConfig(s, store))
	if err != nil {
		return err
	}
	srv, err := server.New(server.Config{
		Server: s.Server, GRPC: s.GRPC, Metrics: s.Metrics, MaxBytes: s.Request.MaxBytes, StopWithin: stopWithin,
		Service: limits, Rules: func() string { return limits.Tree().Dump() },
		Measure: measure, Log: log,
	})
	if err != nil {
		return err
	}

	return together(ctx,
		srv.Run,
		collectRarely,
		func(ctx context.Context) error {
			return rulesSource(s, log).Run(ctx, rules(s, limits, srv.Health(), measure, log).Publish)
		},
		func(ctx context.Context) error {
			always := s.Backend.BackendType == "redis" && s.Redis.HealthCheckActiveConnection
			return srv.Health().WatchStore(ctx, store.Ping, server.StoreWatch{Always: always, GiveUpAfter: s.Redis.StartupMaxElapsedTime}, log)
		},
	)
}

// together runs the parts until ctx ends or one of them fails, and returns
// what failed.
func together(ctx context.Context, parts ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(parts))
	var running sync.WaitGroup
	for i, part := range parts {
		running.Go(func() {
			if errs[i] = part(ctx); errs[i] != nil {
				cancel()
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

func rulesSource(s *settings.Settings, log *slog.Logger) sources.Source {
	return &sources.Files{
		Root:           s.Rules.RuntimeRoot,
		Below:          filepath.Join(s.Rules.RuntimeSubdirectory, s.Rules.RuntimeAppdirectory),
		IgnoreDotFiles: s.Rules.RuntimeIgnoredotfiles,
		WatchRoot:      s.Rules.RuntimeWatchRoot,
		Poll:           s.Rules.RuntimePollInterval,
		Log:            log,
	}
}

// charge is that of domains that do not say. envoyproxy/ratelimit's setting
// spares the other limits of a denied request, as charge: admitted does.
func charge(s *settings.Settings) descriptors.Charge {
	if s.Backend.StopCacheKeyIncrementWhenOverlimit {
		return descriptors.ChargeAdmitted
	}
	return descriptors.ChargeAlways
}

func rules(s *settings.Settings, limits *service.Service, health *server.Health, measure *metrics.Metrics, log *slog.Logger) *sources.Rules {
	return &sources.Rules{
		Options: descriptors.Options{MergeDomains: s.Rules.MergeDomainConfig, Charge: charge(s)},
		Use:     limits.SetTree,
		Loaded: func(err error) {
			measure.Loaded(err)
			// As with the reference, rules that were refused leave the process
			// healthy: its answers say what is wrong.
			if err == nil || !s.Server.HealthyWithAtLeastOneConfigLoaded {
				health.Rules()
			}
		},
		Log: log,
	}
}
