package yaml_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	library "go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"example.org/rls/internal/document"
	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
)

// FuzzLoad loads any text: the outcome is problems with a position, or rules that
// can be used.
func FuzzLoad(f *testing.F) {
	for _, file := range examples(f) {
		f.Add(file.Content)
	}
	for _, content := range []string{
		"", "domain: d", "domain: d\n---\nx", "&a domain: *a", "domain: d\n<<: [*a]", "a: &a [*a]", "domain: d\nmetadata: {? [a] : b}",
		"domain: d\ndescriptors: &d\n- &e {key: a*, value: '*b*', share_threshold: yes, rate_limit: &l {unit: day}}\n- {<<: *e, key: c, metadata: {a: *l, 1: .nan}}\n- {key: x, rate_limits: [*l, {<<: *l, strategy: gcra}]}\n",
		"domain: d\ndescriptors: [{key: k, rate_limit: {unit: year, unit_multiplier: 11, strategy: leaky_bucket, burst: 4294967295, max_delay: 9999999h}}]",
	} {
		f.Add([]byte(content))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		tree, _, err := yaml.Load([]yaml.Text{{Name: "f.yaml", Content: content}}, rules.Options{})
		if err != nil {
			var problems rules.Problems
			if !errors.As(err, &problems) || len(problems) == 0 || tree != nil {
				t.Fatalf("error %#v with tree %v", err, tree)
			}
			for _, p := range problems {
				if p.File != "f.yaml" || p.Line < 1 || p.Column < 1 || p.Message == "" {
					t.Fatalf("problem without a place: %#v", p)
				}
			}
			return
		}
		if len(tree.Domains()) != 1 {
			t.Fatalf("%d domains", len(tree.Domains()))
		}
		domain := tree.Domains()[0]
		for _, request := range []string{"k=v", "a=b,c=d", "x", "key_1=yes", "user=a", "c=abc"} {
			e := entries(request)
			rule := domain.Match(e)
			if rule == nil {
				continue
			}
			if rule.Unlimited == (len(rule.Limits) > 0) {
				t.Fatalf("%s: neither limited nor unlimited, or both", rule.Path)
			}
			if _, err := structpb.NewStruct(rule.Metadata); err != nil {
				t.Fatalf("%s: metadata cannot be sent: %v", rule.Path, err)
			}
			if rule.MetricKey(domain.Name, e) == "" || rule.Pos.Line < 1 {
				t.Fatalf("a rule without name or place: %+v", rule)
			}
		}
	})
}

// FuzzRead holds the values of a file to the nodes of the YAML library and to
// the Go values that it decodes them to. Booleans of YAML 1.1 and merge keys
// differ on purpose and are left out.
func FuzzRead(f *testing.F) {
	for _, content := range []string{
		"a: 1\nb: [1.5, 0x10, 010, 0o17, 0b11, 1_000, 08, -5, +5, .5, 1e3, .inf, .nan, ~, null, '', -080, -010, \"\\n\", 18446744073709551615, 99999999999999999999]\n",
		"a: &x {b: c, d: [*y]}\n", "a: &x {b: &y 5, c: *y}\nd: *x\n", "!!binary aGVsbG8=: !!int '5'\n", "- !!float 5\n- !!str 5\n- !!null ''\n- !!bool true\n- !other 5\n",
		"? [a]\n: b\n", "2001-01-01: 2001-01-01 10:00:00\n", "true: |\n  a\n  b\n", "- - - a\n", "[", "a: *b", "", "# c\n", "!!int x",
	} {
		f.Add([]byte(content))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		if bytes.Contains(content, []byte("---")) || bytes.Contains(content, []byte("...")) || bytes.Contains(content, []byte("<<")) || bytes.Count(content, []byte("*")) > 8 {
			return // several documents, merge keys, too many aliases to follow each
		}
		var doc library.Node
		err := library.Unmarshal(content, &doc)
		file := yaml.Read(yaml.Text{Name: "f", Content: content})
		switch {
		case len(file.Problems) > 0:
			if err == nil && !strings.Contains(fmt.Sprint(file.Problems), "stand") && !strings.Contains(fmt.Sprint(file.Problems), "is used inside") {
				t.Fatalf("%q is YAML: %v", content, file.Problems)
			}
		case err == nil && len(doc.Content) > 0:
			compare(t, doc.Content[0], file.Root)
		}
	})
}

func compare(t *testing.T, n *library.Node, v *document.Value) {
	if n.Kind == library.AliasNode {
		n = n.Alias
	}
	if v.At.Line != n.Line || v.At.Column != n.Column || v.At.File != "f" {
		t.Fatalf("%q is at %v, want %d:%d", n.Value, v.At, n.Line, n.Column)
	}
	if n.Kind != library.ScalarNode {
		if want := map[library.Kind]document.Kind{library.MappingNode: document.Map, library.SequenceNode: document.List}[n.Kind]; v.Kind != want || len(v.Content) != len(n.Content) {
			t.Fatalf("%s of %d, want %s of %d", v.Kind, len(v.Content), want, len(n.Content))
		}
		for i := range n.Content {
			compare(t, n.Content[i], &v.Content[i])
		}
		return
	}
	var is any
	err := n.Decode(&is)
	old := slices.Contains([]string{"y", "yes", "n", "no", "on", "off"}, strings.ToLower(n.Value))
	want := document.String
	switch is.(type) {
	case nil:
		want = document.Null
	case bool:
		want = document.Bool
	case int, int64:
		want = document.Int
	case uint64:
		want = document.Uint
	case float64:
		want = document.Float
	}
	if err != nil {
		want = document.Wrong
	}
	if v.Kind != want && !(old && v.Kind == document.Bool) && !(v.Kind == document.String && v.Text == n.Value && n.Tag != "" && !strings.HasPrefix(n.Tag, "!!")) && !(v.Kind == document.String && n.Tag == "!!timestamp") {
		t.Fatalf("%s %q is %s, want %s (%v)", n.Tag, n.Value, v.Kind, want, err)
	}
}
