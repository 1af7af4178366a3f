package sources_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
	"example.org/rls/pkg/sources"
)

// pushed is a source of rules that come from a channel, as those of a control plane do.
type pushed chan []yaml.Text

func (p pushed) Run(ctx context.Context, publish sources.Publish) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case texts := <-p:
			_ = publish(yaml.ReadAll(texts), nil) // as the test sees in the log
		}
	}
}

// laid has the rules and overlays in force.
type laid struct {
	t    *testing.T
	log  testenv.Log
	mu   sync.Mutex
	dump string // of the rules in force, as in /rlconfig
	errs []error
}

// lay runs a source, and the files of overlays at a path, until the test ends.
func lay(t *testing.T, source sources.Source, path string) *laid {
	t.Helper()
	return laying(t, source, &sources.Rules{Overlays: &sources.Files{Root: path}, Again: make(chan struct{}, 1), Repeats: true})
}

// laying is lay for a loader whose other fields are set.
func laying(t *testing.T, source sources.Source, published *sources.Rules) *laid {
	t.Helper()
	l := &laid{t: t}
	published.Log = slog.New(slog.NewTextHandler(&l.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	o := published.Overlays
	o.Every, o.Gone, o.Log = often, func(bool) {}, published.Log
	published.Loaded = func(load sources.Load) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.errs = append(l.errs, load.Err)
		if load.Tree != nil {
			l.dump = rules.Dump(load.Tree)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- published.Run(ctx, source, published.Publish) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l
}

// become waits until all rules in force have such text, and the last load such an error.
func (l *laid) become(text, err string) {
	l.t.Helper()
	ok := func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.errs) == 0 {
			return false
		}
		last := l.errs[len(l.errs)-1]
		return strings.Contains(l.dump, text) && (l.dump == "") == (text == "") && (err == "" && last == nil || err != "" && last != nil && strings.Contains(last.Error(), err))
	}
	defer func() {
		if l.t.Failed() {
			l.t.Logf("in force:\n%s\noutcomes %v", l.dump, l.errs)
		}
	}()
	testenv.Eventually(l.t, soon, ok, text+" "+err)
}

// loads is the number of loads.
func (l *laid) loads() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.errs)
}

const (
	bursts = "overlays: [{domain: '*', set: {strategy: gcra, burst: %}}]"
	five   = "strategy: gcra, burst: 5, overlay: burst, strategy from "
)

// bursting is an overlay that gives all limits a burst.
func bursting(burst string) string { return strings.ReplaceAll(bursts, "%", burst) }

// An overlay is laid over rules that come before and after it. While it is wrong the last good one
// is laid over rules that come.
func TestOverlaysMeetRulesThatComeLater(t *testing.T) {
	file := filepath.Join(t.TempDir(), "overlay.yaml")
	write(t, file, bursting("5"))
	plane := make(pushed)
	l := lay(t, plane, file)
	plane <- []yaml.Text{{Name: "a", Content: []byte(rule("a"))}}
	l.become(five+file+":1", "")
	write(t, file, bursting("6"))
	l.become("burst: 6", "")

	for _, tt := range []struct{ wrong, why string }{
		{"overlays: [", file + ":2:1: not valid YAML"},
		{bursting("0"), file + ":1:55: overlays[0].set.burst: must be at least 1"},
		{"overlays: [{domain: '*', set: {burst: 7}}]", file + ":1:39: overlays[0].set.burst: fixed_window has no burst; token_bucket, gcra and leaky_bucket have (laid over the rule at a:3:3)"},
	} {
		write(t, file, tt.wrong)
		l.become("a.user: unit=MINUTE requests_per_unit=1, shadow_mode: false, quota_mode: false, strategy: gcra, burst: 6,", tt.why)
	}
	plane <- []yaml.Text{{Name: "b", Content: []byte(rule("b"))}}
	l.become("b.user: unit=MINUTE requests_per_unit=1, shadow_mode: false, quota_mode: false, strategy: gcra, burst: 6,", "fixed_window has no burst")
	if len(l.log.With("overlay refused, the last good one stays in force")) == 0 {
		t.Error("the log does not say that the overlay was refused")
	}
	// Wrong rules are refused with the overlay's problem and their own.
	plane <- []yaml.Text{{Name: "c", Content: []byte("domain: ''")}}
	l.become("b.user", "c:1:9: domain: must not be empty")

	plane <- []yaml.Text{{Name: "d", Content: []byte(rule("d"))}}
	write(t, file, bursting("5"))
	l.become(five, "")
	l.become("d.user", "")
	write(t, file, "overlays: []")
	l.become("d.user: unit=MINUTE requests_per_unit=1, shadow_mode: false, quota_mode: false\n", "")
}

func TestWrongOverlayAtTheStartPutsNoRulesInForce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "overlay.yaml")
	write(t, file, bursting("0"))
	plane := make(pushed)
	l := lay(t, plane, file)
	plane <- []yaml.Text{{Name: "a", Content: []byte(rule("a"))}}
	l.become("", "must be at least 1")
	write(t, file, bursting("5"))
	l.become(five, "")
}

// With SkipWrong a rule that cannot have the fields of an overlay is left out, when it comes after
// the overlay or with the first rules, and a changed overlay that a rule cannot have is refused.
func TestRulesThatCannotHaveTheOverlayAreSkipped(t *testing.T) {
	const both = "domain: d\ndescriptors:\n- {key: good, rate_limit: {unit: minute, requests_per_unit: 1}}\n- {key: log, rate_limit: {unit: minute, requests_per_unit: 1, strategy: sliding_log}}\n"
	file := filepath.Join(t.TempDir(), "overlay.yaml")
	write(t, file, bursting("5"))
	plane := make(pushed)
	l := laying(t, plane, &sources.Rules{
		Options:  rules.Options{SkipWrong: true},
		Overlays: &sources.Files{Root: file}, Again: make(chan struct{}, 1), Repeats: true,
	})
	plane <- []yaml.Text{{Name: "a", Content: []byte(both)}}
	l.become("d.good: unit=MINUTE requests_per_unit=1, shadow_mode: false, quota_mode: false, strategy: gcra, burst: 5", "")
	plane <- []yaml.Text{{Name: "b", Content: []byte(rule("b") + "- {key: log, rate_limit: {unit: minute, requests_per_unit: 1, strategy: sliding_log}}\n")}}
	l.become("b.user", "")
	if lines := l.log.With("rules: left out"); len(lines) != 2 || !strings.Contains(lines[1], file+":1:55: overlays[0].set.burst: ") {
		t.Errorf("got %q", lines)
	}
	plane <- []yaml.Text{{Name: "c", Content: []byte(rule("c"))}}
	l.become("c.user", "")
	write(t, file, "overlays: [{domain: '*', set: {burst: 7}}]")
	l.become("c.user: unit=MINUTE requests_per_unit=1, shadow_mode: false, quota_mode: false, strategy: gcra, burst: 5", "laid over the rule at c:3:3")
}

// Of the problems and of the warnings of rules in force, a hundred of each file are logged.
func TestManyProblemsAreLoggedInPart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "overlay.yaml")
	write(t, file, "overlays: []")
	plane := make(pushed)
	l := laying(t, plane, &sources.Rules{
		Options:  rules.Options{SkipWrong: true},
		Overlays: &sources.Files{Root: file}, Again: make(chan struct{}, 1), Repeats: true,
	})
	many := rule("d") + strings.Repeat("- {key: user}\n", 5000) + "- key: odd\n  rate_limit: {unit: day, requests_per_unit: 1, " + strings.Repeat("key: a, ", 500) + "}\n"
	plane <- []yaml.Text{{Name: "a", Content: []byte(many)}}
	l.become("d.odd", "")
	for message, want := range map[string]string{"rules: left out": "4900 more in this file are not shown", "warning=": "more in this file are not shown"} {
		if lines := l.log.With(message); len(lines) != 101 || !strings.Contains(lines[100], want) {
			t.Errorf("%d lines with %q, want 101", len(lines), message)
		}
	}
}

func TestOverlaysOverFilesThatAreReadAgain(t *testing.T) {
	config, folder := t.TempDir(), filepath.Join(t.TempDir(), "overlays")
	write(t, config+"/a.yaml", rule("a"))
	write(t, folder+"/b/late.yaml", bursting("5"))
	again := make(chan struct{}, 1)
	files := &sources.Files{Root: config, Every: often, Again: again, Gone: func(bool) {}, Log: slog.New(slog.DiscardHandler)}
	l := laying(t, files, &sources.Rules{Overlays: &sources.Files{Root: folder}, Again: again})
	l.become(five+folder+"/b/late.yaml:1", "")
	write(t, config+"/a.yaml", rule("b"))
	l.become("b.user: unit=MINUTE requests_per_unit=1, shadow_mode: false, quota_mode: false, strategy: gcra, burst: 5", "")
	if loads := l.loads(); loads != 2 {
		t.Errorf("two sets of rules were loaded %d times", loads)
	}
	write(t, folder+"/a.yaml", bursting("9")) // later ones win
	write(t, folder+"/c.yaml", bursting("8"))
	l.become("burst: 8", "")
	must(t, os.RemoveAll(folder))
	testenv.Eventually(t, soon, func() bool { return len(l.log.With("all files are gone")) > 0 }, "the log says that all files are gone")
	write(t, config+"/a.yaml", rule("c"))
	l.become("c.user: unit=MINUTE requests_per_unit=1, shadow_mode: false, quota_mode: false, strategy: gcra, burst: 8", "")
}

// A ConfigMap is mounted as links through ..data, which is replaced.
func TestOverlayOfAConfigMap(t *testing.T) {
	mount := t.TempDir()
	write(t, mount+"/..1/overlay.yaml", bursting("5"))
	link(t, "..1", mount+"/..data")
	link(t, "..data/overlay.yaml", mount+"/overlay.yaml")
	plane := make(pushed)
	l := lay(t, plane, mount+"/overlay.yaml")
	plane <- []yaml.Text{{Name: "a", Content: []byte(rule("a"))}}
	l.become(five+mount+"/overlay.yaml:1", "")
	write(t, mount+"/..2/overlay.yaml", bursting("6"))
	link(t, "..2", mount+"/..data")
	l.become("burst: 6", "")
}

func TestOverlayThatDoesNotExist(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none.yaml")
	published := &sources.Rules{Overlays: &sources.Files{Root: missing, Every: often, Log: slog.New(slog.DiscardHandler)}}
	err := published.Run(t.Context(), make(pushed), published.Publish)
	if want := "OVERLAY_FILE: " + missing + " does not exist; want a file with overlays, or a folder of such files"; err == nil || err.Error() != want || errors.Is(err, sources.ErrNoFolder) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A table beside the only file of overlays is watched: a wrong row is told and changes nothing.
func TestTableBesideTheFileOfAnOverlay(t *testing.T) {
	folder := t.TempDir()
	file, table := filepath.Join(folder, "overlay.yaml"), filepath.Join(folder, "tenants.csv")
	write(t, file, "overlays: [{domain: '*', set: {table: tenants.csv}}]")
	write(t, table, "value,requests_per_unit\nacme,5\n")
	plane := make(pushed)
	l := lay(t, plane, file)
	plane <- []yaml.Text{{Name: "a", Content: []byte(rule("a"))}}
	l.become(`table: {file: "tenants.csv"`, "")
	write(t, table, "value,requests_per_unit\nacme,five\n")
	l.become(`table: {file: "tenants.csv"`, table+":2:6: ")
	write(t, table, "value,requests_per_unit\nacme,6\n")
	l.become(`table: {file: "tenants.csv"`, "")
}
