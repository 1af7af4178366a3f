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

// TestDocsNameCommands: rls has every command that a document names, with the flags behind it.
func TestDocsNameCommands(t *testing.T) {
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile("(?m)(?:`|^|bin/|[|] )rls ([a-z]+)([^`|\n]*)")
	flag := regexp.MustCompile(`(?: |^)(--[a-z-]+)`)
	help, mentions := map[string]string{}, 0
	eachFile(t, []string{".md"}, func(path string) {
		for _, m := range command.FindAllStringSubmatch(read(path), -1) {
			mentions++
			name := m[1]
			if help[name] == "" {
				out, err := exec.Command(program, name, "--help").CombinedOutput()
				if err != nil {
					t.Errorf("%s names rls %s: %v\n%s", path, name, err, out)
				}
				help[name] = string(out)
			}
			for _, f := range flag.FindAllStringSubmatch(m[2], -1) {
				if !regexp.MustCompile(f[1] + `\b`).MatchString(help[name]) {
					t.Errorf("%s names rls %s %s, a flag that it does not have", path, name, f[1])
				}
			}
		}
	})
	if mentions < 100 {
		t.Errorf("%d commands found", mentions)
	}
}

// TestDocsNameMetrics: docs/metrics.md has every metric that a document names.
func TestDocsNameMetrics(t *testing.T) {
	known, mentions := map[string]bool{"rls_requests_per_second": true}, 0 // an adapter's
	for _, m := range regexp.MustCompile("`(rls_[a-z_]+)`").FindAllStringSubmatch(readDoc(t, "docs/metrics.md"), -1) {
		known[m[1]] = true
	}
	parts := regexp.MustCompile(`_(bucket|sum|count)$`)
	eachFile(t, []string{".md"}, func(path string) {
		for _, name := range regexp.MustCompile(`\brls_[a-z_]+`).FindAllString(read(path), -1) {
			mentions++
			if !known[name] && !known[parts.ReplaceAllString(name, "")] {
				t.Errorf("%s names %s, which docs/metrics.md does not have", path, name)
			}
		}
	})
	if mentions < 80 {
		t.Errorf("%d metrics found", mentions)
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
