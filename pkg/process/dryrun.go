package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"example.org/rls/internal/cli"
	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/stack"
	language "example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/reread"
)

// afterTimeout is the time that a dry run may take beyond the timeout of the store. A
// management server has as long to send rules.
const afterTimeout = 1500 * time.Millisecond

// dryRun tries the parts of a process before it listens. Its settings are checked.
type dryRun struct {
	*process
	out  io.Writer
	json bool // the result is one document, at the end

	parts []tried
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

func (d *dryRun) try(ctx context.Context) error {
	wrong := d.report("settings", d.trySettings)
	if d.measure == nil { // which the other parts need
		return wrong
	}
	// The stores open without a wait for servers. They are not closed, because the process
	// ends and they may wait for servers then.
	silent := process{Settings: d.Settings, watch: d.watch, measure: d.measure, log: slog.New(slog.DiscardHandler)}
	found, err := "", backendOf(d.Settings).open(&silent)
	d.main, d.second = silent.main, silent.second
	ctx, cancel := context.WithTimeout(ctx, max(d.main.Timeout, d.second.Timeout)+afterTimeout)
	defer cancel()
	var storeTried sync.WaitGroup // while rules are awaited
	storeTried.Go(func() {
		if err == nil {
			found, err = d.tryStore(ctx)
		}
	})
	return errors.Join(
		wrong,
		d.report("rules", func() (string, error) { return d.tryRules(ctx) }),
		d.report("certificates", d.tryCertificates),
		d.report("store", func() (string, error) { storeTried.Wait(); return found, err }),
	)
}

// report tries a part, writes its line unless a document is wanted, and returns the
// problems with the name of the part before each.
func (d *dryRun) report(part string, try func() (found string, err error)) error {
	found, err := try()
	t := tried{Part: part, OK: err == nil}
	line := "ok" + found
	if err == nil {
		t.Found = strings.TrimPrefix(found, ", ")
	} else {
		t.Problems = strings.Split(err.Error(), "\n")
		line = "failed, 1 problem"
		if n := len(t.Problems); n > 1 {
			line = fmt.Sprintf("failed, %d problems", n)
		}
		err = errors.New(part + ": " + strings.Join(t.Problems, "\n"+part+": "))
	}
	d.parts = append(d.parts, t)
	if d.json {
		return err
	}
	_, failed := fmt.Fprintf(d.out, "%s: %s\n", part, line)
	return errors.Join(err, failed)
}

// trySettings reads the files that settings name, and that are neither rules nor for TLS.
func (d *dryRun) trySettings() (_ string, err error) {
	var statsd, tokens error
	if d.measure, err = d.newMetrics(); err == nil {
		_, statsd = d.newStatsd()
	}
	_, secret := KeySecret(&d.Backend)
	if d.Admin.TokenFile != "" {
		_, tokens = admin.OpenTokens(d.watch, d.Admin.TokenFile)
	}
	return "", errors.Join(statsd, err, secret, tokens)
}

// tryRules loads the rules that the source publishes first.
func (d *dryRun) tryRules(ctx context.Context) (string, error) {
	var last string // error that the source logs
	log := slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == "error" {
			last = a.Value.String()
		}
		return a
	}}))
	var err error
	if d.tables, err = openTables(&d.Tables, d.watch, log); err != nil {
		return "", err
	}
	source, err := d.newSource(nil, nil, log)
	if err != nil {
		return "", err
	}
	waiting, published := context.WithCancel(ctx)
	defer published()
	var found string
	tried := false
	publish := func(files []*language.File, unreadable error) error {
		defer published()
		if tried = true; unreadable != nil {
			err = unreadable
		} else {
			found, err = d.load(files)
		}
		return err
	}
	switch failed := source.Run(waiting, publish); {
	case failed != nil:
		return "", explainNoFolder(failed)
	case tried:
		return found, err
	case last != "":
		return "", fmt.Errorf("%s has sent none: %s", d.XDS.ServerURL, last)
	}
	return "", fmt.Errorf("%s has sent none in time", d.XDS.ServerURL)
}

// load loads rules, logs their warnings, and returns the numbers of files, domains and rules.
func (d *dryRun) load(files []*language.File) (string, error) {
	options := serveOptions(d.Settings)
	options.Fetched = d.tables.Once
	tree, warnings, err := language.Load(files, options)
	if tree == nil {
		return "", err
	}
	for _, warning := range language.Problems(warnings).Told() {
		d.log.Warn("rules", "warning", warning.Error())
	}
	if d.Server.HealthyWithAtLeastOneConfigLoaded && len(tree.Domains()) == 0 {
		return "", errors.New("there is no domain, and HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED keeps a process without one unhealthy")
	}
	found := fmt.Sprintf(", files %d, domains %d, rules %d, warnings %d", len(files), len(tree.Domains()), tree.Rules(), len(warnings))
	var skipped language.Problems
	if errors.As(err, &skipped) { // CONFIG_ON_ERROR=skip
		found += fmt.Sprintf(", problems skipped %d", len(skipped))
		for _, problem := range skipped.Told() {
			d.log.Error("rules: left out", "problem", problem.Error())
		}
	}
	return found, nil
}

// tryCertificates reads the certificates, keys and CAs of all parts that use TLS.
func (d *dryRun) tryCertificates() (string, error) {
	var found strings.Builder
	var errs []error
	uses := tlsOf(d.Settings)
	for _, part := range []tlsFiles{uses.grpc, uses.admin, uses.fleet, uses.xds, uses.tables, uses.redis, uses.memcached} {
		if !part.used {
			continue
		}
		until, err := tryFiles(d.watch, part.CertFiles)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", part.settings, err))
		}
		fmt.Fprintf(&found, ", %s%s", part.name, until)
	}
	if found.Len() == 0 {
		return ", none are used", nil
	}
	return found.String(), errors.Join(errs...)
}

// tryFiles reads the files of one side of TLS, and says when its own certificate
// expires if it has one.
func tryFiles(watch *reread.Watcher, files reread.CertFiles) (until string, err error) {
	own, err := reread.OpenCerts(watch, "", files)
	if err != nil || files.Cert == "" {
		return "", err
	}
	now := time.Now()
	switch leaf := own.Client().Certificates[0].Leaf; {
	case now.After(leaf.NotAfter):
		return "", fmt.Errorf("%s expired at %s", files.Cert, leaf.NotAfter.Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		return "", fmt.Errorf("%s is valid only from %s", files.Cert, leaf.NotBefore.Format(time.RFC3339))
	default:
		return " until " + leaf.NotAfter.Format(time.DateOnly), nil
	}
}

// tryStore has each store answer a ping and look at a cell, which nobody counts in: a
// look needs the rights that a decision needs.
func (d *dryRun) tryStore(ctx context.Context) (string, error) {
	limit, err := algorithms.New(algorithms.Spec{Strategy: algorithms.TokenBucket, Requests: 1, Window: time.Hour})
	if err != nil {
		return "", err
	}
	found, tiers := ", "+d.Backend.BackendType, []stack.Tier{d.main}
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
