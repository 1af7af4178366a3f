package commands

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/admin/status"
	"example.org/rls/pkg/descriptors/explain"
)

const statusHelp = `It prints what the page shows as Now: the state with a reason for each fault, requests,
denials and errors a second, the latency of the last minute, the servers of the store and
the rules in force.

Exit codes:
  0  the status is printed, whatever it is; with --fleet also if some replicas do not answer` + exitRefused + `
  rls status --token-file ops.token
  rls status --fleet --format json --addr rls.example:6071`

type statusCmd struct{ fleetAsk }

func (c *statusCmd) Run(ctx context.Context, k *kong.Kong) error {
	var now status.Document
	return c.show(ctx, k, "/v1/status", admin.Query{Fleet: c.Fleet}, &now, &now.Replicas, func(s *sheet) {
		colors := terminal.ColorsFor(k.Stdout)
		state := map[string]func(string) string{"ok": colors.Green, "critical": colors.Red}[now.Health.State]
		if state == nil {
			state = colors.Bold
		}
		_, _ = io.WriteString(s, state(terminal.Visible(now.Health.State))+"\n")
		s.addStatus(&now)
	})
}

// addStatus adds all of a status but its state.
func (s *sheet) addStatus(d *status.Document) {
	for _, reason := range d.Health.Reasons {
		s.addf("  %s\n", reason)
	}
	t, row := &d.Traffic, func(name, format string, args ...any) { s.addf(name+"\t"+format+"\n", args...) }
	row("requests", "%.1f/s, %d since %s", t.Requests, t.Total.Requests, d.Started.Local().Format(time.DateTime))
	row("denied", "%.1f/s%s, %d since then", t.Denied, share(t.Denied, t.Requests), t.Total.Denied)
	row("errors", "%.1f/s, %d since then", t.Errors, t.Total.Errors)
	short := func(d explain.Duration) time.Duration { return terminal.Short(time.Duration(d)) }
	of := ""
	if d.Latency.Replica != "" {
		of = ", of " + d.Latency.Replica
	}
	row("latency", "p50 %v, p90 %v, p99 %v%s", short(d.Latency.P50), short(d.Latency.P90), short(d.Latency.P99), of)
	row("store", "%s, %s", d.Store.Backend, d.Store.State)
	for _, server := range d.Store.Servers {
		row("", "%s, %s, breaker %s", server.Address, server.Role, server.Breaker)
	}
	row("rules", "%d, domains %d, from %s %s", d.Rules.Rules, d.Rules.Domains, d.Rules.Source, d.Rules.Path)
	if d.Rules.Loaded != nil {
		row("", "loaded %v ago, hash %s", d.Now.Sub(*d.Rules.Loaded).Round(time.Second), d.Rules.Hash)
	}
	for _, warning := range d.Rules.Warnings {
		row("", "warning: %s", warning)
	}
	for line := range strings.Lines(d.Rules.Refused) {
		row("", "refused: %s", strings.TrimSuffix(line, "\n"))
	}
	if len(d.Replicas) == 0 && d.ReplicaCount > 0 {
		row("replicas", "%d, by the settings of this one", d.ReplicaCount)
	}
	name := "replicas"
	for _, r := range d.Replicas {
		if r.OK {
			row(name, "%s ok, %s, rules %s", r.Address, r.Name, r.Hash)
		} else {
			row(name, "%s: %s", r.Address, r.Error)
		}
		name = ""
	}
	row("process", "version %s, up %v", d.Version, d.Now.Sub(d.Started).Round(time.Second))
}

// share is a part of a whole in percent, in brackets; "" without a whole.
func share[N float64 | uint64](part, whole N) string {
	if whole == 0 {
		return ""
	}
	return fmt.Sprintf(" (%.3g %%)", 100*float64(part)/float64(whole))
}
