package process

import (
	"context"
	"io"
	"log/slog"
	"os"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/cli"
	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/settings"
)

const serveHelp = `One section of this help: rls serve --help=redis

SIGHUP has the rules read again. It does not end the process.

Exit codes:
  0  the process ended after SIGTERM or SIGINT; a dry run found no problem
  1  a listener, the store, a certificate or the rules' folder failed, or a dry
     run found a problem
  2  a flag or a setting is wrong

Examples:
  RUNTIME_ROOT=. RUNTIME_APPDIRECTORY=config rls serve
  RUNTIME_ROOT=. RUNTIME_APPDIRECTORY=config rls serve --dry-run
  rls serve --backend-type=redis --redis-url=localhost:6379`

// Serve is the command that serves.
func Serve() cli.Command {
	return cli.Command{
		Name: "serve", Help: "Serve rate limits (the default). Every flag can be set by the environment variable behind it.",
		Detail: serveHelp, Flags: &serve{}, OnSignal: cli.Drains, Tags: []string{`default:"withargs"`}, Gone: settings.GoneFlags(),
	}
}

type serve struct {
	settings.Settings

	DryRun bool   `help:"Try the settings, the rules, the certificates and the store, print a line for each, and end without listening."`
	Format string `default:"text" enum:"text,json" help:"How a dry run writes its result: text or json. The log has LOG_FORMAT."`
}

// Run serves until ctx ends, or tries the parts of the process.
func (c *serve) Run(ctx context.Context, k *kong.Kong, decoder *settings.Decoder) error {
	s := &c.Settings
	if c.Format != "text" && !c.DryRun {
		return cli.UsageError("--format is for --dry-run; LOG_FORMAT=json writes the log in JSON")
	}
	if err := decoder.Check(s); err != nil {
		return cli.UsageError("%w", err)
	}
	log := newLog(k.Stderr, s.Log.Level, s.Log.Format)
	slog.SetDefault(log) // for packages that are given no logger
	for _, m := range settings.Misspelt(os.Environ(), k.Model) {
		why := slog.String("meant", m.Meant)
		if m.Gone != "" {
			why = slog.String("gone", m.Gone)
		}
		log.Warn("a variable has no meaning and is ignored", "variable", m.Variable, why)
	}
	for _, variable := range settings.Unused(s) {
		log.Warn("a variable is ignored because of BACKEND_TYPE", "variable", variable, "backend_type", s.Backend.BackendType)
	}
	p := newProcess(s, log, k.Stderr)
	if c.DryRun {
		return (&dryRun{process: p, say: log, out: k.Stdout, json: c.Format == "json"}).run(ctx)
	}
	for _, w := range []io.Writer{k.Stdout, k.Stderr} {
		if p.person == nil && terminal.Is(w) {
			p.person = w
		}
	}
	defer p.close()
	for _, part := range p.parts() {
		if err := part.open(ctx); err != nil {
			return err
		}
	}
	return together(ctx, p.runs...)
}
