package descriptors_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"example.org/rls/pkg/descriptors"
)

// modelRule is a rule of the model, in the order of the file.
type modelRule struct {
	key, value string
	limited    bool
	below      []*modelRule
}

// modelMatch looks through all rules of a level once for each rule of precedence.
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

// word is a text of at most so many of the letters.
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

// FuzzMatch compares Match with a model that tries every rule.
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
			rule := domain.Match(request)
			if rule != nil {
				got = rule.Path
			}
			if trace := domain.Explain(request, 3); trace.Rule != rule || (trace.Why == "") != (rule != nil) || rule != nil && !slices.ContainsFunc(trace.Path, func(s descriptors.Step) bool { return s.Won }) {
				t.Fatalf("%q: Explain gives %+v, Match %q", request, trace, got)
			} else {
				checkWinners(t, trace)
			}
			if want := modelMatch(rules, request, "d"); got != want {
				t.Fatalf("%q matches %q, want %q, of\n%s", request, got, want, b.String())
			}
		}
	})
}

// checkWinners fails unless, at each depth, the descriptor that won is the first in
// the order of the rules of those that match in the best way.
func checkWinners(t *testing.T, trace descriptors.Trace) {
	t.Helper()
	precedence := []descriptors.By{descriptors.Exact, descriptors.Wildcard, descriptors.Key, descriptors.Nothing}
	best := map[int]*descriptors.Step{} // by depth
	for i := range trace.Path {
		s := &trace.Path[i]
		if first := best[s.Depth]; s.Match != descriptors.Nothing && (first == nil || slices.Index(precedence, s.Match) < slices.Index(precedence, first.Match)) {
			best[s.Depth] = s
		}
	}
	for i := range trace.Path {
		if s := &trace.Path[i]; s.Won != (s == best[s.Depth]) || s.Why == "" {
			t.Fatalf("%+v, and the best is %+v", trace.Path, best[s.Depth])
		}
	}
}
