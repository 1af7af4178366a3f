package yaml_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
)

// files are the files of rules that a pattern names, without tests of rules.
func files(tb testing.TB, pattern string) (found []yaml.Text) {
	tb.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		tb.Fatalf("no files %s: %v", pattern, err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.yaml") {
			continue
		}
		content, err := os.ReadFile(name)
		if err != nil {
			tb.Fatal(err)
		}
		found = append(found, yaml.Text{Name: name, Content: content})
	}
	return found
}

// examples are the files in config/.
func examples(tb testing.TB) []yaml.Text { return files(tb, "../../../config/*.yaml") }

func TestExamplesLoadAsOneFolder(t *testing.T) {
	files := examples(t)
	tree, warnings := loadWith(t, rules.Options{}, files...)
	if warnings != "" || len(tree.Domains()) != len(files) {
		t.Errorf("%d domains in %d files; %s", len(tree.Domains()), len(files), warnings)
	}
	for _, f := range files {
		if name := strings.TrimSuffix(filepath.Base(f.Name), ".yaml"); tree.Domain(name) == nil {
			t.Errorf("%s is not domain %s", f.Name, name)
		}
	}
}

func TestQuickStartHasLowLimits(t *testing.T) {
	tree := load(t, examples(t)...)
	for _, e := range []descriptors.Entry{{Key: "generic_key", Value: "hello"}, {Key: "remote_address", Value: "10.0.0.1"}} {
		rule := tree.Domain("quickstart").Match([]descriptors.Entry{e})
		if rule == nil || rule.Limits[0].Requests > 10 {
			t.Errorf("%v: %+v", e, rule)
		}
	}
}

// guides are the documents whose examples are rules.
var guides = []string{"match.md", "plans.md", "pools.md", "before-the-limit.md", "trying.md"}

// Every example in the guides loads without a problem or a warning.
func TestGuidesLoad(t *testing.T) {
	t.Chdir("../../../config") // which has the tables
	for _, guide := range guides {
		doc, err := os.ReadFile("../docs/" + guide)
		if err != nil {
			t.Fatal(err)
		}
		blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(doc), -1)
		if len(blocks) < 2 {
			t.Errorf("%s has only %d examples", guide, len(blocks))
		}
		for _, block := range blocks {
			content := block[1]
			if !strings.HasPrefix(content, "domain:") {
				content = "domain: d\ndescriptors:\n" + content
			}
			if _, warnings := loadWith(t, rules.Options{Lint: true}, text(guide, content)); warnings != "" {
				t.Errorf("%s in\n%s", warnings, content)
			}
		}
	}
}
