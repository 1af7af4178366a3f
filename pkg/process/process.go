// Package process is the process that serves: it opens its parts by the settings, in the order of
// a list, and runs them together until it is to end. A dry run tries the parts. How a command
// reads rules and keys, so that they mean the same to it, is here, too.
package process

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"

	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/admin/events"
	"example.org/rls/pkg/admin/status"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/stack"
	"example.org/rls/pkg/denials"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/metrics/reference"
	"example.org/rls/pkg/replicas"
	"example.org/rls/pkg/reread"
	"example.org/rls/pkg/server"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/rlqs"
	"example.org/rls/pkg/settings"
	"example.org/rls/pkg/sources"
	"example.org/rls/pkg/sources/tables"
	"example.org/rls/pkg/top"
	"example.org/rls/pkg/tracing"
)

// process has the parts of a process that serves. Each method open… makes one of them, and
// needs the parts that the list in serve.go opens before it.
type process struct {
	*settings.Settings
	log    *slog.Logger
	stderr io.Writer

	watch    *reread.Watcher
	measure  *metrics.Metrics
	statsd   *reference.Statsd
	tracer   *tracing.Tracer
	secret   []byte           // of CACHE_KEY_HASH
	watches  []*breaker.Watch // of the stores that were opened
	main     stack.Tier
	second   stack.Tier // for per-second limits; without a store if main has them
	store    backends.Store
	replicas *replicas.Replicas // nil for a store in this process
	status   *status.Status     // nil if the admin API is off
	fleet    *admin.Fleet       // nil if the process asks no other replica
	events   *events.Log
	top      *top.Top         // nil counts no heavy hitters
	denials  *denials.Denials // nil remembers none
	limits   *service.Service
	quotas   *rlqs.Server

	hangups chan os.Signal // SIGHUP
	reload  chan struct{}  // has the files with the rules read again
	overlay chan struct{}  // has the overlays read again
	tables  *tables.Fetcher
	source  sources.Source
	rules   sources.Rules
	tried   chan struct{} // closed when the process need not wait for rules to listen
	garbage garbage

	health     *server.Health
	storeWatch server.StoreWatch // how the health follows the store's
	listen     server.Options
}

// close closes the store, the tracer and the client of statsd. Parts that are not open are
// left out.
func (p *process) close() {
	if p.store != nil {
		_ = p.store.Close()
	}
	if err := p.tracer.Close(); err != nil {
		p.log.Warn("spans are lost", "error", err.Error())
	}
	if p.statsd != nil {
		p.statsd.Close()
	}
}

// adminOn reports whether a setting names tokens or a socket of the admin API.
func (p *process) adminOn() bool { return p.Admin.TokenFile != "" || p.Admin.UDS != "" }

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
