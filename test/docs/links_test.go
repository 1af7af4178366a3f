package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	noWords = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// eachFile calls do with each file of the repository that has one of the extensions, but for what make
// writes and what is hidden.
func eachFile(t *testing.T, extensions []string, do func(path string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "dist"):
			return filepath.SkipDir
		case !d.IsDir() && slices.Contains(extensions, filepath.Ext(path)):
			do(path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestLinks: every link within the repository leads to a file, and to a heading
// of it if the link has an anchor.
func TestLinks(t *testing.T) {
	followed := 0
	eachFile(t, []string{".md"}, func(path string) {
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
	})
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

// TestContributingShowsTheHouse: its rooms have every folder of the repository and of cmd and pkg, and
// no folder that is not there.
func TestContributingShowsTheHouse(t *testing.T) {
	var rooms *part
	for _, p := range parts(t, "CONTRIBUTING.md") {
		if p.heading == "The house" && p.isTable() {
			rooms = p
		}
	}
	if rooms == nil {
		t.Fatal("CONTRIBUTING.md has no table of the house")
	}
	shown := map[string]bool{}
	for _, row := range rooms.rows {
		for _, m := range regexp.MustCompile("`((?:cmd|pkg)/[a-z]+|[a-z]+)`").FindAllStringSubmatch(row[1], -1) {
			shown[m[1]] = true
			if strings.Contains(m[1], "/") {
				shown[filepath.Dir(m[1])] = true
				if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
					t.Errorf("CONTRIBUTING.md: %v", err)
				}
			}
		}
	}
	for _, within := range []string{".", "cmd", "pkg"} {
		entries, err := os.ReadDir(filepath.Join(root, within))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			made := strings.HasPrefix(e.Name(), ".") || e.Name() == "bin" || e.Name() == "dist"
			if name := filepath.Join(within, e.Name()); e.IsDir() && !made && !shown[name] {
				t.Errorf("CONTRIBUTING.md does not say in which room %s is", name)
			}
		}
	}
}

// TestPackagesSayWhatTheyAreFor: every package has a doc comment, but for generated code.
func TestPackagesSayWhatTheyAreFor(t *testing.T) {
	says := map[string]bool{} // by folder
	eachFile(t, []string{".go"}, func(path string) {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if folder := filepath.Dir(path); !ast.IsGenerated(file) {
			says[folder] = says[folder] || strings.TrimSpace(file.Doc.Text()) != ""
		}
	})
	if len(says) < 40 {
		t.Fatalf("%d packages found", len(says))
	}
	for folder, does := range says {
		if !does {
			t.Errorf("the package in %s has no doc comment", folder)
		}
	}
}

// TestDecisionsAreThere: every decision that a file names by its number or its path is in docs/adr.
func TestDecisionsAreThere(t *testing.T) {
	mention := regexp.MustCompile(`ADR ([0-9]+)|docs/adr/([0-9]{4})[a-z-]*\.md`)
	mentions := 0
	eachFile(t, []string{".go", ".md", ".lua", ".yaml", ".sh", ".py"}, func(path string) {
		for _, m := range mention.FindAllStringSubmatch(read(path), -1) {
			mentions++
			number, _ := strconv.Atoi(m[1] + m[2])
			found, err := filepath.Glob(filepath.Join(root, "docs", "adr", fmt.Sprintf("%04d-*.md", number)))
			if err != nil || len(found) != 1 || m[2] != "" && found[0] != filepath.Join(root, m[0]) {
				t.Errorf("%s names %s, which is not in docs/adr", path, m[0])
			}
		}
	})
	if mentions < 10 {
		t.Fatalf("%d mentions found", mentions)
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
