package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	noWords = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// TestLinks: every link within the repository leads to a file, and to a heading
// of it if the link has an anchor.
func TestLinks(t *testing.T) {
	followed := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin"):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		text := read(path)
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			followed++
			to := path
			if target != "" {
				to = filepath.Join(filepath.Dir(path), target)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s: %v", path, m[1], err)
			} else if anchor != "" && !hasHeading(read(to), anchor) {
				t.Errorf("%s links to %s, a heading that does not exist", path, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if followed < 20 {
		t.Errorf("only %d links found", followed)
	}
}

// hasHeading reports whether GitHub gives a heading of the document this anchor.
func hasHeading(text, anchor string) bool {
	fenced := false // within a block of code, whose comments are no headings
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if title := strings.TrimLeft(line, "#"); title != line && !fenced {
			title = noWords.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			if strings.ReplaceAll(title, " ", "-") == anchor {
				return true
			}
		}
	}
	return false
}

// TestContributingNamesEveryFolder: its table says what each package is for.
func TestContributingNamesEveryFolder(t *testing.T) {
	house := readDoc(t, "CONTRIBUTING.md")
	for _, folder := range []string{"cmd", "internal", "pkg", "test"} {
		entries, err := os.ReadDir(filepath.Join(root, folder))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if name := folder + "/" + e.Name(); e.IsDir() && !strings.Contains(house, "`"+name+"`") {
				t.Errorf("CONTRIBUTING.md does not say what %s is for", name)
			}
		}
	}
}

// TestIndexNamesEveryDocument: docs/README.md links to each document in docs/.
func TestIndexNamesEveryDocument(t *testing.T) {
	index := readDoc(t, "docs/README.md")
	files, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(files) < 15 {
		t.Fatalf("%d documents found: %v", len(files), err)
	}
	for _, f := range files {
		if name := filepath.Base(f); name != "README.md" && !strings.Contains(index, "]("+name+")") {
			t.Errorf("docs/README.md does not link to %s", name)
		}
	}
}
