package yaml_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unicode/utf8"

	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
)

// FuzzLoad loads any text: the outcome is problems with a position, or rules that
// can be used.
func FuzzLoad(f *testing.F) {
	names, err := filepath.Glob("../../../config/*.yaml")
	if err != nil || len(names) == 0 {
		f.Fatal("no files in config/", err)
	}
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
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
			if !sendable(rule.Metadata) {
				t.Fatalf("%s: metadata cannot be sent: %v", rule.Path, rule.Metadata)
			}
			if rule.MetricKey(domain.Name, e) == "" || rule.Pos.Line < 1 {
				t.Fatalf("a rule without name or place: %+v", rule)
			}
		}
	})
}

// sendable reports whether structpb takes v.
func sendable(v any) bool {
	switch v := v.(type) {
	case nil, bool, int64, uint64, float64:
		return true
	case string:
		return utf8.ValidString(v)
	case []any:
		return !slices.ContainsFunc(v, func(v any) bool { return !sendable(v) })
	case map[string]any:
		for k, v := range v {
			if !utf8.ValidString(k) || !sendable(v) {
				return false
			}
		}
		return true
	}
	return false
}
