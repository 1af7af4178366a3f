package docs_test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestOperatorsDocsNameSettings: docs/settings.md has every variable that the
// documents name.
func TestOperatorsDocsNameSettings(t *testing.T) {
	for path, least := range map[string]int{
		"docs/faq.md": 3, "docs/security.md": 10, "docs/sizing.md": 3, "docs/troubleshooting.md": 5, "docs/upgrade.md": 3,
	} {
		namesSettings(t, path, least)
	}
}

// TestOperatorsDocsNameCommands: rls has every command that the documents name.
func TestOperatorsDocsNameCommands(t *testing.T) {
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for path, least := range map[string]int{
		"docs/faq.md": 1, "docs/recipes.md": 4, "docs/sizing.md": 1, "docs/troubleshooting.md": 10, "docs/upgrade.md": 3,
	} {
		commands := regexp.MustCompile("(?m)(?:`|^)rls ([a-z]+)").FindAllStringSubmatch(readDoc(t, path), -1)
		if len(commands) < least {
			t.Errorf("%s names %d commands only", path, len(commands))
		}
		for _, c := range commands {
			if known[c[1]] {
				continue
			}
			known[c[1]] = true
			if out, err := exec.Command(program, c[1], "--help").CombinedOutput(); err != nil {
				t.Errorf("%s names rls %s: %v\n%s", path, c[1], err, out)
			}
		}
	}
}

// TestOperatorsDocsNameMetrics: docs/metrics.md has every metric that the documents
// name.
func TestOperatorsDocsNameMetrics(t *testing.T) {
	metrics := readDoc(t, "docs/metrics.md")
	for path, least := range map[string]int{
		"docs/recipes.md": 2, "docs/sizing.md": 2, "docs/troubleshooting.md": 5, "docs/upgrade.md": 3,
	} {
		names := regexp.MustCompile(`\brls_[a-z_]+`).FindAllString(readDoc(t, path), -1)
		if len(names) < least {
			t.Errorf("%s names %d metrics only", path, len(names))
		}
		for _, name := range names {
			if !strings.Contains(metrics, "`"+name+"`") {
				t.Errorf("%s names %s, which docs/metrics.md does not have", path, name)
			}
		}
	}
}
