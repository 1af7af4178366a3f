package sources_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/sources"
)

const (
	soon  = 10 * time.Second
	often = 20 * time.Millisecond // the time between two looks
)

// rule is the text of a file with one domain.
func rule(domain string) string {
	return fmt.Sprintf("domain: %s\ndescriptors:\n- key: user\n  rate_limit: {unit: minute, requests_per_unit: 1}\n", domain)
}

// write writes a file in place: it truncates the file first, as a shell does.
func write(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(content), 0o644))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// link points name to target. It replaces an older link in one step, as
// Kubernetes does.
func link(t *testing.T, target, name string) {
	t.Helper()
	must(t, os.Symlink(target, name+"_tmp"))
	must(t, os.Rename(name+"_tmp", name))
}

// observed has the publications of a source, as the user of the source sees them.
type observed struct {
	reload chan struct{} // asks the source for all files
	gone   atomic.Bool
	log    testenv.Log
	mu     sync.Mutex
	seen   []string // domains of each accepted load
	errs   []error  // outcome of each load
}

// logged counts the lines of the log with a message.
func (o *observed) logged(message string) int { return len(o.log.With(message)) }

// run runs a source until the test ends.
func run(t *testing.T, f *sources.Files) *observed {
	t.Helper()
	o := &observed{}
	f.Log = slog.New(slog.NewTextHandler(&o.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	f.Gone = o.gone.Store
	f.Every = often
	rules := &sources.Rules{
		Loaded: func(l sources.Load) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.errs = append(o.errs, l.Err)
			if l.Tree == nil {
				return
			}
			var names []string
			for _, d := range l.Tree.Domains() {
				names = append(names, d.Name)
			}
			o.seen = append(o.seen, strings.Join(names, " "))
		},
		Log: f.Log,
	}
	o.reload = make(chan struct{})
	f.Reload = o.reload
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- f.Run(ctx, rules.Publish) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	testenv.Eventually(t, soon, func() bool { return o.loads() > 0 }, "first load")
	return o
}

func (o *observed) loads() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.errs)
}

func (o *observed) lastError() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.errs[len(o.errs)-1]
}

func (o *observed) history() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.seen)
}

// become waits until these domains are in force.
func (o *observed) become(t *testing.T, domains string) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("in force were: %q, outcomes %v", o.history(), o.errs)
		}
	}()
	testenv.Eventually(t, soon, func() bool {
		seen := o.history()
		return len(seen) > 0 && seen[len(seen)-1] == domains
	}, "in force: "+domains)
}

// stay fails if the source loads the test's last change. It touches a file in the
// folder, so that the source reads all files two more times: the second reading
// begins after the change.
func (o *observed) stay(t *testing.T, file string) {
	t.Helper()
	const nothing = "nothing to load"
	loads := o.loads()
	for range 2 {
		lines := o.logged(nothing)
		must(t, os.Chtimes(file, time.Now(), time.Now()))
		testenv.Eventually(t, soon, func() bool { return o.logged(nothing) > lines }, "the folder is read again")
	}
	if o.loads() != loads {
		t.Errorf("loaded again: %q", o.history())
	}
}

// lose waits until the source says whether its files are gone.
func (o *observed) lose(t *testing.T, gone bool) {
	t.Helper()
	testenv.Eventually(t, soon, func() bool { return o.gone.Load() == gone }, fmt.Sprint("files gone: ", gone))
}

// watching returns a source that watches every change below a new root; path is
// the folder with the rules.
func watching(t *testing.T) (f *sources.Files, path string) {
	root := t.TempDir()
	path = filepath.Join(root, "ratelimit", "config")
	must(t, os.MkdirAll(path, 0o755))
	return &sources.Files{Root: root, Below: "ratelimit/config"}, path
}

// inForce runs a source that watches every change, with the domain a of a.yaml in force.
func inForce(t *testing.T) (o *observed, path string) {
	t.Helper()
	f, path := watching(t)
	write(t, path+"/a.yaml", rule("a"))
	o = run(t, f)
	o.become(t, "a")
	return o, path
}
