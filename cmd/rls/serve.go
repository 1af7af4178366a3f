package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/alecthomas/kong"

	"example.org/rls/pkg/server"
	"example.org/rls/pkg/settings"
)

// stopWithin bounds how long requests in flight may take when the process ends.
const stopWithin = 5 * time.Second

type serveCmd struct {
	settings.Settings
}

func (c *serveCmd) Run(ctx context.Context, k *kong.Kong, decoder *settings.Decoder) error {
	s := &c.Settings
	if err := decoder.Check(s); err != nil {
		return fmt.Errorf("wrong settings:\n%w", err)
	}
	log := newLogger(k.Stderr, s.Log)
	slog.SetDefault(log) // for those that are given none
	for _, m := range settings.Misspelt(os.Environ(), k.Model) {
		log.Warn("a variable has no meaning and is ignored", "variable", m.Variable, "meant", m.Meant)
	}
	measure, err := newMetrics(s, log)
	if err != nil {
		return err
	}
	statsd, err := newStatsd(s, measure, log)
	if err != nil {
		return err
	}
	defer statsd.Close()

	store, err := openBackend(s, measure, log)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	tracer, err := newTracer(ctx, s, log)
	if err != nil {
		return err
	}
	defer endTracing(tracer, log)

	limits, err := newService(s, traceStore(tracer, store, s.Backend.BackendType), observers(s, measure, k.Stderr))
	if err != nil {
		return err
	}
	rules, err := newRules(s, limits, measure, log)
	if err != nil {
		return err
	}
	return together(ctx, rules.run, collectRarely, statsd.Run, func(ctx context.Context) error {
		if !rules.mayListen(ctx) {
			return nil
		}
		srv, err := server.New(server.Config{
			Server: s.Server, GRPC: s.GRPC, Metrics: s.Metrics, MaxBytes: s.Request.MaxBytes, StopWithin: stopWithin,
			Service: tracer.Service(limits), Rules: func() string { return limits.Tree().Dump() },
			Measure: measure, Log: log,
		})
		if err != nil {
			return err
		}
		return together(ctx,
			srv.Run,
			func(ctx context.Context) error {
				rules.whenReady(ctx, srv.Health().Rules)
				return nil
			},
			func(ctx context.Context) error {
				var how server.StoreWatch
				if s.Backend.BackendType == "redis" {
					how = server.StoreWatch{Always: s.Redis.HealthCheckActiveConnection, GiveUpAfter: s.Redis.StartupMaxElapsedTime}
				}
				return srv.Health().WatchStore(ctx, store.Ping, how, log)
			},
		)
	})
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
