package descriptors

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v3"
)

// plainFiles are files that the fast parser reads itself.
var plainFiles = []string{
	"domain: d\n",
	"domain: d",
	"domain:\n",
	"domain:\ndescriptors:\n",
	"# c\n\ndomain: d # c\ndescriptors:   # c\n  # c\n  - key: a\n    value: b\n",
	"domain: d\ndescriptors:\n- key: a\n  rate_limit:\n    unit: minute\n    requests_per_unit: 5\n- key: b\ncharge: always\n",
	"domain: d\ndescriptors:\n  - key: a\n    descriptors:\n    - key: b\n      descriptors:\n        - key: c\n          rate_limit: {unit: minute, requests_per_unit: 5}\n  - {key: \"a b\", value: 'x*y', rate_limit: {unit: day}} # c\n",
	"domain: d\ndescriptors:\n  -   key: a\n      value: /v1/*/x\n  -   key: a\n",
	"  \ndomain: 10.0.0.1\n",
	"a: {b: {c: d},e: f}\n",
	"a: http://x:80/p,q=1@z\n",
}

func TestPlainFilesAreReadFast(t *testing.T) {
	for _, content := range plainFiles {
		if _, ok := parsePlain([]byte(content), new(nodePool)); !ok {
			t.Errorf("left to the YAML library: %q", content)
		}
		checkPlain(t, []byte(content))
	}
}

// FuzzPlain holds the fast parser to the YAML library.
func FuzzPlain(f *testing.F) {
	for _, content := range plainFiles {
		f.Add([]byte(content))
	}
	for _, content := range []string{
		"a: b\n c: d\n", "a: b\n  - c\n", "a:\n  b\n", "a: b c\n", "a: 'b'c\n", "a: 'b''c'\n", "a: \"b\\n\"\n", "a: b#c\n", "a: {b: c}#d\n", "a: {b: c\n}\n",
		"a:\n- b: c\n - d: e\n", "a:\n - b: c\n- d: e\n", "---\na: b\n", "a: b\n...\n", "a: b\n---\nc: d\n", "a: -\n", "a: *b\n", "a: b:\n", "a: b:: c\n", "a: b:#c\n", "a: {b: c:d}\n", "a: b: c\n", "a:  b  \n", "a: - b\n",
		"a: {b: c} d\n", "a: 'b' c\n", "a: 'b',\n", "- a: b\n", "a:\n  b: c\n d: e\n", "a:\n    b: c\n  d: e\n",
		"a: {b: 'é', c: d}\n", "a: b # \x01\n", "a: 'b\x01'\n", "a: 'b\tc'\n", "a: b\r\n", "- {a: b}\n    c: d\n", "a:\n- {a: b}\n  c: d\n",
	} {
		f.Add([]byte(content))
	}
	files, _ := filepath.Glob("../../config/*.yaml")
	for _, name := range files {
		if content, err := os.ReadFile(name); err == nil {
			f.Add(content)
		}
	}
	f.Fuzz(checkPlain)
}

func checkPlain(t *testing.T, content []byte) {
	root, ok := parsePlain(content, new(nodePool))
	if !ok {
		return
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(content, &doc); err != nil {
		t.Fatalf("%q: read fast, but %v", content, err)
	}
	if got, want := sketch(root), sketch(doc.Content[0]); got != want {
		t.Errorf("%q:\nfast    %s\nlibrary %s", content, got, want)
	}
	if first, line := cutDocument(content); line > 0 {
		t.Errorf("%q: read fast, but another document starts after %q", content, first)
	}
}

// sketch is what matters of a node.
func sketch(n *yaml.Node) string {
	s := fmt.Sprintf("%d@%d:%d", n.Kind, n.Line, n.Column)
	if n.Kind == yaml.ScalarNode {
		v := readScalar(n)
		return fmt.Sprintf("%s=%s %q", s, v.kind, v.text)
	}
	s += "("
	for _, c := range n.Content {
		s += sketch(c) + " "
	}
	return s + ")"
}
