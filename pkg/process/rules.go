package process

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"example.org/rls/pkg/admin/events"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/sources"
	"example.org/rls/pkg/sources/tables"
	"example.org/rls/pkg/sources/xds"
)

// openRules lets the process listen at once with rules from files; a management server is waited
// for unless the settings force the start, as in envoyproxy/ratelimit. Without rules in force the
// process is healthy only when the start is forced and no domain is needed.
func (p *process) openRules(context.Context) (err error) {
	p.hangups, p.reload, p.overlay = make(chan os.Signal, 1), make(chan struct{}, 1), make(chan struct{}, 1)
	signal.Notify(p.hangups, syscall.SIGHUP)
	config, err := p.tls.tables.client("", false)
	if err != nil {
		return err
	}
	if p.tables, err = tables.Open(p.Tables.Options, config, p.watch, p.log); err != nil {
		return err
	}
	again := make(chan struct{}, 1)
	p.tables.Changed = func() { sources.Wake(again) }
	if p.source, err = p.newSource(again); err != nil {
		return err
	}
	ready, tried := context.WithCancel(context.Background())
	p.ready = ready
	if p.Rules.ForceStartWithoutInitialConfig {
		p.health.Rules(!p.Server.HealthyWithAtLeastOneConfigLoaded)
	}
	if p.Rules.ForceStartWithoutInitialConfig || !p.Rules.OverXDS() {
		tried()
	}
	p.status = p.newStatus()
	p.keep("limits in force", &p.inForce)
	p.share("limits", &p.inForce)
	skipped := p.measure.Skipped()
	loading := p.RuleSettings()
	p.rules = &sources.Rules{
		Options: loading.Options(), Tables: p.tables, Again: again, Repeats: p.Rules.OverXDS(), Log: p.log,
		Loaded: func(l sources.Load) {
			p.loaded(l)
			if l.Tree != nil {
				skipped(l.Skipped)
			}
			tried()
		},
	}
	p.rules.Options.Fetched, p.rules.Options.SkipWrong = p.tables.Table, p.Rules.ConfigOnError == "skip"
	if p.Rules.OverlayFile != "" {
		p.rules.Overlays = &sources.Files{
			Root:           p.Rules.OverlayFile,
			IgnoreDotFiles: p.Rules.RuntimeIgnoredotfiles,
			Reload:         p.overlay,
			Gone:           func(bool) {},
			Log:            p.log,
		}
	}
	p.run(p.loadRules, p.reloadRules, p.tables.Run)
	return nil
}

// loaded puts the rules of a load in force, and then has the other parts take note of it.
func (p *process) loaded(l sources.Load) {
	var changes []explain.Change
	if l.Tree != nil {
		before := p.limits.Tree()
		p.measure.InForce(l.Tree)
		p.limits.SetTree(l.Tree)
		p.health.Rules(len(l.Tree.Domains()) > 0 || !p.Server.HealthyWithAtLeastOneConfigLoaded)
		changes = p.inForce.changed(before, l.Tree)
	}
	p.measure.Loaded(l.Err)
	p.status.Loaded(l.Tree, l.Warnings, l.Err)
	if tree := p.limits.Tree(); tree != nil && tree.Rules() >= manyRules {
		debug.FreeOSMemory()
	}
	if l.Err != nil {
		p.events.Refused(strings.Split(l.Err.Error(), "\n")) // a problem on each line
		return
	}
	in := p.status.InForce()
	p.events.Loaded(events.InForce{Hash: in.Hash, Domains: in.Domains, Rules: in.Rules, Policies: p.policies(l.Tree)}, changes)
}

// policies counts the rules with limits on the servers of each role of the store, by failure policy. A
// rule whose limits have several policies counts for each.
func (p *process) policies(tree *descriptors.Tree) map[string][descriptors.Policies]int {
	var counts [2][descriptors.Policies]int // on the main and on the per-second servers
	tree.EachWithPools(func(_ *descriptors.Domain, r *descriptors.Rule) {
		var has [2][descriptors.Policies]bool
		for _, l := range r.Limits {
			on := 0
			if p.second.Store != nil && l.Window == time.Second {
				on = 1
			}
			if !has[on][l.OnError] {
				has[on][l.OnError] = true
				counts[on][l.OnError]++
			}
		}
	})
	return map[string][descriptors.Policies]int{"main": counts[0], "per-second": counts[1]}
}

// maxLimits bounds the text of the limits that outlive a process, in bytes. Of more limits hashes are
// remembered, and of more than some 130,000 none.
const maxLimits = 1 << 20

// inForce has STATE_FILE, or the store, remember the limits in force, so that the rules with which a
// process begins are compared with those of the process before.
type inForce struct {
	mu    sync.Mutex
	tree  *descriptors.Tree // in force; nil at the start
	text  []byte            // keptLimits of tree, nil before they are asked for; at the start of the process before
	since time.Time         // when this process put them in force; zero at the start
	loads uint64
}

// keptLimits is limits as the store has them: of two processes those that came into force last.
type keptLimits struct {
	Since  time.Time
	Limits []explain.InForce     `json:",omitempty"`
	Hashes explain.InForceHashes `json:",omitempty"` // of limits too many for their texts
}

// changed returns the limits that differ between two trees. before is nil at the start.
func (f *inForce) changed(before, now *descriptors.Tree) (all []explain.Change) {
	limits := explain.LimitsOf(now)
	f.mu.Lock()
	defer f.mu.Unlock()
	var earlier keptLimits
	switch {
	case before != nil:
		all = append(explain.Changes(explain.LimitsOf(before), limits), explain.TableChanges(before, now)...)
	case json.Unmarshal(f.text, &earlier) != nil: // nothing is known
	case earlier.Hashes != nil:
		all = earlier.Hashes.Changes(limits)
	case earlier.Limits != nil:
		all = explain.Changes(earlier.Limits, limits)
	}
	f.tree, f.text, f.since = now, nil, time.Now().UTC()
	f.loads++
	return all
}

// kept returns the limits in force as a text of at most maxLimits, which it makes once for each tree.
// f.mu is held.
func (f *inForce) kept() []byte {
	if f.text == nil && f.tree != nil {
		limits := explain.LimitsOf(f.tree)
		f.text, _ = json.Marshal(keptLimits{Since: f.since, Limits: limits}) // of texts and numbers
		if len(f.text) > maxLimits {
			f.text, _ = json.Marshal(keptLimits{Since: f.since, Hashes: explain.HashesOf(limits)})
		}
		if len(f.text) > maxLimits {
			f.text, _ = json.Marshal(keptLimits{Since: f.since})
		}
	}
	return f.text
}

// Save writes the limits, as Load reads them.
func (f *inForce) Save(w io.Writer) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := w.Write(f.kept())
	return err
}

// Load sets the limits of an earlier process.
func (f *inForce) Load(r io.Reader) (err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.text, err = io.ReadAll(r)
	return err
}

// Changes counts the loads of rules.
func (f *inForce) Changes() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.loads
}

// Recall sets the limits of an earlier process, unless this one has rules.
func (f *inForce) Recall(text []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.loads == 0 {
		f.text = text
	}
}

// Merge returns the limits in force, or text if those in it came into force later.
func (f *inForce) Merge(text []byte, _ int) []byte {
	var theirs keptLimits
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tree == nil || json.Unmarshal(text, &theirs) == nil && theirs.Since.After(f.since) {
		return text
	}
	return f.kept()
}

// loadRules puts the rules of the source in force, until ctx ends.
func (p *process) loadRules(ctx context.Context) error {
	if err := p.rules.Run(ctx, p.source, p.rules.Publish); err != nil {
		return fmt.Errorf("rules: %w", explainNoFolder(err))
	}
	return nil
}

// reloadRules has the files with the rules and the overlays read again, and tables fetched, after
// each SIGHUP, until ctx ends. A control plane is not asked: it sends each change by itself. The
// lines are warnings, because the log has no less by default, and whoever sent the signal looks for
// an answer.
func (p *process) reloadRules(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.hangups:
		}
		sources.Wake(p.overlay)
		p.tables.Again()
		if !p.Rules.OverXDS() {
			p.log.Warn("SIGHUP: the rules are read again")
			sources.Wake(p.reload)
			continue
		}
		p.log.Warn("SIGHUP: only overlays and tables are read again, because rules come from the control plane, which sends each change", "server", p.XDS.ServerURL)
	}
}

// explainNoFolder adds advice to the error of a source whose folder does not exist.
func explainNoFolder(err error) error {
	if errors.Is(err, sources.ErrNoFolder) {
		return fmt.Errorf("%w: it is the folder RUNTIME_APPDIRECTORY in RUNTIME_SUBDIRECTORY in RUNTIME_ROOT. "+
			"To serve the files in ./config: RUNTIME_ROOT=. RUNTIME_SUBDIRECTORY= RUNTIME_APPDIRECTORY=config rls serve. "+
			"To serve no limits: an empty folder", err)
	}
	return err
}

// newSource returns the source of the rules. Files publish the rules again for each value of again.
func (p *process) newSource(again <-chan struct{}) (sources.Source, error) {
	if p.Rules.OverXDS() {
		return p.xdsSource()
	}
	return &sources.Files{
		Root:           p.Rules.RuntimeRoot,
		Below:          filepath.Join(p.Rules.RuntimeSubdirectory, p.Rules.RuntimeAppdirectory),
		IgnoreDotFiles: p.Rules.RuntimeIgnoredotfiles,
		WatchRoot:      p.Rules.RuntimeWatchRoot,
		Reload:         p.reload,
		Again:          again,
		Gone:           p.measure.SourceGone(),
		Loading:        p.garbage.RulesLoading,
		Log:            p.log,
	}, nil
}

func (p *process) xdsSource() (*xds.Source, error) {
	x, c := &p.XDS, &p.XDSClient
	source := &xds.Source{
		Server:          x.ServerURL,
		NodeID:          x.NodeID,
		NodeMetadata:    x.Metadata(),
		Delta:           p.Rules.ConfigType == "GRPC_XDS_DELTA",
		MaxMessageBytes: c.MaxMsgSizeInBytes,
		Backoff: xds.Backoff{
			Unreachable: x.ServerConnectRetryInterval,
			Ended:       c.BackoffInitialInterval,
			Max:         c.BackoffMaxInterval,
			Factor:      c.BackoffRandomFactor,
			Jitter:      c.BackoffJitter,
		},
		Connected: p.measure.Connected(),
		Log:       p.log,
	}
	var err error
	if source.Headers, err = xdsHeaders(p.watch, x); err != nil {
		return nil, err
	}
	if x.ServerUseTLS {
		config, err := p.tls.xds.client(x.ServerTLSSAN, false)
		if err != nil {
			return nil, err
		}
		source.TLS = func() (*tls.Config, error) { return config(), nil }
	}
	return source, nil
}

// manyRules is the number of rules whose load leaves enough memory unused, 2 KB for each
// rule, to give it back to the system at once. That runs the garbage collector, which callers
// notice on a busy machine.
const manyRules = 30_000
