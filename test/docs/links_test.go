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

// TestLinks follows every link within the repository, and to headings.
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

// hasHeading looks for the heading that GitHub gives this anchor.
func hasHeading(text, anchor string) bool {
	for line := range strings.Lines(text) {
		if title := strings.TrimLeft(line, "#"); title != line {
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
