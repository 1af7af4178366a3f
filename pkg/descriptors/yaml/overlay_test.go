package yaml_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	library "go.yaml.in/yaml/v3"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/match"
	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
)

// overlay is a file o.yaml with overlays.
func overlay(content string) yaml.Text {
	return yaml.Text{Name: "o.yaml", Content: []byte("overlays:\n" + content), Overlay: true}
}

// own is the part of the lines of /rlconfig behind what envoyproxy/ratelimit prints, by rule.
func own(tree *descriptors.Tree) string {
	all := regexp.MustCompile(`unit=[A-Z]+ requests_per_unit=|, shadow_mode: false|, quota_mode: false`).ReplaceAllString(rules.Dump(tree), "")
	return strings.TrimSuffix(all, "\n")
}

func TestOverlaysSetWhatRulesHaveNotWritten(t *testing.T) {
	const gateway = `domain: eg/http
descriptors:
- key: route/a
  value: route/a
  descriptors:
  - {key: rule-0, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: rule-1, rate_limit: {unit: minute, requests_per_unit: 2, strategy: gcra, burst: 3}}
  - {key: free, rate_limit: {unlimited: true}}
- key: several
  rate_limits:
  - {unit: day, requests_per_unit: 4, name: short}
  - {unit: hour, requests_per_unit: 5, name: long, on_error: allow}
- {key: none}
`
	for _, tt := range []struct{ name, overlays, want string }{
		{"a domain", `- {domain: "eg/*", set: {on_error: local}}`, `eg/http.route/a_route/a.free: 0
eg/http.route/a_route/a.rule-0: 1, on_error: local, overlay: on_error from o.yaml:2
eg/http.route/a_route/a.rule-1: 2, strategy: gcra, burst: 3, on_error: local, overlay: on_error from o.yaml:2
eg/http.several: 4, on_error: local, overlay: on_error from o.yaml:2
eg/http.several: 5, on_error: allow`},
		{"the first elements of a path", `- {path: [{key: "route/*"}], set: {strategy: token_bucket, burst: 50}}`, `eg/http.route/a_route/a.free: 0
eg/http.route/a_route/a.rule-0: 1, strategy: token_bucket, burst: 50, overlay: burst, strategy from o.yaml:2
eg/http.route/a_route/a.rule-1: 2, strategy: gcra, burst: 3
eg/http.several: 4
eg/http.several: 5, on_error: allow`},
		{"by force", `- path: [{key: route/a, value: "*/a"}, {key: rule-1}]
  force: true
  set:
    strategy: token_bucket
    requests_per_unit: 9`, `eg/http.route/a_route/a.free: 0
eg/http.route/a_route/a.rule-0: 1
eg/http.route/a_route/a.rule-1: 9, strategy: token_bucket, burst: 3, overlay: strategy from o.yaml:5; requests_per_unit from o.yaml:6
eg/http.several: 4
eg/http.several: 5, on_error: allow`},
		{"a name", `- {name: l*, set: {on_error: deny, rollout: 10%, shadow_mode: false}}`, `eg/http.route/a_route/a.free: 0
eg/http.route/a_route/a.rule-0: 1
eg/http.route/a_route/a.rule-1: 2, strategy: gcra, burst: 3
eg/http.several: 4
eg/http.several: 5, on_error: allow, rollout: 10%, overlay: rollout, shadow_mode from o.yaml:2`},
		{"shadow mode", `- {path: [{key: several}], set: {shadow_mode: true}}`, `eg/http.route/a_route/a.free: 0
eg/http.route/a_route/a.rule-0: 1
eg/http.route/a_route/a.rule-1: 2, strategy: gcra, burst: 3
eg/http.several: 4, shadow_mode: true, overlay: shadow_mode from o.yaml:2
eg/http.several: 5, shadow_mode: true, on_error: allow, overlay: shadow_mode from o.yaml:2`},
		{"of two the later one", `- {domain: "*", set: {on_error: deny, rollout: 10%}}
- {path: [{key: route/a}, {key: rule-0}], set: {on_error: local}}`, `eg/http.route/a_route/a.free: 0
eg/http.route/a_route/a.rule-0: 1, on_error: local, rollout: 10%, overlay: rollout from o.yaml:2; on_error from o.yaml:3
eg/http.route/a_route/a.rule-1: 2, strategy: gcra, burst: 3, on_error: deny, rollout: 10%, overlay: on_error, rollout from o.yaml:2
eg/http.several: 4, on_error: deny, rollout: 10%, overlay: on_error, rollout from o.yaml:2
eg/http.several: 5, on_error: allow, rollout: 10%, overlay: rollout from o.yaml:2`},
		{"none", ` []`, `eg/http.route/a_route/a.free: 0
eg/http.route/a_route/a.rule-0: 1
eg/http.route/a_route/a.rule-1: 2, strategy: gcra, burst: 3
eg/http.several: 4
eg/http.several: 5, on_error: allow`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tree, _, err := yaml.Load([]yaml.Text{text("eg.yaml", gateway), overlay(tt.overlays)}, rules.Options{})
			got := "refused"
			if err == nil {
				got = own(tree)
			}
			if got != tt.want {
				t.Errorf("got\n%s\nwant\n%s\n%v", got, tt.want, err)
			}
		})
	}
}

// Rules that get their fields from an overlay are the rules that have written them.
func TestOverlaidRulesHaveTheHashOfWrittenOnes(t *testing.T) {
	const rest = "unit: minute, requests_per_unit: 1"
	written := load(t, rulesOfD("- {key: k, rate_limit: {"+rest+", shadow_mode: true, strategy: gcra, burst: 5, lease: {share: 20%}}}"))
	plain := rulesOfD("- {key: k, rate_limit: {" + rest + "}}")
	laid := load(t, plain, overlay(`- {domain: d, set: {lease: {share: 20%}, burst: 5, strategy: gcra, shadow_mode: true}}`))
	if laid.Hash() != written.Hash() || laid.Hash() == load(t, plain).Hash() {
		t.Errorf("hash %d, of written rules %d, of rules without the overlay %d", laid.Hash(), written.Hash(), load(t, plain).Hash())
	}
}

// An overlay changes the limit of a rule with a table, and so what the empty fields of rows are; a
// plan and a table of an overlay come from beside the overlay.
func TestOverlaysAndTables(t *testing.T) {
	inFolder(t, map[string]string{
		"amounts.csv": "value,requests_per_unit\nacme,50\nsame,\n", "over/plans.csv": "value,plan\nacme,gold\nsame,\n",
	})
	file := text("a.yaml", `domain: d
plans: {gold: {unit: day, requests_per_unit: 9}, free: {unit: day, requests_per_unit: 2}}
descriptors:
- {key: a, rate_limit: {unit: minute, requests_per_unit: 1, table: amounts.csv}}
- {key: b, rate_limit: {unit: minute, requests_per_unit: 1}}
- {key: c, rate_limit: {unit: minute, requests_per_unit: 1}}
`)
	over := overlay(`- {path: [{key: a}], set: {strategy: gcra, burst: 7}}
- {path: [{key: b}], set: {plan: free, table: plans.csv}}
- {path: [{key: c}], set: {table: {url: "https://h/t", every: 1s}}}`)
	over.Name = "over/o.yaml"
	rows := func(url string, every time.Duration) (*rules.Table, error) {
		return rules.ReadTable(url, strings.NewReader("value,requests_per_unit\nacme,6\n"))
	}
	tree, _ := loadWith(t, rules.Options{Fetched: rows}, file, over)
	d := tree.Domain("d")
	for request, want := range map[string]string{
		"a=acme": "50 burst 7 amounts.csv:2", "a=same": "1 burst 7 amounts.csv:3", "a=new": "1 burst 7",
		"b=acme": "gold 9 over/plans.csv:2", "b=same": "free 2 over/plans.csv:3", "b=new": "free 2",
		"c=acme": "6 https://h/t:2", "c=new": "1",
	} {
		of := entries(request)
		rule := d.Match(of)
		got := fmt.Sprint(rule.Plan, " ", rule.Limits[0].Requests)
		if burst := rule.Limits[0].WrittenBurst; burst > 0 {
			got += fmt.Sprint(" burst ", burst)
		}
		if row := rule.Row(of); row.Line > 0 {
			got += " " + row.String()
		}
		if strings.TrimSpace(got) != want {
			t.Errorf("%s: %s, want %s", request, got, want)
		}
	}
	_, _, err := yaml.Load([]yaml.Text{file, overlay(`- {path: [{key: b}], set: {table: none.csv}}`)}, rules.Options{})
	if want := "o.yaml:2:35: overlays[0].set.table: none.csv cannot be read: no such file or directory (laid over the rule at a.yaml:5:3)"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A plan from an overlay takes the place of what a rule says, and fields of overlays give way to the
// plan of a rule.
func TestPlansFromOverlays(t *testing.T) {
	file := text("a.yaml", `domain: d
plans: {gold: [{unit: day, requests_per_unit: 9}, {unit: hour, requests_per_unit: 8}]}
descriptors:
- {key: a, rate_limit: {unit: minute, requests_per_unit: 1}}
- {key: b, rate_limit: {plan: gold}}
- {key: c, rate_limit: {unit: minute, requests_per_unit: 1, strategy: gcra}}
`)
	const want = `d.a: 9, plan: gold, overlay: plan from o.yaml:2
d.a: 8, plan: gold, overlay: plan from o.yaml:2
d.b: 9, plan: gold
d.b: 8, plan: gold
d.c: 1, strategy: gcra, burst: 1, on_error: deny, overlay: on_error from o.yaml:3`
	tree := load(t, file, overlay(`- {path: [{key: a}], set: {plan: gold}}
- {domain: d, set: {on_error: deny}}`))
	if got := own(tree); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	_, _, err := yaml.Load([]yaml.Text{file, overlay(`- {path: [{key: a}], set: {plan: silver}}`)}, rules.Options{})
	if want := `o.yaml:2:34: overlays[0].set.plan: unknown plan "silver"; one of gold, unlimited (laid over the rule at a.yaml:4:3)`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// The fields beside a plan, and a plan without a limit, say which overlay they are from; a row with a
// plan of its own does not have it from the overlay.
func TestFieldsBesidePlansSayTheirOverlay(t *testing.T) {
	inFolder(t, map[string]string{"t.csv": "value,plan\nacme,gold\n", "u.csv": "value,requests_per_unit,unit\nacme,5,day\n"})
	file := text("a.yaml", `domain: d
plans: {gold: {unit: day, requests_per_unit: 9}}
descriptors:
- {key: a, rate_limit: {plan: gold}}
- {key: b, rate_limit: {unit: minute, requests_per_unit: 1, on_error: deny}}
- {key: c, rate_limit: {plan: unlimited}}
`)
	tree := load(t, file, overlay(`- {path: [{key: a}], set: {replaces: [{name: x}], table: t.csv}}
- {path: [{key: b}], force: true, set: {plan: unlimited, table: t.csv}}
- {path: [{key: c}], set: {table: u.csv}}`))
	for request, want := range map[string]string{
		"a=x": "replaces, table from o.yaml:2", "a=acme": "replaces, table from o.yaml:2",
		"b=x": "plan, table from o.yaml:3", "b=acme": "table from o.yaml:3",
		"c=x": "table from o.yaml:4", "c=acme": "table from o.yaml:4",
	} {
		rule := tree.Domain("d").Match(entries(request))
		laid := rule.Laid
		if len(rule.Limits) > 0 {
			laid = rule.Limits[0].Laid
		}
		if laid.String() != want {
			t.Errorf("%s: %q, not %q", request, laid, want)
		}
	}
	for _, want := range []string{"d.a: 9, plan: gold", "d.b: 0, plan: unlimited", "d.c: 0, plan: unlimited"} {
		if line := regexp.MustCompile(regexp.QuoteMeta(want) + ".*overlay: .*table from o.yaml").FindString(own(tree)); line == "" {
			t.Errorf("no line %q with its overlay in\n%s", want, own(tree))
		}
	}
}

func TestRepeatedAndMergedFieldsAreWritten(t *testing.T) {
	tree, _ := loadWith(t, rules.Options{}, text("a.yaml", `domain: d
descriptors:
- &base
  key: c
  rate_limit: {unit: minute, requests_per_unit: 1, strategy: gcra}
- <<: *base
  key: a
  rate_limit: {unit: hour}
- <<: *base
  key: b
`), overlay(`- {domain: d, set: {strategy: token_bucket, burst: 2}}
- {domain: d, force: true, set: {on_error: deny}}`))
	const want = `d.a: 1, strategy: gcra, burst: 2, on_error: deny, overlay: burst from o.yaml:2; on_error from o.yaml:3
d.b: 1, strategy: gcra, burst: 2, on_error: deny, overlay: burst from o.yaml:2; on_error from o.yaml:3
d.c: 1, strategy: gcra, burst: 2, on_error: deny, overlay: burst from o.yaml:2; on_error from o.yaml:3`
	if got := own(tree); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestProblemsOfOverlays(t *testing.T) {
	const file = `- key: k
  descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: b, rate_limit: {unit: minute, unit_multiplier: 2, requests_per_unit: 1}}
  - {key: c, rate_limit: {unit: minute, requests_per_unit: 1}}
- {key: m, mask: {ipv4: 24}, rate_limit: {unit: minute, requests_per_unit: 1, name: m}}
`
	for _, tt := range []struct{ overlays, want string }{
		{"- x", `o.yaml:2:3: overlays[0]: must be a mapping with domain, path, name, set, force, not a string`},
		{"- {domain: d}", `o.yaml:2:3: overlays[0].set: is missing; a mapping of the fields that the limits get`},
		{"- {set: {burst: 1}}", `o.yaml:2:3: overlays[0]: has neither domain nor path nor name, which say over which limits it is laid; domain: "*" is over all`},
		{"- {domain: '', set: {lease: true}}", `o.yaml:2:12: overlays[0].domain: must not be empty`},
		{"- {domain: d, path: [], set: {lease: true}}", `o.yaml:2:21: overlays[0].path: must not be empty; it is a list of keys and values`},
		{"- {path: [{value: d}], set: {lease: true}}", `o.yaml:2:11: overlays[0].path[0].key: is missing; the pattern of a descriptor's key`},
		{"- {path: [{key: k, val: d}], set: {lease: true}}", `o.yaml:2:20: overlays[0].path[0].val: unknown key; did you mean "value"?`},
		{"- {domain: d, forced: true, set: {lease: true}}", `o.yaml:2:15: overlays[0].forced: unknown key; did you mean "force"?`},
		{"- {domain: d, force: 1, set: {lease: true}}", `o.yaml:2:22: overlays[0].force: must be true or false, not 1`},
		{"- {domain: d, set: {}}", `o.yaml:2:20: overlays[0].set: must be a mapping with fields of a limit, such as {strategy: token_bucket, burst: 50}, not an empty mapping`},
		{"- {domain: d, set: [burst]}", `o.yaml:2:20: overlays[0].set: must be a mapping with fields of a limit, such as {strategy: token_bucket, burst: 50}`},
		{"- {domain: d, set: {brust: 5}}", `o.yaml:2:21: overlays[0].set.brust: unknown key; did you mean "burst"?`},
		{"- {domain: d, set: {name: x}}", `o.yaml:2:21: overlays[0].set.name: belongs beside set, and not into it`},
		{"- {domain: d, set: {force: true, burst: 5}}", `o.yaml:2:21: overlays[0].set.force: belongs beside set, and not into it`},
		{"- {domain: d, set: {lease: true}, burst: 5}", `o.yaml:2:35: overlays[0].burst: belongs into set`},
		{"- {domain: d, set: {quota_mod: true}}", `o.yaml:2:21: overlays[0].set.quota_mod: unknown key; one of unit, `},
		{"- {domain: d, set: {share: 5%}}", `o.yaml:2:21: overlays[0].set.share: an overlay cannot set it; one of unit, `},
		{"- {domain: d, set: {requests_per_units: 5}}", `o.yaml:2:21: overlays[0].set.requests_per_units: unknown key; did you mean "requests_per_unit"?`},
		{"- {domain: d, set: {unlimited: true}}", `o.yaml:2:21: overlays[0].set.unlimited: an overlay cannot set it; one of unit, `},
		{"- {domain: d, set: {key: x}}", `o.yaml:2:21: overlays[0].set.key: an overlay cannot set it; one of unit, `},
		{"- {domain: d, set: {quota_mode: true}}", `o.yaml:2:21: overlays[0].set.quota_mode: an overlay cannot set it; one of unit, `},
		{"- {domain: d, set: {charge: always}}", `o.yaml:2:21: overlays[0].set.charge: an overlay cannot set it; one of unit, `},
		{"- {domain: d, set: {plan: gold, burst: 5}}", `o.yaml:2:33: overlays[0].set.burst: must not be given with plan, whose limits say it`},
		{"- {domain: d, set: {burst: 0}}", `o.yaml:2:28: overlays[0].set.burst: must be at least 1`},
		{"- {domain: none, set: {replaces: [{name: a}, {}]}}", `o.yaml:2:46: overlays[0].set.replaces[1].name: must not be empty; it is the name of another limit`},
		{"- {domain: nowhere, set: {strategy: token_buckt}}", `o.yaml:2:37: overlays[0].set.strategy: unknown strategy "token_buckt"; did you mean "token_bucket"?`},
		{"- {domain: d, set: {lease: {share: 5}}}", `o.yaml:2:36: overlays[0].set.lease.share: `},
		{"- {domain: d, set: {1: 5}}", `o.yaml:2:21: overlays[0].set: a key must be a string; 1 is an integer`},

		// What a rule cannot have is a problem of the overlay, once for all such rules.
		{"- {domain: d, set: {burst: 5}}", `o.yaml:2:28: overlays[0].set.burst: fixed_window has no burst; token_bucket, gcra and leaky_bucket have (laid over the rule at rules.yaml:5:5)`},
		{"- {domain: d, set: {strategy: gcra, lease: {ttl: 1h}}}", `o.yaml:2:50: overlays[0].set.lease.ttl: `},
		{"- {path: [{key: k}, {key: b}], set: {on_error: deny, window: calendar}}", `rules.yaml:6:58: rate_limit.unit_multiplier: must be 1 with ` + "`window: calendar`, whose windows are one minute long (with on_error, window from o.yaml:2)"},
		{"- {domain: d, set: {table: none.csv}}", `o.yaml:2:28: overlays[0].set.table: none.csv cannot be read: no such file or directory`},
		{"- {domain: d, set: {borrow_from: pool}}", `o.yaml:2:34: overlays[0].set.borrow_from: unknown pool "pool": the domain has no pools; add the pool to pools, which stands at the top of a file, and over xDS in metadata.rls (laid over the rule at rules.yaml:5:5)`},
		{"- {domain: d, set: {plan: gold}}", `o.yaml:2:27: overlays[0].set.plan: unknown plan "gold"; one of unlimited (laid over the rule at rules.yaml:5:5)`},
		{"- {path: [{key: m}], set: {table: t.csv}}", `o.yaml:2:35: overlays[0].set.table: has no meaning where values of "m" share a counter; remove share_threshold or mask (laid over the rule at rules.yaml:8:3)`},
		{"- {path: [{key: m}], set: {reserve: true}}", `rules.yaml:8:18: mask: has no meaning beside reserve: the value of "m" is the id of a reservation, which is in no counter and in no metric (with reserve from o.yaml:2)`},
		{"- {path: [{key: m}], set: {plan: held}}\nplans: {held: {unit: day, requests_per_unit: 1, reserve: true}}", `rules.yaml:8:18: mask: has no meaning beside reserve: the value of "m" is the id of a reservation, which is in no counter and in no metric (with plan from o.yaml:2)`},
		{"- {path: [{key: m}], set: {replaces: [{name: m}]}}", `o.yaml:2:46: overlays[0].set.replaces[0].name: a limit cannot replace itself ("m") (laid over the rule at rules.yaml:8:3)`},
	} {
		texts := []yaml.Text{rulesOfD(file), overlay(tt.overlays)}
		_, _, err := yaml.Load(texts, rules.Options{})
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s:\n%v\nwant\n%s", tt.overlays, err, tt.want)
			continue
		}
		if n := strings.Count(err.Error(), "\n"); n > 0 {
			t.Errorf("%d problems:\n%v", n+1, err)
		}
		// Rules that cannot have the fields are left out; an overlay that is wrong itself is not.
		ofRule := strings.Contains(err.Error(), "laid over") || !strings.HasPrefix(err.Error(), "o.yaml:") || strings.Contains(tt.want, "unknown pool") || strings.Contains(tt.want, "cannot be read")
		if tree, _, skipped := yaml.Load(texts, rules.Options{SkipWrong: true}); skipped == nil || skipped.Error() != err.Error() || (tree != nil) != ofRule {
			t.Errorf("%s: tree %v, %v", tt.overlays, tree, skipped)
		}
	}
}

// The schema and the loader agree about overlays, except about what a rule cannot have and what a
// schema cannot know.
func TestSchemaOfOverlays(t *testing.T) {
	s := compiled(t, rules.NewOverlaySchema())
	const good, bad, unknown = "good", "bad", "unknown to the schema"
	for _, tt := range []struct{ want, file string }{
		{good, "overlays: []"}, {good, "overlays: ~"}, {good, "overlays: [{domain: '*', set: {strategy: gcra, burst: 5}}]"},
		{good, "overlays: [{path: [{key: k, value: v*}, {key: 5}], name: n, force: true, set: {lease: {share: 5%}, thresholds: [{at: 80%}], reserve: true, replaces: [{name: x}]}}]"},
		{good, "overlays: [{domain: d, set: {burst: 5}}]"}, {good, "{overlays: [{domain: x, set: {plan: gold, replaces: [{name: x}]}}], plans: {gold: {unit: day, requests_per_unit: 5}, pro: [{unit: day}, {unit: hour}]}}"},
		{good, "overlays: [{domain: x, set: {plan: unlimited}}]"}, {good, "overlays: [{domain: x, set: {table: {file: t.csv, entry: k}}}]"},
		{bad, "{}"}, {bad, "overlays: 5"}, {bad, "overlays: [5]"}, {bad, "overlays: [{domain: d}]"}, {bad, "overlays: [{set: {burst: 5}}]"}, {bad, "overlay: []"},
		{bad, "overlays: [{domain: '', set: {burst: 5}}]"}, {bad, "overlays: [{path: [], set: {burst: 5}}]"}, {bad, "overlays: [{path: [{value: v}], set: {burst: 5}}]"}, {bad, "overlays: [{path: [{key: k, values: v}], set: {burst: 5}}]"},
		{bad, "overlays: [{domain: d, force: 1, set: {burst: 5}}]"}, {bad, "overlays: [{domain: d, set: {}}]"}, {bad, "overlays: [{domain: d, set: {name: x}}]"}, {bad, "overlays: [{domain: d, set: {unlimited: true}}]"},
		{bad, "overlays: [{domain: d, set: {quota_mode: true}}]"}, {bad, "overlays: [{domain: d, set: {plan: gold, burst: 5}}]"}, {bad, "overlays: [{domain: d, set: {burst: 0}}]"}, {bad, "overlays: [{domain: d, set: {strategy: token}}]"},
		{bad, "overlays: [{domain: d, burst: 5, set: {lease: true}}]"}, {bad, "{overlays: [], plans: {unlimited: {unit: day}}}"}, {bad, "{overlays: [], plans: {gold: {}}}"}, {bad, "{overlays: [], plan: {}}"},
		{unknown, "overlays: [{domain: d, set: {lease: {share: 200%}}}]"}, {unknown, "overlays: [{domain: d, set: {plan: gold}}]"},
	} {
		var v any
		if err := library.Unmarshal([]byte(tt.file), &v); err != nil {
			t.Fatal(err)
		}
		_, _, refused := yaml.Load([]yaml.Text{rulesOfD("- {key: k, rate_limit: {unit: minute, requests_per_unit: 1, strategy: gcra}}"), {Name: "o.yaml", Content: []byte(tt.file), Overlay: true}}, rules.Options{})
		invalid := s.Validate(instance(t, v))
		if (refused != nil) != (tt.want != good) || (invalid != nil) != (tt.want == bad) {
			t.Errorf("%s: %s\nthe loader: %v\nthe schema: %v", tt.file, tt.want, refused, invalid)
		}
	}
}

// A file of overlays can have plans, for rules of a control plane that has none.
func TestPlansOfOverlayFiles(t *testing.T) {
	file := text("a.yaml", `domain: d
plans: {gold: {unit: day, requests_per_unit: 9}}
descriptors:
- {key: a, rate_limit: {unit: minute, requests_per_unit: 1}}
- {key: b, rate_limit: {unit: minute, requests_per_unit: 1}}
- {key: c, rate_limit: {plan: pro}}
`)
	plans := overlay(`- {path: [{key: a}], set: {plan: gold}}
- {path: [{key: b}], set: {plan: pro}}
plans:
  gold: {unit: day, requests_per_unit: 8} # the domain's own goes first
  pro: [{unit: day, requests_per_unit: 7}, {unit: hour, requests_per_unit: 6, strategy: gcra}]`)
	const want = `d.a: 9, plan: gold, overlay: plan from o.yaml:2
d.b: 7, plan: pro, overlay: plan from o.yaml:3
d.b: 6, strategy: gcra, burst: 1, plan: pro, overlay: plan from o.yaml:3
d.c: 7, plan: pro
d.c: 6, strategy: gcra, burst: 1, plan: pro`
	if got := own(load(t, file, plans)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for content, want := range map[string]string{
		"[]\nplans: {pro: {unit: eon}}":                              `o.yaml:2:21: plans.pro.unit: unknown unit "eon"`,
		"[]\nplans: {pro: {unit: day, borrow_from: x}}":              `o.yaml:2:39: plans.pro.borrow_from: has no meaning in a plan beside overlays, which is for every domain, while a pool is of one`,
		"[{domain: d, set: {plan: prp}}]\nplans: {pro: {unit: day}}": `o.yaml:1:36: overlays[0].set.plan: unknown plan "prp"; did you mean "pro"?`,
	} {
		o := yaml.Text{Name: "o.yaml", Content: []byte("overlays: " + content), Overlay: true}
		_, _, err := yaml.Load([]yaml.Text{rulesOfD("- {key: a, " + limited + "}"), o}, rules.Options{})
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// A rule that is wrong without the overlay, too, is the rule's own problem.
func TestWrongRulesAreNotTheOverlaysProblem(t *testing.T) {
	texts := []yaml.Text{
		rulesOfD("- {key: a, rate_limit: {unit: eon, requests_per_unit: 1}}\n- {key: b, " + limited + "}\n"),
		overlay(`- {domain: d, set: {strategy: gcra, burst: 5}}`),
	}
	_, _, err := yaml.Load(texts, rules.Options{})
	if err == nil || !strings.HasPrefix(err.Error(), `rules.yaml:3:31: rate_limit.unit: unknown unit "eon"`) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
	tree, _, err := yaml.Load(texts, rules.Options{SkipWrong: true})
	if tree == nil || own(tree) != "d.b: 1, strategy: gcra, burst: 5, overlay: burst, strategy from o.yaml:2" {
		t.Errorf("%v, %v", tree, err)
	}
}

// The value of a path is a pattern for the text that the rule has: that of a match begins with ~, as
// in paths of rules.
func TestOverlaysMeetMatchesByTheirText(t *testing.T) {
	const file = `- {key: ip, match: {cidr: [10.0.0.0/8, 11.0.0.0/8]}, rate_limit: {unit: minute, requests_per_unit: 1}}
- {key: ip, match: {cidr: [192.168.0.0/16]}, rate_limit: {unit: minute, requests_per_unit: 2}}
- {key: ip, match: {not: {prefix: X}, ignore_case: true}, rate_limit: {unit: minute, requests_per_unit: 3}}
- {key: ip, value: "v*", rate_limit: {unit: minute, requests_per_unit: 4}}
- {key: ip, rate_limit: {unit: minute, requests_per_unit: 5}}
`
	for pattern, want := range map[string]string{
		"~cidr:10.0.0.0/8+1": "1", "~cidr:*": "12", "~*": "123", "~not:prefix/i:X": "3", "v*": "4", "*": "12345", "": "12345", "10.*": "", "~cidr:10.0.0.0/8": "",
	} {
		tree := load(t, rulesOfD(file), overlay(fmt.Sprintf("- {path: [{key: ip, value: %q}], set: {on_error: deny}}", pattern)))
		got := ""
		for _, line := range strings.Split(own(tree), "\n") {
			if before, _, laid := strings.Cut(line, ", on_error: deny, overlay: "); laid {
				got += before[len(before)-1:]
			}
		}
		if digits := strings.Split(got, ""); strings.Join(slices.Sorted(slices.Values(digits)), "") != want {
			t.Errorf("%s: laid over %s, want %s", pattern, got, want)
		}
	}
	// The problem of a match is told once.
	_, _, err := yaml.Load([]yaml.Text{rulesOfD("- {key: ip, match: {cidr: [x]}, " + limited + "}"), overlay("- {path: [{key: ip, value: '*'}], set: {on_error: deny}}")}, rules.Options{})
	if err == nil || strings.ContainsAny(err.Error(), "\n(") || !strings.HasPrefix(err.Error(), "rules.yaml:3:28: match.cidr[0]: ") {
		t.Errorf("got %v", err)
	}
}

func TestOverlayThatMatchesNothing(t *testing.T) {
	_, warnings := loadWith(t, rules.Options{}, rulesOfD("- {key: a, "+limited+"}\n- {key: b}"), overlay(`- {domain: "x*", set: {on_error: deny}}
- {domain: "d", path: [{key: b}], set: {on_error: deny}}
- {path: [{key: a, value: x}], set: {on_error: deny}}
- {path: [{key: a}, {key: b}], set: {on_error: deny}}
- {name: n, set: {on_error: deny}}
- {domain: "*", set: {on_error: deny}}`))
	const want = `o.yaml:2:3: overlays[0]: is laid over no rule: no domain matches "x*"
o.yaml:3:3: overlays[1]: is laid over no rule: no limit has such a path and name; /rlconfig shows the keys and values of rules
o.yaml:4:3: overlays[2]: is laid over no rule: no limit has such a path and name; /rlconfig shows the keys and values of rules
o.yaml:5:3: overlays[3]: is laid over no rule: no limit has such a path and name; /rlconfig shows the keys and values of rules
o.yaml:6:3: overlays[4]: is laid over no rule: no limit has such a path and name; /rlconfig shows the keys and values of rules`
	if warnings != want {
		t.Errorf("got\n%s\nwant\n%s", warnings, want)
	}
}

func TestOverlaysAndRulesInOneAnothersPlace(t *testing.T) {
	_, _, err := yaml.Load([]yaml.Text{text("r.yaml", "domain: d\noverlays: []")}, rules.Options{})
	if want := "r.yaml:2:1: overlays: unknown key; overlays stand in a file of their own, which OVERLAY_FILE names, and not among the rules"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	o := overlay("")
	o.Content = []byte("domain: d")
	_, _, err = yaml.Load([]yaml.Text{o}, rules.Options{})
	if want := "o.yaml:1:1: domain: unknown key; one of overlays, plans\no.yaml:1:1: overlays: is missing; the list of overlays"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// laid is an overlay of the model.
type laid struct {
	domain, name string
	path         [][2]string
	force        bool
	set          map[string]string
}

// fits reports whether the pattern stands for the text, by trying all that its first * can be.
func fits(pattern, text string) bool {
	head, tail, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == text
	}
	for i := len(head); i <= len(text); i++ {
		if strings.HasPrefix(text, head) && fits(tail, text[i:]) {
			return true
		}
		if j := i + 1; j <= len(text) && fits("*"+tail, text[j:]) && strings.HasPrefix(text, head) {
			return true
		}
	}
	return false
}

// model is the fields of a limit with all overlays.
func model(overlays []laid, domain, name string, path [][2]string, written map[string]string) map[string]string {
	got := maps.Clone(written)
	for _, o := range overlays {
		match := (o.domain == "" || fits(o.domain, domain)) && (o.name == "" || fits(o.name, name)) && len(o.path) <= len(path)
		for i := 0; match && i < len(o.path); i++ {
			match = fits(o.path[i][0], path[i][0]) && (o.path[i][1] == "" || fits(o.path[i][1], path[i][1]))
		}
		for field, value := range o.set {
			if _, own := written[field]; match && (o.force || !own) {
				got[field] = value
			}
		}
	}
	return got
}

// flow is a mapping as YAML.
func flow(fields map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		parts = append(parts, name+": "+fields[name])
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// Random overlays over random rules give the rules that a model writes out: for each limit, each
// overlay is asked in turn.
func TestOverlaysAgreeWithAModel(t *testing.T) {
	r := testenv.Random(t)
	word := func(patterns bool) string {
		const letters = "ab/*"
		b := make([]byte, 1+r.IntN(3))
		for i := range b {
			b[i] = letters[r.IntN(len(letters))]
		}
		if text := string(b); patterns {
			return text
		}
		return strings.ReplaceAll(string(b), "*", "c")
	}
	fieldsOf := func(chance float64) map[string]string {
		set := map[string]string{}
		for field, values := range map[string][]string{
			"on_error": {"deny", "allow", "local"}, "lease": {"true", "false", "{share: 7%}"}, "strategy": {"gcra", "token_bucket"},
			"burst": {"2", "3"}, "requests_per_unit": {"10", "20"}, "rollout": {"10%", "0%"},
		} {
			if r.Float64() < chance {
				set[field] = values[r.IntN(len(values))]
			}
		}
		return set
	}
	matched, loaded := 0, 0
	for range 2000 {
		var overlays []laid
		var file strings.Builder
		for range 1 + r.IntN(4) {
			o := laid{domain: word(true), force: r.IntN(3) == 0, set: fieldsOf(0.4)}
			o.set["on_error"] = "deny"
			if r.IntN(2) == 0 {
				o.domain = "*"
			}
			fmt.Fprintf(&file, "- {domain: %q, force: %v, set: %s", o.domain, o.force, flow(o.set))
			if r.IntN(3) == 0 {
				o.name = word(true)
				fmt.Fprintf(&file, ", name: %q", o.name)
			}
			for i := range r.IntN(3) {
				e := [2]string{word(true), ""}
				file.WriteString(map[bool]string{true: ", path: [", false: ", "}[i == 0])
				if r.IntN(2) == 0 {
					e[1] = word(true)
				}
				fmt.Fprintf(&file, "{key: %q, value: %q}", e[0], e[1])
				o.path = append(o.path, e)
			}
			if o.path != nil {
				file.WriteString("]")
			}
			file.WriteString("}\n")
			overlays = append(overlays, o)
		}
		with, without, laidOver := randomRules(r, word, fieldsOf, overlays)
		matched += laidOver
		tree, _, err := yaml.Load([]yaml.Text{text("a.yaml", without), overlay(file.String())}, rules.Options{})
		want, _, wrong := yaml.Load([]yaml.Text{text("a.yaml", with)}, rules.Options{})
		if (err == nil) != (wrong == nil) {
			t.Fatalf("%v; the model %v\n%s\n%s\n%s", err, wrong, without, file.String(), with)
		}
		if err != nil {
			continue
		}
		loaded++
		if tree.Hash() != want.Hash() {
			t.Fatalf("got\n%s\nwant\n%s\nof\n%s\n%s", own(tree), own(want), without, file.String())
		}
	}
	t.Logf("%d of 2000 files load, %d limits have overlays", loaded, matched)
	if matched < 500 || loaded < 300 {
		t.Error("too few")
	}
}

// randomRules returns a file of rules without overlays, and the file that says the same with them.
func randomRules(r *rand.Rand, word func(bool) string, fieldsOf func(float64) map[string]string, overlays []laid) (with, without string, matched int) {
	domain := word(false)
	head := fmt.Sprintf("domain: %q\ndescriptors:\n", domain)
	with, without = head, head
	var path [][2]string
	for i := range 1 + r.IntN(3) {
		e := [2]string{word(false), ""}
		indent := strings.Repeat("  ", i)
		line := fmt.Sprintf("%s- key: %q\n", indent, e[0])
		if r.IntN(2) == 0 {
			e[1] = word(true)
			line += fmt.Sprintf("%s  value: %q\n", indent, e[1])
		}
		path = append(path, e)
		limit := func() (plain, whole string) {
			written := fieldsOf(0.2)
			written["unit"], written["name"] = "minute", word(false)
			full := model(overlays, domain, written["name"], path, written)
			if !maps.Equal(full, written) {
				matched++
			}
			for _, fields := range []map[string]string{written, full} {
				fields["name"] = fmt.Sprintf("%q", fields["name"])
			}
			return flow(written), flow(full)
		}
		a, b := limit()
		if r.IntN(3) == 0 {
			c, d := limit()
			a, b = "[{shadow_mode: true, "+a[1:]+", "+c+"]", "[{shadow_mode: true, "+b[1:]+", "+d+"]"
			line += indent + "  rate_limits: "
		} else {
			line += indent + "  rate_limit: "
		}
		without += line + a + "\n"
		with += line + b + "\n"
		if i < 2 {
			without += indent + "  descriptors:\n"
			with += indent + "  descriptors:\n"
		}
	}
	return with, without, matched
}

// FuzzOverlay lays any text over rules: the outcome is problems with a place, or rules. The pattern
// of a domain stands for the texts for which the model says so.
func FuzzOverlay(f *testing.F) {
	f.Add("- {domain: d, set: {burst: 5, strategy: gcra}}", "e*", "eg/http")
	f.Add("- {path: [{key: k, value: '*'}], name: n, force: true, set: {lease: {share: 5%}}}", "**a*b", "xab")
	f.Add("- {domain: d, set: {<<: [*a], thresholds: [{at: 50%, delay: 1h}], share_threshold: true, replaces: [{name: n}]}}", "", "")
	f.Fuzz(func(t *testing.T, content, pattern, domain string) {
		if len(pattern) < 12 && len(domain) < 20 && match.Matches(pattern, domain) != fits(pattern, domain) {
			t.Errorf("%q for %q: %v", pattern, domain, !fits(pattern, domain))
		}
		o := overlay(content)
		tree, _, err := yaml.Load([]yaml.Text{rulesOfD("- {key: k, value: 'a*', rate_limit: {unit: day, requests_per_unit: 1, name: n}}"), o}, rules.Options{})
		var problems rules.Problems
		if err == nil != (tree != nil) || err != nil && !errors.As(err, &problems) {
			t.Fatalf("error %v with tree %v", err, tree)
		}
		for _, p := range problems {
			if p.File == "" || p.Line < 1 || p.Column < 1 || p.Message == "" {
				t.Fatalf("problem without a place: %#v", p)
			}
		}
	})
}

// With ForRatelimit, an overlay that chooses a descriptor by the value of a match is laid as without.
func TestOverlaysForRatelimit(t *testing.T) {
	_, warnings := loadWith(t, rules.Options{ForRatelimit: true}, rulesOfD("- {key: k, match: {values: [a]}, "+limited+"}\n"), overlay(`- {path: [{key: k, value: "~*"}], set: {on_error: allow}}`))
	if want := "rules.yaml:3:12: match: is unknown to envoyproxy/ratelimit, which refuses the file; leave it out while both run [for-ratelimit]"; warnings != want {
		t.Errorf("%s\nnot\n%s", warnings, want)
	}
}
