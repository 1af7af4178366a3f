package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/rls/internal/cli"
	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/stack"
	language "example.org/rls/pkg/descriptors/rules"
)

// afterTimeout is the time that a dry run may take beyond the timeout of the store. A
// management server has as long to send rules.
const afterTimeout = 1500 * time.Millisecond

// dryRun opens and tries the parts of a process before it listens. Its settings are checked. The
// parts are not closed, because the process ends and stores may wait for servers then.
type dryRun struct {
	*process
	say  *slog.Logger // about rules; after the settings the log of the process is silent
	last *string      // error that the source of the rules has logged
	out  io.Writer
	json bool // the result is one document, at the end

	parts []*tried
}

// tried is the result of one part.
type tried struct {
	Part     string   `json:"part"`
	OK       bool     `json:"ok"`
	Found    string   `json:"found,omitempty"`
	Problems []string `json:"problems,omitempty"`
}

// run tries all parts and writes a line for each, or a document. It returns the
// problems of the parts that do not hold.
func (d *dryRun) run(ctx context.Context) error {
	problems := d.try(ctx)
	if !d.json {
		return problems
	}
	return errors.Join(problems, cli.WriteJSON(d.out, map[string]any{"ok": problems == nil, "parts": d.parts}))
}

// try opens the parts in their order, and then tries all at once, so that the rules and the store are
// awaited together.
func (d *dryRun) try(ctx context.Context) error {
	parts := slices.DeleteFunc(d.process.parts(), func(p part) bool { return p.name == "" })
	errs, found := make([]error, len(parts)), make([]string, len(parts))
	for i, part := range parts {
		if part.name != "settings" {
			d.log, d.last = silent()
		}
		if errs[i] = part.open(ctx); d.measure == nil { // which the other parts need
			return d.report(part.name, "", errs[i])
		}
	}
	ctx, cancel := context.WithTimeout(ctx, max(d.main.Timeout, d.second.Timeout)+afterTimeout)
	defer cancel()
	var trying sync.WaitGroup
	for i, part := range parts {
		trying.Go(func() { found[i], errs[i] = part.try(d, ctx, errs[i]) })
	}
	trying.Wait()
	var problems []error
	for _, name := range []string{"settings", "rules", "certificates", "store"} {
		i := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
		problems = append(problems, d.report(name, found[i], errs[i]))
	}
	return errors.Join(problems...)
}

// silent returns a logger that writes nothing, and where the last error stands that it was told.
func silent() (*slog.Logger, *string) {
	last := new(string)
	return slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == "error" {
			*last = a.Value.String()
		}
		return a
	}})), last
}

// report writes the line of a part unless a document is wanted, and returns the
// problems with the name of the part before each.
func (d *dryRun) report(part, found string, err error) error {
	t := &tried{Part: part, OK: err == nil, Found: found}
	d.parts = append(d.parts, t)
	line := strings.TrimSuffix("ok, "+found, ", ")
	if err != nil {
		t.Found, t.Problems = "", strings.Split(err.Error(), "\n")
		line = "failed, 1 problem"
		if n := len(t.Problems); n > 1 {
			line = fmt.Sprintf("failed, %d problems", n)
		}
		err = errors.New(part + ": " + strings.Join(t.Problems, "\n"+part+": "))
	}
	if d.json {
		return err
	}
	_, failed := fmt.Fprintf(d.out, "%s: %s\n", part, line)
	return errors.Join(err, failed)
}

// trySettings returns the error of opening the settings, which has tried everything about them.
func (d *dryRun) trySettings(_ context.Context, opened error) (string, error) { return "", opened }

// tryRules loads the rules that the source publishes first.
func (d *dryRun) tryRules(ctx context.Context, opened error) (found string, err error) {
	if opened != nil {
		return "", opened
	}
	waiting, published := context.WithCancel(ctx)
	defer published()
	tried := false
	failed := d.rules.Run(waiting, d.source, func(files []*language.File, unreadable error) error {
		defer published()
		if tried, err = true, unreadable; err == nil {
			found, err = d.load(d.rules.Laid(files))
		}
		return err
	})
	switch {
	case failed != nil:
		return "", explainNoFolder(failed)
	case tried:
		return found, err
	case *d.last != "":
		return "", fmt.Errorf("%s has sent none: %s", d.XDS.ServerURL, *d.last)
	}
	return "", fmt.Errorf("%s has sent none in time", d.XDS.ServerURL)
}

// load loads rules, logs their warnings, and returns the numbers of files, domains and rules.
func (d *dryRun) load(files []*language.File) (string, error) {
	options := d.rules.Options
	options.Fetched = d.tables.Once
	tree, warnings, err := language.Load(files, options)
	if tree == nil {
		return "", err
	}
	for _, warning := range language.Problems(warnings).Told() {
		d.say.Warn("rules", "warning", warning.Error())
	}
	if d.Server.HealthyWithAtLeastOneConfigLoaded && len(tree.Domains()) == 0 {
		return "", errors.New("there is no domain, and HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED keeps a process without one unhealthy")
	}
	found := fmt.Sprintf("files %d, domains %d, rules %d, warnings %d", len(files), len(tree.Domains()), tree.Rules(), len(warnings))
	var skipped language.Problems
	if errors.As(err, &skipped) { // CONFIG_ON_ERROR=skip
		found += fmt.Sprintf(", problems skipped %d", len(skipped))
		for _, problem := range skipped.Told() {
			d.say.Error("rules: left out", "problem", problem.Error())
		}
	}
	return found, nil
}

// tryCertificates says until when the certificates of all parts that use TLS are valid.
func (d *dryRun) tryCertificates(context.Context, error) (string, error) {
	var found []string
	var errs []error
	for _, use := range d.tls.all() {
		if use.used {
			until, err := use.valid(time.Now())
			found, errs = append(found, use.name+until), append(errs, err)
		}
	}
	if found == nil {
		return "none are used", nil
	}
	return strings.Join(found, ", "), errors.Join(errs...)
}

// valid says when the certificate of this side expires, if it has one.
func (u *tlsUse) valid(now time.Time) (until string, err error) {
	if u.err != nil || u.files.Cert == "" {
		return "", u.err
	}
	switch leaf := u.own.Client().Certificates[0].Leaf; {
	case now.After(leaf.NotAfter):
		return "", fmt.Errorf("%s: %s expired at %s", u.settings, u.files.Cert, leaf.NotAfter.Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		return "", fmt.Errorf("%s: %s is valid only from %s", u.settings, u.files.Cert, leaf.NotBefore.Format(time.RFC3339))
	default:
		return " until " + leaf.NotAfter.Format(time.DateOnly), nil
	}
}

// tryStore has each store answer a ping and look at a cell, which nobody counts in: a
// look needs the rights that a decision needs.
func (d *dryRun) tryStore(ctx context.Context, opened error) (string, error) {
	limit, err := algorithms.New(algorithms.Spec{Strategy: algorithms.TokenBucket, Requests: 1, Window: time.Hour})
	if err = errors.Join(opened, err); err != nil {
		return "", err
	}
	found, tiers := d.Backend.BackendType, []stack.Tier{d.main}
	if d.second.Store != nil {
		found, tiers = found+", main and per-second", append(tiers, d.second)
	}
	var errs []error
	for i, tier := range tiers {
		batch := backends.Batch{Ops: make([]backends.Op, 1), Replies: make([]backends.Reply, 1)}
		limit.Plan(&batch.Ops[0], algorithms.Identity{Prefix: d.Backend.CacheKeyPrefix, ID: []byte("dry-run")}, algorithms.Charge{Now: tier.Store.Now()})
		batch.Ops[0] = batch.Ops[0].Look()
		err := tier.Store.Ping(ctx)
		if err == nil {
			err = tier.Store.Apply(ctx, &batch)
		}
		if err != nil {
			problem := strings.ReplaceAll(err.Error(), "\n", "; ") // of each of several sentinels
			if len(tiers) > 1 {
				problem = [...]string{"main: ", "per-second: "}[i] + problem
			}
			errs = append(errs, errors.New(problem))
		}
	}
	return found, errors.Join(errs...)
}
