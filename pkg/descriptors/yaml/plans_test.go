package yaml_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
)

func TestPlanProblems(t *testing.T) {
	_, _, err := yaml.Load([]yaml.Text{text("a.yaml", `domain: d
plans:
  free: {unit: minute, requests_per_unit: 100, burst: 3}
  "": {unit: minute}
  unlimited: {unit: day, requests_per_unit: 1}
  pro: [{unit: minute, requests_per_unit: 1}, {unit: minute, requests_per_unit: 2}]
  good: {unit: hour, requests_per_unit: 1}
  good: {unit: hour, requests_per_unit: 2}
  none:
  empty: []
  items: [5]
  deep: {plan: good}
  deeper: [{unit: day, requests_per_unit: 1}, {plan: good}, {unlimited: true}]
  text: free
  lends: {unit: day, requests_per_unit: 1, borrow_from: spare}
  held: {unit: day, requests_per_unit: 1, reserve: true}
descriptors:
  - {key: a, rate_limit: {plan: gold}}
  - {key: b, rate_limit: {plan: good, unit: day, burst: 5, shadow_mode: true}}
  - {key: c, rate_limit: {plan: ""}}
  - {key: e, rate_limits: [{plan: good}]}
  - {key: f, plan: good, rate_limit: {unlimited: true, plan: good}}
  - {key: g, detailed_metric: true, rate_limit: {plan: held}}
  - {key: h, rate_limit: {plan: [good]}}
  - {key: i, rate_limit: {plan: good, name: x, replaces: [{name: x}]}}
`), text("b.yaml", `domain: e
plans: [x]
descriptors: [{key: a, rate_limit: {plan: unlimted}}]
`), text("c.yaml", `domain: f
plans: {unlimited: {unit: day}}
descriptors: [{key: a, rate_limit: {plan: gold}}]
`)}, rules.Options{})
	want := `a.yaml:3:55: plans.free.burst: fixed_window has no burst; token_bucket, gcra and leaky_bucket have
a.yaml:4:3: plans: the name of a plan must be a string that is not empty, not the string ""
a.yaml:5:3: plans.unlimited: is always the plan without a limit; give this plan another name
a.yaml:6:47: plans.pro[1]: has the strategy and window of "1 per minute" before it and would share its counter; keep the stricter one or change the window
a.yaml:8:3: plans.good: "good" is already a plan of the domain in a.yaml:7:3; give it another name
a.yaml:9:8: plans.none.unit: is missing; one of second, minute, hour, day, week, month, year
a.yaml:10:10: plans.empty: must have at least one limit
a.yaml:11:11: plans.items[0]: must be a mapping, not 5
a.yaml:12:16: plans.deep.plan: belongs into rate_limit: a list of limits and a plan name no plan
a.yaml:13:54: plans.deeper[1].plan: belongs into rate_limit: a list of limits and a plan name no plan
a.yaml:13:73: plans.deeper[2].unlimited: belongs into rate_limit: an unlimited descriptor has no list of limits
a.yaml:14:9: plans.text: must be a mapping, not the string "free"
a.yaml:15:57: plans.lends.borrow_from: unknown pool "spare": the domain has no pools; add the pool to pools, which stands at the top of a file, and over xDS in metadata.rls
a.yaml:18:33: rate_limit.plan: unknown plan "gold"; did you mean "good"?
a.yaml:19:39: rate_limit.unit: must not be given with plan, whose limits say it
a.yaml:19:50: rate_limit.burst: must not be given with plan, whose limits say it
a.yaml:19:60: rate_limit.shadow_mode: must not be given with plan, whose limits say it
a.yaml:20:33: rate_limit.plan: must not be empty; it is the name of a plan
a.yaml:21:35: rate_limits[0].plan: belongs into rate_limit: a list of limits and a plan name no plan
a.yaml:22:14: plan: has no meaning here; it belongs into rate_limit
a.yaml:22:39: rate_limit.unlimited: must not be given with plan, whose limits say it
a.yaml:23:31: detailed_metric: has no meaning beside reserve: the value of "g" is the id of a reservation, which is in no counter and in no metric
a.yaml:24:33: rate_limit.plan: must not be a list; want a name in plans
a.yaml:25:66: rate_limit.replaces[0].name: a limit cannot replace itself ("x")
b.yaml:2:8: plans: must be a mapping of names and limits, not a list
b.yaml:3:43: rate_limit.plan: unknown plan "unlimted"; did you mean "unlimited"?
c.yaml:2:9: plans.unlimited: is always the plan without a limit; give this plan another name
c.yaml:3:43: rate_limit.plan: unknown plan "gold"; one of unlimited`
	if err == nil {
		t.Fatal("no problems")
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Error(diff)
	}
}

// A limit of a plan cannot replace itself by the rule's name or replaces, also not in a row.
func TestPlanThatReplacesItself(t *testing.T) {
	inFolder(t, map[string]string{"t.csv": "value,plan\na,free\nb,one\n"})
	const free, one = "free: {unit: day, requests_per_unit: 1}", "one: {unit: day, requests_per_unit: 1, name: n, replaces: [{name: m}]}"
	const fault = ` the rule has a name or replaces with which the limit %q of the plan "one" would replace itself`
	for limit, want := range map[string]string{
		"plan: one, replaces: [{name: n}]":                                          `rules.yaml:4:31: rate_limit.plan:` + fmt.Sprintf(fault, "n"),
		"plan: one, name: m":                                                        `rules.yaml:4:31: rate_limit.plan:` + fmt.Sprintf(fault, "m"),
		"plan: free, replaces: [{name: n}], table: t.csv":                           `t.csv:3: plan:` + fmt.Sprintf(fault, "n"),
		"plan: free, name: m, table: t.csv":                                         `t.csv:3: plan:` + fmt.Sprintf(fault, "m"),
		"plan: one, name: x, replaces: [{name: n}], table: t.csv":                   "",
		"unit: hour, requests_per_unit: 1, replaces: [{name: other}], table: t.csv": "",
	} {
		file := text("rules.yaml", "domain: d\nplans: {"+free+", "+one+"}\ndescriptors:\n- {key: k, rate_limit: {"+limit+"}}\n")
		_, _, err := yaml.Load([]yaml.Text{file}, rules.Options{})
		if got := fmt.Sprint(err); got != want && (want != "" || err != nil) {
			t.Errorf("%s:\n%s\nnot\n%s", limit, got, want)
		}
	}
}

const plans = `domain: d
plans: {free: {unit: minute, requests_per_unit: 10}, pro: [{unit: second, requests_per_unit: 5, name: fast}, {unit: day, requests_per_unit: 1000}], open: {unlimited: true}}
`

const planned = `domain: d
descriptors:
- {key: a, rate_limit: {plan: free}}
- {key: b, rate_limit: {plan: pro, name: all, replaces: [{name: x}]}}
- {key: c, rate_limit: {plan: pro}}
- {key: o, rate_limit: {plan: open, name: none}}
- {key: u, rate_limit: {plan: unlimited, replaces: [{name: x}]}}
`

// A plan is for all files of its domain. Each rule has the limits for itself, with its own name.
func TestPlansOfADomain(t *testing.T) {
	merged := rules.Options{MergeDomains: true, Share: 500_000}
	tree, warnings := loadWith(t, merged, text("a.yaml", planned), text("b.yaml", plans))
	if warnings != "" {
		t.Error(warnings)
	}
	want := `d.a: unit=MINUTE requests_per_unit=5, shadow_mode: false, quota_mode: false, plan: free, limit_share: 50% of 10
d.b: unit=DAY requests_per_unit=500, shadow_mode: false, quota_mode: false, plan: pro, limit_share: 50% of 1000
d.b: unit=SECOND requests_per_unit=2, shadow_mode: false, quota_mode: false, plan: pro, limit_share: 50% of 5
d.c: unit=DAY requests_per_unit=500, shadow_mode: false, quota_mode: false, plan: pro, limit_share: 50% of 1000
d.c: unit=SECOND requests_per_unit=2, shadow_mode: false, quota_mode: false, plan: pro, limit_share: 50% of 5
d.o: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false, plan: open
d.u: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false, plan: unlimited
`
	if diff := cmp.Diff(want, rules.Dump(tree)); diff != "" {
		t.Error(diff)
	}
	match := func(key string) string {
		r := tree.Domain("d").Match(entries(key))
		names := []string{r.Plan, r.Name, strings.Join(r.Replaces, "+")}
		for i := range r.Limits {
			names = append(names, r.Limits[i].Name, strings.Join(r.Limits[i].Replaces, "+"))
		}
		return strings.Join(names, " ")
	}
	for key, want := range map[string]string{"a=x": "free    ", "b=x": "pro   all x all x", "c=x": "pro   fast   ", "o=x": "open none ", "u=x": "unlimited  x"} {
		if got := match(key); got != want {
			t.Errorf("%s: %q, not %q", key, got, want)
		}
	}
	if b, c := tree.Domain("d").Match(entries("b=x")), tree.Domain("d").Match(entries("c=x")); &b.Limits[0] == &c.Limits[0] {
		t.Error("two rules share a limit, and would share its metrics")
	}
	_, _, err := yaml.Load([]yaml.Text{text("a.yaml", planned), text("b.yaml", plans), text("c.yaml", plans)}, merged)
	if err == nil || !strings.Contains(err.Error(), `c.yaml:2:9: plans.free: "free" is already a plan of the domain in b.yaml:2:9; give it another name`) {
		t.Error(err)
	}
}

// A descriptor whose plan is unknown is left out alone.
func TestUnknownPlanIsLeftOut(t *testing.T) {
	tree, _, err := yaml.Load([]yaml.Text{text("a.yaml", plans+`descriptors:
- {key: a, rate_limit: {plan: fre}}
- {key: b, rate_limit: {plan: free}}
`)}, rules.Options{SkipWrong: true})
	if d := tree.Domain("d"); err == nil || d.Match(entries("a=x")) != nil || d.Match(entries("b=x")) == nil {
		t.Error(rules.Dump(tree), err)
	}
}

// The hash of rules knows the plan of a rule and the limits of the plan.
func TestHashOfPlans(t *testing.T) {
	all := plans + strings.TrimPrefix(planned, "domain: d\n")
	seen := map[uint64]string{}
	for _, change := range [][2]string{{"", ""}, {"unit: 10}", "unit: 11}"}, {"plan: free", "plan: pro"}, {"free", "cheap"}, {"name: fast", "name: slow"}, {"plan: open", "plan: unlimited"}} {
		h := load(t, text("a.yaml", strings.ReplaceAll(all, change[0], change[1]))).Hash()
		if other, again := seen[h]; again {
			t.Errorf("%q has the hash of %q", change[1], other)
		}
		seen[h] = change[1]
	}
}

// TestPolicyOfADomain: the policy of one file of a domain is that of limits in its other files, and of limits
// of plans, pools and rows.
func TestPolicyOfADomain(t *testing.T) {
	inFolder(t, map[string]string{"rows.csv": "value,requests_per_unit,unit\nx,5,day\n"})
	tree, _ := loadWith(t, rules.Options{MergeDomains: true, OnError: descriptors.PolicyDeny}, text("a.yaml", planned+`- {key: r, rate_limit: {unlimited: true, table: rows.csv}}
- {key: s, rate_limit: {unit: day, requests_per_unit: 1, borrow_from: p}}
- {key: own, rate_limit: {unit: day, requests_per_unit: 1, on_error: local}}
`), text("b.yaml", plans+"pools: {p: {unit: day, requests_per_unit: 9}}\non_error: allow\n"), text("c.yaml", "domain: e\ndescriptors:\n- {key: r, rate_limit: {unlimited: true, table: rows.csv}}\n"))
	d := tree.Domain("d")
	for request, want := range map[string]descriptors.Policy{"a=x": descriptors.PolicyAllow, "b=x": descriptors.PolicyAllow, "r=x": descriptors.PolicyAllow, "s=x": descriptors.PolicyAllow, "own=x": descriptors.PolicyLocal} {
		for _, l := range d.Match(entries(request)).Limits {
			if l.OnError != want || l.Borrow != nil && (l.Borrow.Cell.OnError != want || l.Borrow.Pool.Limits[0].OnError != want) {
				t.Errorf("%s: %v, want %v", request, l.OnError, want)
			}
		}
	}
	if got := tree.Domain("e").Match(entries("r=x")).Limits[0].OnError; d.Default.OnError != descriptors.PolicyAllow || got != descriptors.PolicyDeny {
		t.Errorf("the domain has %v, and a domain without a policy %v", d.Default.OnError, got)
	}
}

// A file whose policy is wrong has none, which differs from no other; a wrong plan is read to its end.
func TestProblemsOfDomainsFollowNoOther(t *testing.T) {
	_, _, err := yaml.Load([]yaml.Text{
		text("a.yaml", "domain: d\non_error: allow\ncharge: admitted\n"),
		text("b.yaml", "domain: d\non_error: alow\ncharge: rarely\nplans: {one: [{unit: day, requests_per_unit: 1, borrow_from: p}, {unit: eon}]}\n"),
	}, rules.Options{MergeDomains: true})
	want := `b.yaml:2:11: on_error: unknown policy "alow"; did you mean "allow"?
b.yaml:3:9: charge: unknown charge "rarely"; one of always, admitted
b.yaml:4:62: plans.one[0].borrow_from: unknown pool "p": the domain has no pools; add the pool to pools, which stands at the top of a file, and over xDS in metadata.rls
b.yaml:4:73: plans.one[1].unit: unknown unit "eon"; one of second, minute, hour, day, week, month, year`
	if err == nil || err.Error() != want {
		t.Errorf("%v\nnot\n%s", err, want)
	}
}
