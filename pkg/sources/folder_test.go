package sources_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/pkg/sources"
)

func TestFolderReadsEveryFile(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b.yaml", "a.yaml", "README", "sub/deep/c.yml", "sub/deep/c_test.yaml", "a_test.yaml", ".hidden", ".dir/d.yaml", "..2026_11_21/e.yaml"} {
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

// TestNoRules: a file of tests, which a shell lists for *.yaml, and a missing folder have none.
func TestNoRules(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "load_test.yaml"), "domain: load")
	for _, name := range []string{"load_test.yaml", "none"} {
		files, err := sources.Folder{Path: filepath.Join(dir, name)}.Read()
		if err != nil || len(files) > 0 {
			t.Errorf("%s: got %v, %v", name, files, err)
		}
	}
}

// TestAPipeIsAFile, such as that of <(…) in a shell.
func TestAPipeIsAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	must(t, syscall.Mkfifo(path, 0o600))
	go func() { _ = os.WriteFile(path, []byte("domain: a"), 0o600) }()
	files, err := sources.Folder{Path: path}.Read()
	if err != nil || len(files) != 1 || string(files[0].Content) != "domain: a" {
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
	// Nobody can read a link that leads to itself, root included.
	must(t, os.Symlink("one", filepath.Join(dir, "one")))
	must(t, os.Symlink("two", filepath.Join(dir, "two")))
	_, err := sources.Folder{Path: dir}.Read()
	if err == nil || !strings.Contains(err.Error(), "/one") || !strings.Contains(err.Error(), "/two") {
		t.Errorf("got %v", err)
	}
}
