package descriptors_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/pkg/descriptors"
)

// story is a trace in words: a line for each descriptor that was looked at.
func story(t descriptors.Trace) []string {
	var lines []string
	for depth, step := range t.Steps {
		for _, s := range step.Seen {
			line := fmt.Sprintf("%d %s", depth, s.By)
			if s.By != descriptors.Nothing {
				line += fmt.Sprintf(" %s at %s", s.Entry, s.Pos)
			}
			if s.Won {
				line += " won"
			}
			lines = append(lines, line+": "+s.Why)
		}
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
`)).Domain("d")
	const (
		exact    = "it has the entry's key and value"
		wildcard = "it is the first in the order of the rules whose wildcards match"
		key      = "it has the entry's key and no value"
		free     = "0 exact plan_free at rules.yaml:3:3 won: " + exact + "\n0 key plan at rules.yaml:10:3: exact goes before key\n"
	)
	for request, want := range map[string]string{
		"plan=free,user=a": free + "1 exact user_a at rules.yaml:7:5 won: " + exact + "\n1 wildcard user_a* at rules.yaml:8:5: exact goes before wildcard\n" +
			"1 key user at rules.yaml:6:5: exact goes before key\nrule d.plan_free.user_a",
		"plan=free,user=ab": free + "1 wildcard user_a* at rules.yaml:8:5 won: " + wildcard + "\n1 key user at rules.yaml:6:5: wildcard goes before key\nrule d.plan_free.user_a*",
		"plan=gold":         "0 key plan at rules.yaml:10:3 won: " + key + "\nrule d.plan",
		"plan=free":         free + "no limit: the last descriptor has no limit of its own, and the request has no entry for the descriptors below it",
		"plan=free,x=1":     free + "1 none: no descriptor here matches key \"x\", value \"1\"\nno limit: no descriptor takes entry 2",
		"plan=gold,user=a": "0 key plan at rules.yaml:10:3 won: " + key + "\n1 none: no descriptor stands below the one before\n" +
			"no limit: no descriptor takes entry 2: the request has more entries than the rule on its way",
		"tenant=x": "0 key tenant at rules.yaml:11:3 won: " + key + "\nno limit: the last descriptor has no limit",
		"y=1":      "0 none: no descriptor here matches key \"y\", value \"1\"\nno limit: no descriptor takes entry 1",
		"":         "no limit: the request's descriptor has no entries",
	} {
		trace := domain.Explain(entries(request))
		if diff := cmp.Diff(strings.Split(want, "\n"), story(trace)); diff != "" {
			t.Errorf("%q: %s", request, diff)
		}
		if trace.Rule != domain.Match(entries(request)) {
			t.Errorf("%q: Explain has %v", request, trace.Rule)
		}
	}
	var none *descriptors.Domain
	if got := none.Explain(entries("a=1")); got.Rule != nil || got.Why != "the domain has no rules" {
		t.Errorf("got %+v", got)
	}
}
