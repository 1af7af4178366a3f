package docs_test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// named returns the names in a document that a pattern finds, at least so many.
func named(t *testing.T, path, pattern string, least int) (names []string) {
	t.Helper()
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(readDoc(t, path), -1) {
		names = append(names, m[1])
	}
	if len(names) < least {
		t.Errorf("%s names only %q", path, names)
	}
	return names
}

// TestOperatorsDocsNameSettings: docs/settings.md has every variable that the
// documents name.
func TestOperatorsDocsNameSettings(t *testing.T) {
	for path, least := range map[string]int{
		"docs/before-the-limit.md": 3, "docs/match.md": 3, "docs/overlays.md": 4, "docs/plans.md": 7,
		"docs/security.md": 10, "docs/sizing.md": 3, "docs/troubleshooting.md": 5, "docs/upgrade.md": 3,
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
		"docs/match.md": 2, "docs/plans.md": 5, "docs/recipes.md": 2, "docs/testing.md": 5,
		"docs/sizing.md": 1, "docs/troubleshooting.md": 10, "docs/upgrade.md": 3,
		"deploy/recipes/login/README.md": 3, "deploy/recipes/shadow/README.md": 3, "deploy/recipes/concurrency/README.md": 2,
	} {
		for _, c := range named(t, path, "(?m)(?:`|^)rls ([a-z]+)", least) {
			if known[c] {
				continue
			}
			known[c] = true
			if out, err := exec.Command(program, c, "--help").CombinedOutput(); err != nil {
				t.Errorf("%s names rls %s: %v\n%s", path, c, err, out)
			}
		}
	}
}

// TestOperatorsDocsNameMetrics: docs/metrics.md has every metric that the documents
// name.
func TestOperatorsDocsNameMetrics(t *testing.T) {
	metrics := readDoc(t, "docs/metrics.md")
	for path, least := range map[string]int{
		"deploy/recipes/shadow/README.md": 1, "docs/sizing.md": 2, "docs/troubleshooting.md": 5, "docs/upgrade.md": 3,
	} {
		for _, name := range named(t, path, `\b(rls_[a-z_]+)`, least) {
			if !strings.Contains(metrics, "`"+name+"`") {
				t.Errorf("%s names %s, which docs/metrics.md does not have", path, name)
			}
		}
	}
}

// TestContributingNamesTargets: make has every target that CONTRIBUTING.md names.
func TestContributingNamesTargets(t *testing.T) {
	makefile := readDoc(t, "Makefile")
	for _, target := range named(t, "CONTRIBUTING.md", "`make ([a-z-]+)", 10) {
		if !strings.Contains(makefile, "\n"+target+":") {
			t.Errorf("CONTRIBUTING.md names make %s, which the Makefile does not have", target)
		}
	}
}
