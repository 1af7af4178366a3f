package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/cli"
	language "example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/logging"
	"example.org/rls/pkg/reread"
	"example.org/rls/pkg/server"
	"example.org/rls/pkg/service/envoy"
	"example.org/rls/pkg/settings"
)

const serveHelp = `One section of this help: rls serve --help=redis

Exit codes:
  0  the process ended after SIGTERM, SIGINT or SIGHUP; a dry run found no problem
  1  a listener, the store, a certificate or the rules' folder failed, or a dry
     run found a problem
  2  a flag or a setting is wrong

Examples:
  RUNTIME_ROOT=. RUNTIME_APPDIRECTORY=config rls serve
  RUNTIME_ROOT=. RUNTIME_APPDIRECTORY=config rls serve --dry-run
  rls serve --backend-type=redis --redis-socket-type=tcp --redis-url=localhost:6379`

type serveCmd struct {
	settings.Settings

	DryRun bool   `help:"Try the settings, the rules, the certificates and the store, print a line for each, and end without listening."`
	Format string `default:"text" enum:"text,json" help:"How a dry run writes its result: text or json. The log has LOG_FORMAT."`
}

func (c *serveCmd) Run(ctx context.Context, k *kong.Kong, decoder *settings.Decoder) error {
	s := &c.Settings
	if c.Format != "text" && !c.DryRun {
		return cli.UsageError("--format is for --dry-run; LOG_FORMAT=json writes the log in JSON")
	}
	if err := decoder.Check(s); err != nil {
		return cli.UsageError("%w", err)
	}
	log := logging.New(k.Stderr, s.Log.Level, s.Log.Format)
	slog.SetDefault(log) // for packages that are given no logger
	for _, m := range settings.Misspelt(os.Environ(), k.Model) {
		log.Warn("a variable has no meaning and is ignored", "variable", m.Variable, "meant", m.Meant)
	}
	for _, variable := range settings.Unused(s) {
		log.Warn("a variable is ignored because of BACKEND_TYPE", "variable", variable, "backend_type", s.Backend.BackendType)
	}
	if c.DryRun {
		return (&dryRun{Settings: s, out: k.Stdout, json: c.Format == "json", log: log}).run(ctx)
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

	secret, err := keySecret(&s.Backend)
	if err != nil {
		return err
	}
	watch := reread.NewWatcher(log)
	tracer, err := newTracer(ctx, s, log)
	if err != nil {
		return err
	}
	defer endTracing(tracer, log)
	opened := &opening{Settings: s, watch: watch, measure: measure, tracer: tracer, log: log}
	store, err := openStore(opened)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()

	replicas := newReplicas(s, log)
	local, runLocal, err := newLocal(store, replicas, log)
	if err != nil {
		return err
	}
	observing := observers(s, measure, secret, k.Stderr, log)
	shown := newStatus(s, measure, opened.watches, replicas)
	heavy := newTop(s, measure)
	if heavy != nil {
		observing = append(observing, heavy)
	}
	limits, err := newService(s, store, local, secret, observing)
	if err != nil {
		return err
	}
	health := server.NewHealth()
	var garbage collector
	rules, err := newRules(s, limits, health, watch, measure, garbage.rulesLoading, log)
	if err != nil {
		return err
	}
	runStatus := func(context.Context) error { return nil }
	if shown != nil {
		rules.tell(shown)
		runStatus = shown.Run
	}
	adminListeners, err := newAdmin(ctx, s, &adminParts{limits: limits, status: shown, top: heavy}, watch, k.Stderr, log)
	if err != nil {
		return err
	}
	served, err := envoy.New(tracer.Decider(limits), replyOf(&s.Limits))
	if err != nil {
		return err
	}
	options, err := serverOptions(s, &answers{
		limits:  served,
		rules:   func() string { return language.Dump(limits.Tree()) },
		health:  health,
		measure: measure,
		admin:   adminListeners,
	}, watch, log)
	if err != nil {
		return err
	}
	return together(ctx, rules.run, watch.Run, garbage.run, statsd.Run, runLocal, runStatus, func(ctx context.Context) error {
		if !rules.mayListen(ctx) {
			return nil
		}
		srv, err := openServer(s, options)
		if err != nil {
			return err
		}
		return together(ctx, srv.Run, func(ctx context.Context) error {
			return watchStore(ctx, s, health, store.Ping, log)
		})
	})
}

// together runs the parts, each in a goroutine of its own, until all have
// returned. When one of them fails the context of the others ends. It returns
// all their errors.
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
