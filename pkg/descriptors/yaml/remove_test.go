package yaml_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
)

// someDay is the day for which tests lint.
var someDay = time.Date(2026, 6, 30, 12, 0, 0, 0, time.UTC)

// withoutEmpty removes the keys that the lint empty-value finds in a text.
func withoutEmpty(t *testing.T, content string) (fixed string, removed, found int) {
	t.Helper()
	text := yaml.Text{Name: "a.yaml", Content: []byte(content)}
	before, warnings, err := yaml.Load([]yaml.Text{text}, rules.Options{Lint: someDay})
	if err != nil {
		t.Fatal(err)
	}
	var keys []descriptors.Position
	for _, w := range warnings {
		if w.Lint == rules.EmptyValue {
			keys = append(keys, w.Position)
		}
	}
	now, gone := yaml.RemoveEmpty(text, keys)
	if string(text.Content) != content {
		t.Error("the text that was given is changed")
	}
	after, _, err := yaml.Load([]yaml.Text{{Name: "a.yaml", Content: now}}, rules.Options{})
	if err != nil || before.Hash() != after.Hash() {
		t.Errorf("the rules mean something else now: %v in\n%s", err, now)
	}
	return string(now), len(gone), len(keys)
}

func TestRemoveEmpty(t *testing.T) {
	const limit = "rate_limit: {unit: minute, requests_per_unit: 1}"
	const one = "domain: d\ndescriptors:\n"
	for _, tt := range []struct{ name, from, to string }{
		{"a line", "- key: a\n  value: \"\"\n  " + limit + "\n", "- key: a\n  " + limit + "\n"},
		{"the last line", "- " + limit + "\n  key: a\n  value: ''", "- " + limit + "\n  key: a\n"},
		{"nothing after the colon", "- key: a\n  value:\n  " + limit + "\n", "- key: a\n  " + limit + "\n"},
		{"a comment behind it", "- key: a\n  value: \"\"   # any\n  " + limit + "\n", "- key: a\n  # any\n  " + limit + "\n"},
		{"comments around it", "- key: a\n  # one\n  value: \"\"\n  # two\n  " + limit + "\n", "- key: a\n  # one\n  # two\n  " + limit + "\n"},
		{"the first key", "  - value: \"\"\n    key: a\n    " + limit + "\n", "  - key: a\n    " + limit + "\n"},
		{"the first key and a comment", "- value: \"\" # any\n  key: a\n  " + limit + "\n", "- # any\n  key: a\n  " + limit + "\n"},
		{"the first key before a comment", "- value: \"\"\n  # any\n  key: a\n  " + limit + "\n", "-\n  # any\n  key: a\n  " + limit + "\n"},
		{"flow, in the middle", "- {key: a, value: \"\", " + limit + "}\n", "- {key: a, " + limit + "}\n"},
		{"flow, first", "- {value: '' , key: a, " + limit + "}\n", "- {key: a, " + limit + "}\n"},
		{"flow, last", "- {key: a, " + limit + ", value: \"\" }\n", "- {key: a, " + limit + " }\n"},
		{"flow, no value", "- {key: a, value: , " + limit + "}\n", "- {key: a, " + limit + "}\n"},
		{"flow on lines", "- {\n  key: a,\n  value: \"\", # any\n  " + limit + "\n}\n", "- {\n  key: a,\n  # any\n  " + limit + "\n}\n"},
		{"flow on lines, at the end of one", "- {key: a, value: \"\",\n  " + limit + "}\n", "- {key: a,\n  " + limit + "}\n"},
		{"flow on lines, last", "- {\n  key: a,\n  " + limit + ",\n  value: \"\"\n}\n", "- {\n  key: a,\n  " + limit + "\n}\n"},
		{"flow on lines, last, behind a comment", "- {\n  key: a,\n  " + limit + ", # one\n  value: \"\" # two\n}\n", "- {\n  key: a,\n  " + limit + ", # one\n  # two\n}\n"},
		{"JSON", `- {"key": "a", "value": "", "rate_limit": {"unit": "minute"}}` + "\n", `- {"key": "a", "rate_limit": {"unit": "minute"}}` + "\n"},
		{"runes before it", "- {key: ключ, value: \"\", " + limit + "}\n", "- {key: ключ, " + limit + "}\n"},
		{"two on one line", "- {key: a, value: \"\", descriptors: [{key: b, value: '', " + limit + "}]}\n", "- {key: a, descriptors: [{key: b, " + limit + "}]}\n"},
		{"an anchor", "- &a {key: a, value: \"\", " + limit + "}\n- {<<: *a, key: b}\n", "- &a {key: a, " + limit + "}\n- {<<: *a, key: b}\n"},
		// What would change the meaning, or is written in an unusual way, stays.
		{"a merged value", "- &a {key: a, value: x, " + limit + "}\n- {<<: *a, value: \"\"}\n", ""},
		{"an alias", "- {key: a, value: &e \"\", " + limit + "}\n- {key: b, value: *e, " + limit + "}\n", ""},
		{"a tag", "- {key: a, value: !!str \"\", " + limit + "}\n", ""},
		{"a long key", "- ? value\n  : \"\"\n  key: a\n  " + limit + "\n", ""},
		{"a block", "- key: a\n  value: |\n\n  " + limit + "\n", ""},
	} {
		for kind, newline := range map[string]string{"LF": "\n", "CRLF": "\r\n"} {
			t.Run(tt.name+", "+kind, func(t *testing.T) {
				from, to := one+tt.from, one+tt.to
				if tt.to == "" {
					to = from
				}
				from, to = strings.ReplaceAll(from, "\n", newline), strings.ReplaceAll(to, "\n", newline)
				got, removed, found := withoutEmpty(t, from)
				if diff := cmp.Diff(to, got); diff != "" || found == 0 || tt.to != "" && removed != found {
					t.Errorf("removed %d of %d; -want +got\n%s", removed, found, diff)
				}
			})
		}
	}
}

// A key that has to stay does not keep others.
func TestRemoveEmptyLeavesOne(t *testing.T) {
	const all = "domain: d\ndescriptors:\n- {key: a, value: \"\", descriptors: []}\n- {key: b, value: !!str \"\"}\n- {key: c, value: \"\"}\n"
	got, removed, found := withoutEmpty(t, all)
	want := "domain: d\ndescriptors:\n- {key: a, descriptors: []}\n- {key: b, value: !!str \"\"}\n- {key: c}\n"
	if diff := cmp.Diff(want, got); diff != "" || removed != 2 || found != 3 {
		t.Errorf("removed %d of %d; -want +got\n%s", removed, found, diff)
	}
}

func TestRemoveEmptyOfManyIsQuick(t *testing.T) {
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n")
	for i := range 2000 {
		fmt.Fprintf(&b, "- key: k%d\n  value: \"\"\n  %s\n", i, limited)
	}
	if got, removed, _ := withoutEmpty(t, b.String()); removed != 2000 || strings.Contains(got, "value") {
		t.Errorf("removed %d", removed)
	}
}
