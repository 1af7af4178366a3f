package docs_test

import (
	"slices"
	"strings"
	"testing"
)

const settingsIndex = "docs/settings-by-task.md"

// TestSettingsByTask: docs/settings.md has every variable that the index of settings by task
// names, and the index leads to each section of it.
func TestSettingsByTask(t *testing.T) {
	namesSettings(t, settingsIndex, 60)
	index := readDoc(t, settingsIndex)
	sections := 0
	for line := range strings.Lines(readDoc(t, "docs/settings.md")) {
		title, ok := strings.CutPrefix(line, "## ")
		if !ok {
			continue
		}
		sections++
		anchor := strings.ReplaceAll(noWords.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), ""), " ", "-")
		if !strings.Contains(index, "](settings.md#"+anchor+")") {
			t.Errorf("%s does not lead to settings.md#%s", settingsIndex, anchor)
		}
	}
	if sections < 10 {
		t.Errorf("docs/settings.md has only %d sections", sections)
	}
	// A row leads to the section of its settings, which stand in the second column.
	in := map[string]string{}
	for _, p := range parts(t, "docs/settings.md") {
		for _, row := range p.rows {
			in[strings.Trim(row[0], "`")] = p.heading
		}
	}
	for _, p := range parts(t, settingsIndex) {
		for _, row := range p.rows {
			var of []string
			for _, word := range strings.Split(row[1], "`") {
				name, _, _ := strings.Cut(word, "=")
				if s := in[name]; s != "" {
					of = append(of, s)
				}
			}
			if len(of) > 0 && !slices.ContainsFunc(of, func(s string) bool { return strings.Contains(row[3], "["+s+"]") }) {
				t.Errorf("%s: %q leads to %s, and its settings are in %q", settingsIndex, row[0], row[3], of)
			}
		}
	}
}
