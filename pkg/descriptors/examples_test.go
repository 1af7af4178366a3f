package descriptors

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// examples are the files that ship.
func examples(t *testing.T) []File {
	t.Helper()
	names, err := filepath.Glob("../../config/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var files []File
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, File{Name: filepath.Base(name), Content: content})
	}
	return files
}

func TestExamplesLoadAsOneFolder(t *testing.T) {
	files := examples(t)
	tree, warnings, err := Load(files, Options{})
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v\n%v", err, warnings)
	}
	if len(tree.Domains()) != len(files) {
		t.Errorf("%d domains in %d files", len(tree.Domains()), len(files))
	}
	for _, f := range files {
		if name := strings.TrimSuffix(f.Name, ".yaml"); tree.Domain(name) == nil {
			t.Errorf("%s is not domain %s", f.Name, name)
		}
	}
}

func TestQuickStartHasLowLimits(t *testing.T) {
	tree, _, err := Load(examples(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []Entry{{"generic_key", "hello"}, {"remote_address", "10.0.0.1"}} {
		rule := tree.Domain("quickstart").Match([]Entry{e})
		if rule == nil || rule.Limits[0].Requests > 10 {
			t.Errorf("%v: %+v", e, rule)
		}
	}
}

// What the language has is shown in an example and told in its reference.
func TestEveryKeyIsDocumented(t *testing.T) {
	reference, err := os.ReadFile("../../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, f := range examples(t) {
		all.Write(f.Content)
	}
	for k := range keyCount {
		if !strings.Contains(string(reference), "`"+k.String()) {
			t.Errorf("docs/rules.md does not tell of %s", k)
		}
		if !regexp.MustCompile(`[^a-z_]` + k.String() + `: `).MatchString(strings.ReplaceAll("\n"+all.String(), ":\n", ": \n")) {
			t.Errorf("no example in config/ has %s", k)
		}
	}
}

// Every example in the reference of the language is one that loads.
func TestReferenceLoads(t *testing.T) {
	reference, err := os.ReadFile("../../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(reference), -1)
	if len(blocks) < 5 {
		t.Fatalf("only %d examples", len(blocks))
	}
	for _, block := range blocks {
		content := block[1]
		if !strings.HasPrefix(content, "domain:") {
			content = "domain: d\ndescriptors:\n" + content
		}
		_, warnings, err := Load([]File{{Name: "rules.md", Content: []byte(content)}}, Options{})
		if err != nil || len(warnings) > 0 {
			t.Errorf("%v %v in\n%s", err, warnings, content)
		}
	}
}
