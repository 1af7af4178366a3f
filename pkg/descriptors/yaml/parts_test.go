package yaml_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"example.org/rls/pkg/descriptors/yaml"
)

// inBlockStyle are texts whose list of descriptors can be read in parts.
var inBlockStyle = []string{
	"domain: d\ndescriptors:\n  - key: a\n    rate_limit: {unit: day}\n  # a comment\n\n  - key: b\n    value: |\n      - x\n      - y\n  - {key: c,\n     value: d}\n",
	"# first\n---\ndomain: d\ndescriptors: # all\n- key: a\n  descriptors:\n  - key: b\n  - key: c\n-\n  key: d\n- key: e\ncharge: admitted\n# last\non_error: deny\n",
	"charge: always\ndescriptors:\n\n    - key: a\n    - key: \"b\n        - c\"\n    - key: a long\n        - text\n    - - nested\n      - list\n    - plain\n# no key after it",
	"domain: d\ndescriptors:\n- key: a\n- <<: {key: b}\n  value: yes\ndescriptors:\n- key: again\n",
	"domain: d\n<<: {charge: always}\ndescriptors:\n- key: ü\n- key: \"\\u2028\"\n",
}

// Parts have the values of the whole, with their positions.
func TestParts(t *testing.T) {
	for _, content := range inBlockStyle {
		got, want := yaml.ReadInParts(text("f", content), 1), yaml.ReadWhole(text("f", content))
		if len(want.Problems) > 0 || !reflect.DeepEqual(got, want.Root) {
			t.Errorf("%q: got\n%+v\nwant\n%+v %v", content, got, want.Root, want.Problems)
		}
	}
	for _, content := range []string{
		"domain: d\ndescriptors:\n- &a {key: a}\n- *a\n",              // parts would not share the anchor
		"domain: d\ndescriptors:\n- key: a\r- key: b\n",               // a line break of YAML
		"domain: d\ndescriptors:\n- key: a\u2028- key: b\n",           // another one
		"domain: d\ndescriptors: [\n- key: a\n]\n",                    // no block style
		"domain: d\ndescriptors:\n  - key: a\n  value: b\n",           // mistakes
		"domain: d\ndescriptors:\n  - key: a\n - key: b\n",            //
		"domain: d\ndescriptors:\n- key: \"a\n- key: b\"\n- key: c\n", // quotes around an item
		"domain: d\ndescriptors:\n- key: [a,\n- key: b]\n",            //
		"domain: d\ndescriptors:\n\t- key: a\n",
		"domain: \"d\ndescriptors:\n- key: a\"\n",
		"domain: d\ndescriptors:\n", "domain: d\ndescriptors:\n- key: a\n...\nx: y\n", "domain: d\nx: {\ndescriptors:\n- key: a\n}",
		"%TAG !e! tag:example.org,2000:\n---\ndomain: d\ndescriptors:\n- key: !e!x a\n",
	} {
		if got := yaml.ReadInParts(text("f", content), 1); got != nil {
			t.Errorf("%q: got %+v", content, got)
		}
	}
}

// A long file is read in parts, and says where a mistake is.
func TestLongFile(t *testing.T) {
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n")
	for i := range 20_000 {
		fmt.Fprintf(&b, "  - key: k\n    value: v%d\n    rate_limit: {unit: day, requests_per_unit: 1}\n", i)
	}
	tree := load(t, text("f", b.String()))
	if rule := tree.Domain("d").Match(entries("k=v19999")); rule == nil || rule.Pos.String() != "f:60000:5" {
		t.Errorf("the last rule is %+v", rule)
	}
	for content, want := range map[string]string{
		b.String() + "  - key: k\n    value: v7\n": `f:60003:5: repeats key "k", value "v7" of f:24:5; a descriptor may be listed once`,
		b.String() + "  - key: \"k\n":              "f:60003:3: not valid YAML: found unexpected end of stream",
		b.String() + "  - {key: x, unit: [}\n":     "f:60003:3: not valid YAML: did not find expected node content",
	} {
		if _, _, err := yaml.Load([]yaml.Text{text("f", content)}, yaml.Options{}); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// FuzzParts holds what is read in parts to what is read as a whole.
func FuzzParts(f *testing.F) {
	for _, content := range inBlockStyle {
		f.Add([]byte(content), 1)
		f.Add([]byte(content), 20)
	}
	f.Fuzz(func(t *testing.T, content []byte, size int) {
		got := yaml.ReadInParts(yaml.Text{Name: "f", Content: content}, max(1, size))
		if got == nil || strings.Contains(string(content), "\n---") || strings.Contains(string(content), "\n...") {
			return
		}
		want := yaml.ReadWhole(yaml.Text{Name: "f", Content: content})
		if len(want.Problems)+len(want.Warnings) > 0 || !reflect.DeepEqual(got, want.Root) {
			t.Fatalf("%q: got\n%+v\nwant\n%+v %v %v", content, got, want.Root, want.Problems, want.Warnings)
		}
	})
}
