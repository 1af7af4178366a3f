package sources_test

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/sources"
)

func TestNoFilesAreValidRulesAtTheStart(t *testing.T) {
	f, path := watching(t)
	o := run(t, f)
	o.become(t, "")
	write(t, path+"/a.yaml", rule("a"))
	o.become(t, "a")
	write(t, path+"/a.yaml", "domain: a\n")
	testenv.Eventually(t, soon, func() bool { return o.loads() == 3 }, "a domain without descriptors")
	o.become(t, "a")
	o.lose(t, false)
}

// Without a folder there is nothing to serve, and most likely its name is
// wrong: Run ends, and names the path that it looked at.
func TestNoFolderAtTheStart(t *testing.T) {
	for _, watchRoot := range []bool{false, true} {
		f, path := watching(t)
		must(t, os.RemoveAll(filepath.Dir(path)))
		f.WatchRoot, f.Every, f.Log = watchRoot, often, slog.New(slog.DiscardHandler)
		err := f.Run(t.Context(), func([]*rules.File, error) error {
			t.Error("rules were published")
			return nil
		})
		if !errors.Is(err, sources.ErrNoFolder) || !strings.Contains(err.Error(), path) {
			t.Errorf("watching the root is %v: got %v", watchRoot, err)
		}
	}
	// Files beside the folder are rules, too.
	f, path := watching(t)
	must(t, os.RemoveAll(path))
	write(t, path+".yaml", rule("beside"))
	f.WatchRoot = true
	run(t, f).become(t, "beside")
}

// Files that are gone are a mistake: the rules stay in force, until there are
// files again.
func TestFilesThatAreGoneLeaveTheRules(t *testing.T) {
	for _, tt := range []struct {
		name   string
		remove func(root, path string) error
	}{
		{"an emptied folder", func(_, path string) error { return os.Remove(path + "/a.yaml") }},
		{"no folder", func(_, path string) error { return os.RemoveAll(path) }},
		{"no root", func(root, _ string) error { return os.RemoveAll(root) }},
	} {
		for _, watchRoot := range []bool{false, true} {
			t.Run(fmt.Sprint(tt.name, ", watching the root is ", watchRoot), func(t *testing.T) {
				f, path := watching(t)
				f.WatchRoot = watchRoot
				write(t, path+"/a.yaml", rule("a"))
				o := run(t, f)
				o.become(t, "a")

				must(t, tt.remove(f.Root, path))
				o.lose(t, true)
				o.become(t, "a")
				if o.loads() != 1 || o.lastError() != nil || o.logged("all files are gone") != 1 {
					t.Errorf("%d loads, the last one: %v, log:\n%s", o.loads(), o.lastError(), &o.log)
				}

				write(t, path+"/a.yaml", rule("b"))
				o.lose(t, false)
				o.become(t, "b")
			})
		}
	}
}

// A ConfigMap from which every key was removed still has its folder.
func TestConfigMapWithoutKeys(t *testing.T) {
	f, path := watching(t)
	configMap(t, path, "1", map[string]string{"a.yaml": rule("a")})
	o := run(t, f)
	o.become(t, "a")
	configMap(t, path, "2", nil)
	o.lose(t, true)
	o.become(t, "a")
	configMap(t, path, "3", map[string]string{"a.yaml": rule("c")})
	o.become(t, "c")
	o.lose(t, false)
}

// Rules that were never in force need no protection.
func TestBadFilesThatAreRemoved(t *testing.T) {
	f, path := watching(t)
	write(t, path+"/a.yaml", "domain: [")
	o := run(t, f)
	if o.logged("no rules are in force") != 1 || o.logged("last good") > 0 {
		t.Errorf("log of refused rules at the start:\n%s", &o.log)
	}
	must(t, os.Remove(path+"/a.yaml"))
	o.become(t, "")
	o.lose(t, false)
}

func TestChangesAreSeen(t *testing.T) {
	o, path := inForce(t)

	write(t, path+"/sub/b.yaml", rule("b"))
	o.become(t, "a b")
	write(t, path+"/sub/b.yaml", rule("c"))
	o.become(t, "a c")
	must(t, os.Rename(path+"/sub", path+"/other"))
	o.become(t, "a c")
	write(t, path+"/other/b.yaml", rule("d"))
	o.become(t, "a d")
	must(t, os.Chtimes(path+"/a.yaml", time.Now(), time.Now()))
	o.stay(t, path+"/a.yaml")
}

func TestBadRulesChangeNothing(t *testing.T) {
	f, path := watching(t)
	write(t, path+"/a.yaml", "domain: a\ndescriptors: [{key: user, rate_limit: {unit: eon, requests_per_unit: x}}]\n")
	o := run(t, f)
	var problems rules.Problems
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

// configMap writes files as Kubernetes mounts a ConfigMap: their names are links
// through ..data, a link that each version replaces. Names that the new version
// lacks are removed.
func configMap(t *testing.T, path, version string, files map[string]string) {
	t.Helper()
	dir := filepath.Join(path, "..2026_"+version)
	must(t, os.MkdirAll(dir, 0o755))
	for name, content := range files {
		write(t, filepath.Join(dir, name), content)
	}
	old, _ := os.Readlink(filepath.Join(path, "..data"))
	names, err := os.ReadDir(path)
	must(t, err)
	link(t, filepath.Base(dir), filepath.Join(path, "..data"))
	for name := range files {
		first, _, _ := strings.Cut(name, "/")
		if _, err := os.Lstat(filepath.Join(path, first)); err != nil {
			must(t, os.Symlink(filepath.Join("..data", first), filepath.Join(path, first)))
		}
	}
	for _, entry := range names {
		if _, err := os.Stat(filepath.Join(path, entry.Name())); errors.Is(err, fs.ErrNotExist) {
			must(t, os.Remove(filepath.Join(path, entry.Name())))
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
			// Each version is loaded once, and no version without files is seen.
			want := []string{"a b", "b c", "b d", "b e"}
			if diff := cmp.Diff(want, o.history()); diff != "" || o.lastError() != nil {
				t.Error(diff, o.lastError())
			}
		})
	}
}

func TestEditorsDance(t *testing.T) {
	o, path := inForce(t)
	file := path + "/a.yaml"
	for _, domain := range []string{"b", "c"} {
		// The old file is moved away, the new one written in two parts, the
		// old one removed.
		must(t, os.Rename(file, file+"~"))
		half := rule(domain)[:20]
		write(t, file, half)
		write(t, file, rule(domain))
		must(t, os.Remove(file+"~"))
		o.become(t, domain)
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, o.history()); diff != "" {
		t.Errorf("a state in between was in force: %s", diff)
	}
	if o.loads() != 3 {
		t.Errorf("%d loads, want 3", o.loads())
	}
}

// A folder in which files change all the time is loaded all the same.
func TestFolderThatNeverSettles(t *testing.T) {
	f, path := watching(t)
	write(t, path+"/a.yaml", rule("a"))
	o := run(t, f)
	stop, stopped := make(chan struct{}), make(chan struct{})
	written := filepath.Join(t.TempDir(), "noise.yaml")
	go func() {
		defer close(stopped)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-tick.C:
				// Renamed, so that the folder never has half a file, however long a write takes.
				_ = os.WriteFile(written, fmt.Appendf(nil, "%s# %d\n", rule("noise"), i), 0o644)
				_ = os.Rename(written, path+"/noise.yaml")
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
	ignored := filepath.Join(dir, "1/sub/config/a.yaml")
	write(t, ignored, rule("changed"))
	o.stay(t, ignored)
	for _, version := range []string{"2", "3"} {
		link(t, version, root)
		o.become(t, "v"+version)
	}
	if diff := cmp.Diff([]string{"v1", "v2", "v3"}, o.history()); diff != "" {
		t.Error(diff)
	}
	// The link leads elsewhere while a folder is filled, and back before it is read.
	for _, domain := range []string{"v4", "v5"} {
		link(t, "2", root)
		write(t, filepath.Join(dir, "3/sub/config/a.yaml"), rule(domain))
		link(t, "3", root)
		o.become(t, domain)
	}
}

// A folder that is removed and made anew is another folder, though most file systems
// give it the same inode number.
func TestWatchRootSeesAnotherFolderOfOneName(t *testing.T) {
	root := filepath.Join(t.TempDir(), "rules")
	write(t, filepath.Join(root, "config/a.yaml"), rule("v0"))
	o := run(t, &sources.Files{Root: root, Below: "config", WatchRoot: true})
	o.become(t, "v0")
	for i := range 5 {
		must(t, os.RemoveAll(root))
		domain := fmt.Sprint("v", i+1)
		write(t, filepath.Join(root, "config/a.yaml"), rule(domain))
		o.become(t, domain)
	}
}

// A folder above the root can be swapped without a notification.
func TestWatchRootSeesTheSwapOfAFolderAbove(t *testing.T) {
	dir := t.TempDir()
	for _, version := range []string{"1", "2"} {
		write(t, filepath.Join(dir, version, "rules/config/a.yaml"), rule("v"+version))
	}
	above := filepath.Join(dir, "current")
	link(t, "1", above)
	o := run(t, &sources.Files{Root: filepath.Join(above, "rules"), Below: "config", WatchRoot: true})
	o.become(t, "v1")
	link(t, "2", above)
	o.become(t, "v2")
}

// As in envoyproxy/ratelimit, a watched root is read with the files and folders
// whose names start with "config.".
func TestWatchRootReadsWhatStandsBeside(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"config/a.yaml", "config.yaml", "config.d/b.yaml", "configs.yaml", "other.yaml"} {
		write(t, filepath.Join(root, "sub", name), rule(strings.NewReplacer("/", "-", ".", "-").Replace(name)))
	}
	f := &sources.Files{Root: root, Below: "sub/config", WatchRoot: true}
	run(t, f).become(t, "config-a-yaml config-d-b-yaml config-yaml")
	f = &sources.Files{Root: root, Below: "sub/config"}
	run(t, f).become(t, "config-a-yaml")

	// A bad file beside the folder can be mended.
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

// While the rules are refused, every change counts: there are no good rules to
// protect from a change that is half made.
func TestWatchRootRecoversFromBadRules(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "config/a.yaml"), "domain: [")
	o := run(t, &sources.Files{Root: root, Below: "config", WatchRoot: true})
	write(t, filepath.Join(root, "config/a.yaml"), rule("a"))
	o.become(t, "a")
	write(t, filepath.Join(root, "config/a.yaml"), rule("b"))
	o.stay(t, filepath.Join(root, "config/a.yaml"))
}

// A file that changes and keeps its size and time is noticed: an older one because it is another file, and
// one that was written a moment ago because it is read again, as file systems tell time in ticks.
func TestChangeThatKeepsSizeAndTime(t *testing.T) {
	for name, age := range map[string]time.Duration{"another file": time.Hour, "in place, in one tick": 0} {
		t.Run(name, func(t *testing.T) {
			f, path := watching(t)
			file, at := path+"/a.yaml", time.Now().Add(-age)
			write(t, file, rule("a"))
			must(t, os.Chtimes(file, at, at))
			o := run(t, f)
			if age > 0 {
				next := filepath.Join(t.TempDir(), "next")
				write(t, next, rule("b"))
				must(t, os.Chtimes(next, at, at))
				must(t, os.Rename(next, file))
			} else {
				write(t, file, rule("b"))
				must(t, os.Chtimes(file, at, at))
			}
			o.become(t, "b")
		})
	}
}

// The target of a link outside the folder is looked at, too.
func TestTargetOfALinkChanges(t *testing.T) {
	f, path := watching(t)
	elsewhere := filepath.Join(t.TempDir(), "a.yaml")
	write(t, elsewhere, rule("a"))
	must(t, os.Symlink(elsewhere, path+"/a.yaml"))
	o := run(t, f)
	write(t, elsewhere, rule("b"))
	o.become(t, "b")
	o.stay(t, elsewhere)
}

// An operator who asks for the files gets them, also those that WatchRoot ignores, those
// that did not change and those that are wrong.
func TestReloadPublishesAllFiles(t *testing.T) {
	for _, watchRoot := range []bool{false, true} {
		f, path := watching(t)
		f.WatchRoot = watchRoot
		write(t, path+"/a.yaml", rule("a"))
		o := run(t, f)
		reload := func() {
			t.Helper()
			loads := o.loads()
			o.reload <- struct{}{}
			testenv.Eventually(t, soon, func() bool { return o.loads() > loads }, "a load")
		}
		reload()
		write(t, path+"/a.yaml", rule("b"))
		reload()
		o.become(t, "b")
		write(t, path+"/a.yaml", "domain: [")
		reload()
		o.become(t, "b")
		if o.lastError() == nil {
			t.Error("wrong rules were loaded")
		}
		write(t, path+"/a.yaml", rule("c"))
		reload()
		o.become(t, "c")

		must(t, os.Remove(path+"/a.yaml"))
		o.reload <- struct{}{}
		o.lose(t, true)
		o.become(t, "c")
		write(t, path+"/a.yaml", rule("d"))
		o.become(t, "d")
		o.lose(t, false)
	}
}

// A table is no file of rules. Its changes are noticed, also those of a link, and a wrong row
// leaves the last good table in force.
func TestTablesAreWatched(t *testing.T) {
	for _, watchRoot := range []bool{false, true} {
		t.Run(fmt.Sprintf("WatchRoot %v", watchRoot), func(t *testing.T) { testTablesAreWatched(t, watchRoot) })
	}
}

func testTablesAreWatched(t *testing.T, watchRoot bool) {
	f, path := watching(t)
	f.WatchRoot = watchRoot
	write(t, path+"/sub/one/t.csv", "value,requests_per_unit\nx,1\n")
	write(t, path+"/sub/two/t.csv", "value,requests_per_unit\nx,2\n")
	write(t, path+"/other.csv", "this is no table")
	link(t, "one", path+"/sub/..data")
	link(t, "..data/t.csv", path+"/sub/t.csv")
	const rules = "domain: a\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 9, table: sub/t.csv}}]\n"
	write(t, path+"/a.yaml", rules)
	o := run(t, f)
	loads := o.loads()
	loaded := func(what string) error {
		t.Helper()
		testenv.Eventually(t, soon, func() bool { return o.loads() > loads }, what)
		loads = o.loads()
		return o.lastError()
	}
	if err := o.lastError(); err != nil {
		t.Fatal(err)
	}
	link(t, "two", path+"/sub/..data")
	if err := loaded("after the swap of a link"); err != nil {
		t.Error(err)
	}
	if watchRoot { // files that change below the same root do not count, even when a table does
		write(t, path+"/a.yaml", "domain: [")
		write(t, path+"/sub/two/t.csv", "value,requests_per_unit\nx,4\n")
		if err := loaded("after a table beside rules that do not count"); err != nil {
			t.Error(err)
		}
		write(t, path+"/a.yaml", rules)
	}
	if watchRoot { // rules and a table with another name, in one swap
		must(t, os.Rename(path+"/sub/t.csv", path+"/sub/u.csv"))
		write(t, path+"/a.yaml", strings.ReplaceAll(rules, "t.csv", "u.csv"))
		testenv.Eventually(t, soon, func() bool { return o.loads() > loads && o.lastError() == nil }, "the new rules are in force")
		must(t, os.Rename(path+"/sub/u.csv", path+"/sub/t.csv"))
		write(t, path+"/a.yaml", rules)
		testenv.Eventually(t, soon, func() bool { return o.loads() > loads+2 && o.lastError() == nil }, "the old rules are in force")
		loads = o.loads()
	}
	write(t, path+"/sub/two/t.csv", "value,requests_per_unit\nx,-2\n")
	if err := loaded("after a wrong row"); err == nil || !strings.Contains(err.Error(), "/sub/t.csv:2:3: requests_per_unit: must be a whole number") {
		t.Error(err)
	}
	write(t, path+"/sub/two/t.csv", "value,requests_per_unit\nx,3\n")
	if err := loaded("after the repair"); err != nil {
		t.Error(err)
	}
	o.stay(t, path+"/sub/two/t.csv")
}
