// Package process is the process that serves: it opens its parts by the settings, in the order of
// a list, and runs them together until it is to end. A dry run opens and tries those of the same
// list that need files or servers.
package process

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"

	"example.org/rls/internal/reread"
	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/admin/events"
	"example.org/rls/pkg/admin/status"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/stack"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/replicas"
	"example.org/rls/pkg/server"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/grants"
	"example.org/rls/pkg/service/operate"
	"example.org/rls/pkg/service/rlqs"
	"example.org/rls/pkg/settings"
	"example.org/rls/pkg/sources"
	"example.org/rls/pkg/sources/tables"
	"example.org/rls/pkg/state"
	"example.org/rls/pkg/tracing"
)

// process has the parts of a process that serves. Each method open… makes one of them, and
// needs the parts that the list opens before it.
type process struct {
	*settings.Settings
	log    *slog.Logger
	stderr io.Writer
	person io.Writer                     // a terminal, which is greeted; nil without one
	runs   []func(context.Context) error // until their context ends
	closes []func()                      // in this order reversed

	watch     *reread.Watcher
	health    *server.Health
	tls       tlsUses
	measure   *metrics.Metrics
	tracer    *tracing.Tracer    // nil makes no spans
	values    *service.ValueHash // of CACHE_KEY_HASH; nil without it
	events    *events.Log
	watches   []*breaker.Watch // of the stores that were opened
	main      stack.Tier
	second    stack.Tier // for per-second limits; without a store if main has them
	store     backends.Store
	kept      []state.Part       // of what STATE_FILE remembers
	shared    []state.SharedPart // of what the store remembers
	replicas  *replicas.Replicas // that share the store
	observers []service.Observer // of decisions
	limits    *service.Service
	quotas    *rlqs.Server
	operator  *operate.Operator
	granted   *grants.Keeper // nil: the store keeps no grants until a time
	status    *status.Status
	api       admin.Options // grows with the parts

	secretOfLink string // to the page

	hangups chan os.Signal // SIGHUP
	reload  chan struct{}  // has the files with the rules read again
	overlay chan struct{}  // has the overlays read again
	tables  *tables.Fetcher
	source  sources.Source
	rules   *sources.Rules
	inForce inForce
	ready   context.Context // ends when the process need not wait for rules to listen
	garbage garbage

	storeWatch server.StoreWatch // how the health follows the store's
	listen     server.Options
}

func newProcess(s *settings.Settings, log *slog.Logger, stderr io.Writer) *process {
	return &process{Settings: s, log: log, stderr: stderr, watch: reread.NewWatcher(log), health: server.NewHealth(), tls: tlsOf(s)}
}

// part is a part of the process.
type part struct {
	open func(context.Context) error
	// name is that of the part in a dry run, which opens it and then tries it; "" of a part that a dry
	// run leaves out. try returns facts for people, or why the part does not hold: often opened, the
	// error of open.
	name string
	try  func(d *dryRun, ctx context.Context, opened error) (found string, err error)
}

// parts are the parts in the order in which they are opened.
func (p *process) parts() []part {
	return []part{
		{p.openSettings, "settings", (*dryRun).trySettings},
		{p.openCertificates, "certificates", (*dryRun).tryCertificates},
		{p.openTracer, "", nil},
		{p.openStore, "store", (*dryRun).tryStore},
		{p.openService, "", nil},
		{p.openRules, "rules", (*dryRun).tryRules},
		{p.openListeners, "", nil},
		{p.openState, "", nil},
	}
}

// run has parts run after all are open.
func (p *process) run(parts ...func(context.Context) error) { p.runs = append(p.runs, parts...) }

// close closes the parts that are open, the last one first.
func (p *process) close() {
	for _, closed := range slices.Backward(p.closes) {
		closed()
	}
}

// adminOn reports whether there is an admin API: a setting names its tokens or its socket, or a link
// opens its page.
func (p *process) adminOn() bool { return p.Admin.TokenFile != "" || p.Admin.UDS != "" || p.linked() }

func hostPort(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// together runs the parts, each in a goroutine of its own, until all have returned. When one of
// them fails the context of the others ends. It returns all their errors.
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
