package sources_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/sources"
)

const (
	soon    = 10 * time.Second
	never   = time.Hour              // polls that do not help a test
	settled = 500 * time.Millisecond // a change that counts has been seen by then
)

// rule is a file with one domain.
func rule(domain string) string {
	return fmt.Sprintf("domain: %s\ndescriptors:\n- key: user\n  rate_limit: {unit: minute, requests_per_unit: 1}\n", domain)
}

// write writes a file, in place and not at once, as a shell would.
func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// link points name to target, replacing a link at once, as Kubernetes does.
func link(t *testing.T, target, name string) {
	t.Helper()
	must(t, os.Symlink(target, name+"_tmp"))
	must(t, os.Rename(name+"_tmp", name))
}

// observed is what a source published, as its user sees it.
type observed struct {
	mu    sync.Mutex
	seen  []string // domains of each accepted load
	errs  []error  // outcome of each load
	inUse string
}

// run runs a source until the test ends.
func run(t *testing.T, f *sources.Files) *observed {
	t.Helper()
	f.Log = slog.New(slog.DiscardHandler)
	if f.Poll == 0 {
		f.Poll = never
	}
	o := &observed{}
	rules := &sources.Rules{
		Use: func(tree *descriptors.Tree) {
			var names []string
			for _, d := range tree.Domains() {
				names = append(names, d.Name)
			}
			o.mu.Lock()
			defer o.mu.Unlock()
			o.inUse = strings.Join(names, " ")
			o.seen = append(o.seen, o.inUse)
		},
		Loaded: func(err error) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.errs = append(o.errs, err)
		},
		Log: f.Log,
	}
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
	ok := func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.inUse == domains && len(o.seen) > 0
	}
	defer func() {
		if t.Failed() {
			t.Logf("in force were: %q, outcomes %v", o.history(), o.errs)
		}
	}()
	testenv.Eventually(t, soon, ok, "in force: "+domains)
}

// stay fails if anything is loaded within the time that a change takes.
func (o *observed) stay(t *testing.T) {
	t.Helper()
	before, until := o.loads(), time.Now().Add(settled)
	testenv.Eventually(t, soon, func() bool { return time.Now().After(until) }, "")
	if o.loads() != before {
		t.Errorf("loaded again: %q", o.history())
	}
}

// watching watches every change below a new root; path is the rules' folder.
func watching(t *testing.T) (f *sources.Files, path string) {
	root := t.TempDir()
	path = filepath.Join(root, "ratelimit", "config")
	must(t, os.MkdirAll(path, 0o755))
	return &sources.Files{Root: root, Below: "ratelimit/config"}, path
}

func TestFolderReadsEveryFile(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b.yaml", "a.yaml", "README", "sub/deep/c.yml", ".hidden", ".dir/d.yaml", "..2026_11_21/e.yaml"} {
		write(t, filepath.Join(dir, name), name)
	}
	must(t, os.Symlink(filepath.Join(dir, "sub"), filepath.Join(dir, "sub", "circle")))
	must(t, os.Symlink("gone", filepath.Join(dir, ".#lock")))
	for _, tt := range []struct {
		ignoreDot bool
		want      []string
	}{
		{false, []string{".dir/d.yaml", ".hidden", "README", "a.yaml", "b.yaml", "sub/deep/c.yml"}},
		{true, []string{"README", "a.yaml", "b.yaml", "sub/deep/c.yml"}},
	} {
		files, err := sources.Folder{Path: dir, IgnoreDotFiles: tt.ignoreDot}.Read()
		must(t, err)
		var got []string
		for _, f := range files {
			name, _ := filepath.Rel(dir, f.Name)
			got = append(got, name)
			if string(f.Content) != name {
				t.Errorf("%s holds %q", name, f.Content)
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("ignoring dot files is %v: %s", tt.ignoreDot, diff)
		}
	}
}

func TestFolderThatIsMissingIsEmpty(t *testing.T) {
	files, err := sources.Folder{Path: filepath.Join(t.TempDir(), "none")}.Read()
	if err != nil || len(files) > 0 {
		t.Errorf("got %v, %v", files, err)
	}
}

func TestFileInPlaceOfTheFolder(t *testing.T) {
	f, path := watching(t)
	must(t, os.Remove(path))
	write(t, path, rule("a"))
	o := run(t, f)
	o.become(t, "a")
	write(t, path+"~", rule("b"))
	must(t, os.Rename(path+"~", path))
	o.become(t, "b")
	must(t, os.Remove(path))
	write(t, path+"/a.yaml", rule("c"))
	o.become(t, "c")
}

func TestFolderReportsAllThatItCannotRead(t *testing.T) {
	dir := t.TempDir()
	// Links that lead to themselves cannot be read by anyone, root included.
	must(t, os.Symlink("one", filepath.Join(dir, "one")))
	must(t, os.Symlink("two", filepath.Join(dir, "two")))
	_, err := sources.Folder{Path: dir}.Read()
	if err == nil || !strings.Contains(err.Error(), "/one") || !strings.Contains(err.Error(), "/two") {
		t.Errorf("got %v", err)
	}
}

func TestNoFilesAreValidRules(t *testing.T) {
	f, path := watching(t)
	o := run(t, f)
	o.become(t, "")
	write(t, path+"/a.yaml", rule("a"))
	o.become(t, "a")
	must(t, os.Remove(path+"/a.yaml"))
	o.become(t, "")
}

func TestFolderThatAppearsLater(t *testing.T) {
	f, path := watching(t)
	must(t, os.RemoveAll(filepath.Dir(path)))
	o := run(t, f)
	write(t, path+"/a.yaml", rule("a"))
	o.become(t, "a")
}

func TestChangesAreSeen(t *testing.T) {
	f, path := watching(t)
	write(t, path+"/a.yaml", rule("a"))
	o := run(t, f)
	o.become(t, "a")

	write(t, path+"/sub/b.yaml", rule("b"))
	o.become(t, "a b")
	write(t, path+"/sub/b.yaml", rule("c"))
	o.become(t, "a c")
	must(t, os.Rename(path+"/sub", path+"/other"))
	o.become(t, "a c")
	write(t, path+"/other/b.yaml", rule("d"))
	o.become(t, "a d")
	must(t, os.Chtimes(path+"/a.yaml", time.Now(), time.Now()))
	o.stay(t)
}

func TestBadRulesChangeNothing(t *testing.T) {
	f, path := watching(t)
	write(t, path+"/a.yaml", "domain: a\ndescriptors: [{key: user, rate_limit: {unit: eon, requests_per_unit: x}}]\n")
	o := run(t, f)
	var problems descriptors.Problems
	if err := o.lastError(); !errors.As(err, &problems) || len(problems) != 2 {
		t.Fatalf("got %v, want both problems", err)
	}
	if len(o.history()) > 0 {
		t.Errorf("in force: %q", o.history())
	}
	write(t, path+"/a.yaml", rule("a"))
	o.become(t, "a")
	write(t, path+"/b.yaml", "domain: [")
	testenv.Eventually(t, soon, func() bool { return o.lastError() != nil }, "an error")
	o.become(t, "a")
	must(t, os.Remove(path+"/b.yaml"))
	testenv.Eventually(t, soon, func() bool { return o.lastError() == nil }, "no error any more")
}

// configMap mounts files as Kubernetes does: the names link through ..data,
// which is swapped.
func configMap(t *testing.T, path, version string, files map[string]string) {
	t.Helper()
	dir := filepath.Join(path, "..2026_"+version)
	for name, content := range files {
		write(t, filepath.Join(dir, name), content)
	}
	old, _ := os.Readlink(filepath.Join(path, "..data"))
	link(t, filepath.Base(dir), filepath.Join(path, "..data"))
	for name := range files {
		first, _, _ := strings.Cut(name, "/")
		if _, err := os.Lstat(filepath.Join(path, first)); err != nil {
			must(t, os.Symlink(filepath.Join("..data", first), filepath.Join(path, first)))
		}
	}
	if old != "" {
		must(t, os.RemoveAll(filepath.Join(path, old)))
	}
}

func TestConfigMap(t *testing.T) {
	for _, ignoreDot := range []bool{false, true} {
		t.Run(fmt.Sprint("ignoring dot files ", ignoreDot), func(t *testing.T) {
			f, path := watching(t)
			f.IgnoreDotFiles = ignoreDot
			configMap(t, path, "1", map[string]string{"a.yaml": rule("a"), "more/b.yaml": rule("b")})
			o := run(t, f)
			o.become(t, "a b")
			for i, domain := range []string{"c", "d", "e"} {
				configMap(t, path, fmt.Sprint(2+i), map[string]string{"a.yaml": rule(domain), "more/b.yaml": rule("b")})
				o.become(t, "b "+domain)
			}
			// Never twice, never without.
			want := []string{"a b", "b c", "b d", "b e"}
			if diff := cmp.Diff(want, o.history()); diff != "" || o.lastError() != nil {
				t.Error(diff, o.lastError())
			}
		})
	}
}

func TestEditorsDance(t *testing.T) {
	f, path := watching(t)
	file := path + "/a.yaml"
	write(t, file, rule("a"))
	o := run(t, f)
	o.become(t, "a")
	for _, domain := range []string{"b", "c"} {
		// Away, a new one in two parts, the old one gone.
		must(t, os.Rename(file, file+"~"))
		half := rule(domain)[:20]
		write(t, file, half)
		write(t, file, rule(domain))
		must(t, os.Remove(file+"~"))
		o.become(t, domain)
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, o.history()); diff != "" {
		t.Errorf("something in between was in force: %s", diff)
	}
	if o.loads() != 3 {
		t.Errorf("%d loads, want 3", o.loads())
	}
}

// A folder in which something is always written is loaded all the same.
func TestFolderThatNeverSettles(t *testing.T) {
	f, path := watching(t)
	write(t, path+"/a.yaml", rule("a"))
	o := run(t, f)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-tick.C:
				_ = os.WriteFile(path+"/noise.yaml", fmt.Appendf(nil, "%s# %d\n", rule("noise"), i), 0o644)
			}
		}
	}()
	write(t, path+"/b.yaml", rule("b"))
	o.become(t, "a b noise")
	close(stop)
	<-stopped
}

func TestWatchRootSeesOnlyTheSwap(t *testing.T) {
	dir := t.TempDir()
	for _, version := range []string{"1", "2", "3"} {
		write(t, filepath.Join(dir, version, "sub/config/a.yaml"), rule("v"+version))
	}
	root := filepath.Join(dir, "current")
	link(t, "1", root)
	o := run(t, &sources.Files{Root: root, Below: "sub/config", WatchRoot: true})
	o.become(t, "v1")
	write(t, filepath.Join(dir, "1/sub/config/a.yaml"), rule("changed"))
	o.stay(t)
	for _, version := range []string{"2", "3"} {
		link(t, version, root)
		o.become(t, "v"+version)
	}
	if diff := cmp.Diff([]string{"v1", "v2", "v3"}, o.history()); diff != "" {
		t.Error(diff)
	}
}

// A watched root has always been read so: all that config and a dot begin with.
func TestWatchRootReadsWhatStandsBeside(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"config/a.yaml", "config.yaml", "config.d/b.yaml", "configs.yaml", "other.yaml"} {
		write(t, filepath.Join(root, "sub", name), rule(strings.NewReplacer("/", "-", ".", "-").Replace(name)))
	}
	f := &sources.Files{Root: root, Below: "sub/config", WatchRoot: true}
	run(t, f).become(t, "config-a-yaml config-d-b-yaml config-yaml")
	f = &sources.Files{Root: root, Below: "sub/config"}
	run(t, f).become(t, "config-a-yaml")

	// Bad ones are mended there, too.
	path := filepath.Join(root, "sub", "config.yaml")
	write(t, path, "domain: [")
	o := run(t, &sources.Files{Root: root, Below: "sub/config", WatchRoot: true})
	if o.lastError() == nil {
		t.Error("no error")
	}
	write(t, path, rule("mended"))
	o.become(t, "config-a-yaml config-d-b-yaml mended")
}

func TestRelativeRoot(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write(t, "1/config/a.yaml", rule("v1"))
	write(t, "2/config/a.yaml", rule("v2"))
	link(t, "1", "current")
	swapped := run(t, &sources.Files{Root: "current", Below: "config", WatchRoot: true})
	changed := run(t, &sources.Files{Root: "2", Below: "config"})
	link(t, "2", "current")
	swapped.become(t, "v2")
	write(t, "2/config/a.yaml", rule("v3"))
	changed.become(t, "v3")
}

// Without good rules there is nothing to protect from a half-made change.
func TestWatchRootRecoversFromBadRules(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "config/a.yaml"), "domain: [")
	o := run(t, &sources.Files{Root: root, Below: "config", WatchRoot: true})
	write(t, filepath.Join(root, "config/a.yaml"), rule("a"))
	o.become(t, "a")
	write(t, filepath.Join(root, "config/a.yaml"), rule("b"))
	o.stay(t)
}

// A file that links elsewhere changes without a notification.
func TestPollHealsWhatWasNotNotified(t *testing.T) {
	f, path := watching(t)
	elsewhere := filepath.Join(t.TempDir(), "a.yaml")
	write(t, elsewhere, rule("a"))
	must(t, os.Symlink(elsewhere, path+"/a.yaml"))
	f.Poll = 50 * time.Millisecond
	o := run(t, f)
	write(t, elsewhere, rule("b"))
	o.become(t, "b")
	o.stay(t)
}
