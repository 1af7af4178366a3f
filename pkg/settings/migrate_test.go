package settings_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// docs/migrate.md has every variable of envoyproxy/ratelimit.
func TestMigrationGuide(t *testing.T) {
	text, err := os.ReadFile("../../docs/migrate.md")
	if err != nil {
		t.Fatal(err)
	}
	help := map[string]string{}
	for _, flag := range flags(t) {
		help[flag.Envs[0]] = flag.Help
	}
	told := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| (`[^|]*`) \\| ([^|]*) \\| ([^|]*)\\|$")
	for _, cells := range row.FindAllStringSubmatch(string(text), -1) {
		names, verdict, why := strings.Fields(strings.ReplaceAll(cells[1], "`", "")), cells[2], strings.TrimSpace(cells[3])
		if verdict != "same" && why == "" {
			t.Errorf("%s: %s, but why?", cells[1], verdict)
		}
		for _, name := range names {
			if told[name] != "" {
				t.Errorf("%s is told of twice", name)
			}
			told[name] = verdict
		}
	}
	for name := range referenceVariables {
		verdict := told[name]
		if verdict != "same" && verdict != "better" && verdict != "without effect" {
			t.Errorf("%s: %q", name, verdict)
		}
		if _, differs := better[name]; differs && verdict == "same" {
			t.Errorf("%s is the same, with another default", name)
		}
		if idle := help[name] == "Without effect."; idle != (verdict == "without effect") {
			t.Errorf("%s: %s; its help says %q", name, verdict, help[name])
		}
	}
	if len(told) != len(referenceVariables) {
		t.Errorf("%d variables, want %d", len(told), len(referenceVariables))
	}
}
