package descriptors_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"example.org/rls/pkg/descriptors"
)

// FuzzLoad gives the loader anything: it must say what is wrong and where, or
// give rules that can be used.
func FuzzLoad(f *testing.F) {
	names, err := filepath.Glob("../../config/*.yaml")
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
		tree, _, err := descriptors.Load([]descriptors.File{{Name: "f.yaml", Content: content}}, descriptors.Options{})
		if err != nil {
			var problems descriptors.Problems
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

// modelRule is a rule of the model, in the order of the file.
type modelRule struct {
	key, value string
	limited    bool
	below      []*modelRule
}

// modelMatch looks at every rule of a level in turn, three times.
func modelMatch(rules []*modelRule, request []descriptors.Entry, path string) string {
	e := request[0]
	find := func(fits func(*modelRule) bool) *modelRule {
		if i := slices.IndexFunc(rules, fits); i >= 0 {
			return rules[i]
		}
		return nil
	}
	r := find(func(r *modelRule) bool { return r.value != "" && r.key == e.Key && r.value == e.Value })
	if r == nil {
		r = find(func(r *modelRule) bool {
			return strings.Contains(r.key+r.value, "*") && globMatches(r.key, e.Key) && (r.value == "" || globMatches(r.value, e.Value))
		})
	}
	if r == nil {
		r = find(func(r *modelRule) bool { return r.value == "" && r.key == e.Key })
	}
	if r == nil {
		return ""
	}
	path += "." + r.key
	if r.value != "" {
		path += "_" + r.value
	}
	switch {
	case len(request) > 1:
		return modelMatch(r.below, request[1:], path)
	case r.limited:
		return path
	}
	return ""
}

// globMatches tries every length for the first star.
func globMatches(glob, s string) bool {
	if glob == "" {
		return s == ""
	}
	if glob[0] != '*' {
		return s != "" && s[0] == glob[0] && globMatches(glob[1:], s[1:])
	}
	for i := range len(s) + 1 {
		if globMatches(glob[1:], s[i:]) {
			return true
		}
	}
	return false
}

// choices turns a fuzzer's bytes into choices.
type choices struct{ data []byte }

func (c *choices) below(n int) int {
	if len(c.data) == 0 {
		return 0
	}
	b := c.data[0]
	c.data = c.data[1:]
	return int(b) % n
}

// word has up to most letters of a few.
func (c *choices) word(letters string, most int) string {
	var b strings.Builder
	for range c.below(most + 1) {
		b.WriteByte(letters[c.below(len(letters))])
	}
	return b.String()
}

func (c *choices) rules(depth int) []*modelRule {
	var rules []*modelRule
	for range c.below(12) {
		r := &modelRule{key: c.word("ab_*", 3), value: c.word("aab**", 5), limited: c.below(4) > 0}
		if c.below(2) == 0 {
			r.key = strings.ReplaceAll(r.key, "*", "a")
		}
		same := func(o *modelRule) bool { return o.key == r.key && o.value == r.value }
		if r.key == "" || slices.ContainsFunc(rules, same) {
			continue
		}
		if depth > 1 && c.below(2) == 0 {
			r.below = c.rules(depth - 1)
		}
		rules = append(rules, r)
	}
	return rules
}

func writeRules(b *strings.Builder, indent string, rules []*modelRule) {
	for _, r := range rules {
		fmt.Fprintf(b, "%s- key: %q\n%s  value: %q\n", indent, r.key, indent, r.value)
		if r.limited {
			fmt.Fprintf(b, "%s  %s\n", indent, limited)
		}
		if len(r.below) > 0 {
			fmt.Fprintf(b, "%s  descriptors:\n", indent)
			writeRules(b, indent+"  ", r.below)
		}
	}
}

// FuzzMatch holds Match to a model that tries every rule.
func FuzzMatch(f *testing.F) {
	f.Add([]byte("\x05\x01\x00\x02\x03\x04\x01\x02\x05\x01\x02\x03"))
	for i := range 40 {
		data := make([]byte, 400)
		for j := range data {
			data[j] = byte((j*j*(2*i+3) + j*(i+7)*11 + i) >> 1)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &choices{data}
		rules := c.rules(3)
		var b strings.Builder
		writeRules(&b, "", rules)
		domain := load(t, yamlFile(b.String())).Domain("d")
		for range 12 {
			request := make([]descriptors.Entry, 1+c.below(3))
			for i := range request {
				request[i] = descriptors.Entry{Key: c.word("ab_*", 3), Value: c.word("aaabb*", 6)}
			}
			got := ""
			if rule := domain.Match(request); rule != nil {
				got = rule.Path
			}
			if want := modelMatch(rules, request, "d"); got != want {
				t.Fatalf("%q matches %q, want %q, of\n%s", request, got, want, b.String())
			}
		}
	})
}
