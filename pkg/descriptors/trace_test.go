package descriptors_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
)

// story is a trace in words: a line for each descriptor that was looked at.
func story(t descriptors.Trace) []string {
	var lines []string
	for _, s := range t.Path {
		line := fmt.Sprintf("%d %s %s at %s:%d", s.Depth, s.Match, descriptors.Entry{Key: s.Key, Value: s.Value}, s.File, s.Line)
		if s.Won {
			line += " won"
		}
		lines = append(lines, line+": "+s.Why)
	}
	if t.Rule != nil {
		return append(lines, "rule "+t.Rule.Path)
	}
	return append(lines, "no limit: "+t.Why)
}

func TestExplain(t *testing.T) {
	domain := load(t, yamlFile(`- key: plan
  value: free
  descriptors:
  - {key: user, `+limited+`}
  - {key: user, value: a, `+limited+`}
  - {key: user, value: "a*", `+limited+`}
  - {key: user, value: "*", `+limited+`}
- {key: plan, `+limited+`}
- key: tenant
- key: "x-*"
  descriptors:
  - {key: deep, descriptors: [{key: deeper, `+limited+`}]}
- {key: empty, descriptors: [{key: deep}]}
`)).Domain("d")
	const (
		exact    = "it has the entry's key and value"
		wildcard = "it is the first descriptor whose wildcards match"
		key      = "it has the entry's key and no value"

		free  = "1 exact plan_free at rules.yaml:3 won: " + exact + "\n1 key plan at rules.yaml:10: rules.yaml:3 goes first: " + exact + "\n"
		gold  = "1 none plan_free at rules.yaml:3: its value does not match the entry's; rules.yaml:10 won\n1 key plan at rules.yaml:10 won: " + key + "\n"
		other = "1 none x-* at rules.yaml:12: its key does not match the entry's"
		beat  = other + "; rules.yaml:"
	)
	for request, want := range map[string]string{
		"plan=free,user=a": free + beat + "3 won\n" +
			"2 key user at rules.yaml:6: rules.yaml:7 goes first: " + exact + "\n2 exact user_a at rules.yaml:7 won: " + exact + "\n" +
			"2 wildcard user_a* at rules.yaml:8: rules.yaml:7 goes first: " + exact + "\n2 wildcard user_* at rules.yaml:9: rules.yaml:7 goes first: " + exact + "\n" +
			"rule d.plan_free.user_a",
		"plan=free,user=ab": free + beat + "3 won\n" +
			"2 key user at rules.yaml:6: rules.yaml:8 goes first: " + wildcard + "\n2 none user_a at rules.yaml:7: its value does not match the entry's; rules.yaml:8 won\n" +
			"2 wildcard user_a* at rules.yaml:8 won: " + wildcard + "\n2 wildcard user_* at rules.yaml:9: shadowed by the wildcard above it, rules.yaml:8\n" +
			"rule d.plan_free.user_a*",
		"plan=gold": gold + beat + "10 won\nrule d.plan",
		"plan=free": free + beat + "3 won\nno limit: one entry too few: rules.yaml:3 has no limit of its own, only descriptors below it have; " +
			"the limit of d.plan (rules.yaml:10) is not reached, because rules.yaml:3 goes first and the choice is final",
		"plan=free,y=1": free + beat + "3 won\nno limit: no descriptor matches y=1 below rules.yaml:3",
		"plan=gold,user=a": gold + beat + "10 won\n" +
			"no limit: no descriptor matches user=a: one entry too many, because rules.yaml:10 has no descriptors below it",
		"plan=gold,user=a,b=c": gold + beat + "10 won\n" +
			"no limit: no descriptor matches user=a: 2 entries too many, because rules.yaml:10 has no descriptors below it",
		"tenant=x": "1 key tenant at rules.yaml:11 won: " + key + "\n" + beat + "11 won\nno limit: rules.yaml:11 has no limit",
		"x-id=1":   "1 wildcard x-* at rules.yaml:12 won: " + wildcard + "\nno limit: 2 entries too few: rules.yaml:12 has no limit of its own, only descriptors below it have",
		"empty=1":  beat + "15 won\n1 key empty at rules.yaml:15 won: " + key + "\nno limit: rules.yaml:15 has no limit, and no descriptor below it has one",
		"y":        other + "\nno limit: no descriptor matches y",
		"":         "no limit: the request's descriptor has no entries",
	} {
		trace := domain.Explain(entries(request), 100)
		if diff := cmp.Diff(strings.Split(want, "\n"), story(trace)); diff != "" {
			t.Errorf("%q: %s", request, diff)
		}
		if trace.Rule != domain.Match(entries(request)) {
			t.Errorf("%q: Explain has %v", request, trace.Rule)
		}
	}
	var none *descriptors.Domain
	if got := none.Explain(entries("a=1"), 100); got.Rule != nil || got.Why != "the domain has no rules" {
		t.Errorf("got %+v", got)
	}
}

// TestExplainManyDescriptors: a level with an index keeps the order of the rules,
// also over several files.
func TestExplainManyDescriptors(t *testing.T) {
	var one, two strings.Builder
	for i := range 20 {
		fmt.Fprintf(&one, "- {key: user, value: v%d, %s}\n", 19-i, limited)
		fmt.Fprintf(&two, "- {key: user, value: \"v%d*\", %s}\n", 19-i, limited)
	}
	b, a := yamlFile(one.String()), yamlFile(two.String())
	b.Name, a.Name = "b.yaml", "a.yaml"
	tree, _, err := yaml.Load([]yaml.Text{b, a}, rules.Options{MergeDomains: true})
	if err != nil {
		t.Fatal(err)
	}
	trace := tree.Domain("d").Explain(entries("user=v1x"), 100)
	var order []string
	for _, s := range trace.Path {
		order = append(order, s.Value)
	}
	if len(order) != 40 || order[0] != "v19" || order[19] != "v0" || order[20] != "v19*" || order[39] != "v0*" {
		t.Errorf("looked at in the order %q", order)
	}
	if trace.Rule == nil || trace.Rule.Path != "d.user_v1*" {
		t.Errorf("got %+v", trace.Rule)
	}
	few := tree.Domain("d").Explain(entries("user=v1x"), 3).Path
	if len(few) != 3 || few[2].More != 37 || few[1].Value != "v18" || !few[2].Won {
		t.Errorf("of 40 descriptors 3 are %+v", few)
	}
	if last := trace.Path[19]; last.Match != descriptors.Nothing || !strings.HasSuffix(last.Why, "; a.yaml:21 won") {
		t.Errorf("got %+v", last)
	}
}
