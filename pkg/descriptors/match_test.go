package descriptors_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
)

// entries reads a request's descriptor: "user=a,path=/b".
func entries(s string) []descriptors.Entry {
	if s == "" {
		return nil
	}
	var list []descriptors.Entry
	for _, part := range strings.Split(s, ",") {
		k, v, _ := strings.Cut(part, "=")
		list = append(list, descriptors.Entry{Key: k, Value: v})
	}
	return list
}

// yamlFile is one file of rules of domain d.
func yamlFile(rules string) yaml.Text {
	return yaml.Text{Name: "rules.yaml", Content: []byte("domain: d\ndescriptors:\n" + rules)}
}

const limited = "rate_limit: {unit: minute, requests_per_unit: 1}"

func TestMatch(t *testing.T) {
	tests := []struct {
		name  string
		rules string
		want  map[string]string // request to the rule's path, "" for none
	}{
		{
			"a value before its key alone",
			`
- {key: user, ` + limited + `}
- {key: user, value: a, ` + limited + `}
`,
			map[string]string{"user=a": "d.user_a", "user=b": "d.user", "user": "d.user", "group=a": "", "": ""},
		},
		{
			"the depth of the request is that of the rule",
			`
- key: a
  ` + limited + `
  descriptors:
  - {key: b, ` + limited + `}
- key: x
  descriptors:
  - {key: y, ` + limited + `}
`,
			map[string]string{"a=1": "d.a", "a=1,b=2": "d.a.b", "a=1,b=2,c=3": "", "a=1,c=3": "", "x=1": "", "x=1,y=1": "d.x.y", "b=2": ""},
		},
		{
			"no other descriptor is tried when nothing below the chosen one matches",
			`
- key: user
  value: a
- key: user
  value: "b*"
  descriptors:
  - {key: other, ` + limited + `}
- key: user
  ` + limited + `
  descriptors:
  - {key: path, ` + limited + `}
`,
			map[string]string{"user=a": "", "user=a,path=x": "", "user=bb,path=x": "", "user=c,path=x": "d.user.path", "user=c": "d.user"},
		},
		{
			"wildcards in the order of the rules",
			`
- {key: p, value: "/a/*/c", ` + limited + `}
- {key: p, value: "/a/*", ` + limited + `}
- {key: p, value: "*/c", ` + limited + `}
- {key: p, value: "*b*d*", ` + limited + `}
- {key: p, value: /a/x/c, ` + limited + `}
- {key: p, value: "/*", ` + limited + `}
- {key: p, ` + limited + `}
`,
			map[string]string{
				"p=/a/b/c": "d.p_/a/*/c", "p=/a/b": "d.p_/a/*", "p=/x/c": "d.p_*/c", "p=/b/d": "d.p_*b*d*", "p=/d/b": "d.p_/*",
				"p=/a/x/c": "d.p_/a/x/c", "p=x": "d.p", "p": "d.p", "p=/a/c": "d.p_/a/*", "q=/a/b": "",
			},
		},
		{
			"the prefix and the suffix of a wildcard do not overlap",
			`
- {key: k, value: "aba*ba", ` + limited + `}
`,
			map[string]string{"k=aba": "", "k=abaa": "", "k=ababa": "d.k_aba*ba", "k=aba-ba": "d.k_aba*ba"},
		},
		{
			"a wildcard stands for nothing too",
			`
- {key: k, ` + limited + `}
- {key: k, value: "*", ` + limited + `}
`,
			map[string]string{"k": "d.k_*", "k=": "d.k_*", "k=x": "d.k_*"},
		},
		{
			"the parts of a wildcard do not overlap",
			`
- {key: k, value: "*ab*ba*", ` + limited + `}
`,
			map[string]string{"k=aba": "", "k=abba": "d.k_*ab*ba*", "k=-ab-aba-": "d.k_*ab*ba*", "k=ba-ab": ""},
		},
		{
			"wildcards in keys and in values have one order",
			`
- {key: "a*", ` + limited + `}
- {key: k, value: "x*", ` + limited + `}
- {key: "k*", ` + limited + `}
- {key: k, value: "y*", ` + limited + `}
`,
			map[string]string{"k=x1": "d.k_x*", "k=y1": "d.k*", "a=x1": "d.a*"},
		},
		{
			"a wildcard that is asked for literally",
			`
- {key: k, value: "a*", ` + limited + `}
- {key: k, value: "a*b*", ` + limited + `}
`,
			map[string]string{"k=a*b*": "d.k_a*b*", "k=a*b*c": "d.k_a*", "k=a*": "d.k_a*"},
		},
		{
			"nested wildcards",
			`
- key: a
  value: "x*"
  descriptors:
  - key: b
    value: "*y"
    descriptors:
    - {key: c, value: "*z*", ` + limited + `}
`,
			map[string]string{"a=x1,b=1y,c=1z1": "d.a_x*.b_*y.c_*z*", "a=y1,b=1y,c=1z1": "", "a=x1,b=1y,c=1": ""},
		},
		{
			"wildcards in keys",
			`
- {key: "x-*", value: gold, ` + limited + `}
- {key: "x-*", value: "sil*", ` + limited + `}
- {key: "x-*", ` + limited + `}
- {key: x-plan, value: "*", ` + limited + `}
- {key: x-plan, value: free, ` + limited + `}
- {key: "*", ` + limited + `}
`,
			map[string]string{
				"x-plan=gold": "d.x-*_gold", "x-plan=silver": "d.x-*_sil*", "x-plan=tin": "d.x-*", "x-plan=free": "d.x-plan_free",
				"x-=": "d.x-*", "y=1": "d.*", "x-*=gold": "d.x-*_gold",
			},
		},
		{
			"entries are typed: nothing is joined",
			`
- {key: a, value: b_c, ` + limited + `}
- {key: a_b, ` + limited + `}
- {key: a, value: b, ` + limited + `}
- {key: "e*", ` + limited + `}
`,
			map[string]string{"a=b_c": "d.a_b_c", "a_b=c": "d.a_b", "a_b_c": "", "a=b": "d.a_b", "f=e": ""},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			domain := load(t, yamlFile(tt.rules)).Domain("d")
			for request, want := range tt.want {
				got := ""
				if rule := domain.Match(entries(request)); rule != nil {
					got = rule.Path
				}
				if got != want {
					t.Errorf("%q matches %q, want %q", request, got, want)
				}
			}
		})
	}
}

func TestUnknownDomainHasNoRules(t *testing.T) {
	tree := load(t, yamlFile("- {key: k, "+limited+"}"))
	if d := tree.Domain("e"); d != nil || d.Match(entries("k=1")) != nil {
		t.Error("rules in a domain that is not there")
	}
	var none *descriptors.Tree
	if none.Domain("d") != nil || none.Domains() != nil || rules.Dump(none) != "" {
		t.Error("a nil tree has rules")
	}
}

func TestLookUpsDoNotAllocate(t *testing.T) {
	domain := load(t, yamlFile(`
- {key: p, value: "/a/*/c", share_threshold: true, `+limited+`}
- {key: "x*", value: "*y*z*", `+limited+`}
- {key: u, value: "a", `+limited+`}
`)).Domain("d")
	buf := make([]byte, 0, 256)
	for _, request := range []string{"p=/a/b/c", "xx=ayyzz", "u=a", "u=none", "q=\x00é"} {
		e := entries(request)
		if n := testing.AllocsPerRun(100, func() {
			var shared []descriptors.Naming
			if rule := domain.Match(e); rule != nil {
				shared = rule.Shared
			}
			buf = descriptors.AppendID(buf[:0], "d", e, shared)
		}); n != 0 {
			t.Errorf("%q takes %v allocations", request, n)
		}
	}
}

func TestMetricKey(t *testing.T) {
	tests := []struct{ rules, request, want string }{
		{"- {key: k, value: v, " + limited + "}", "k=v", "d.k_v"},
		{"- {key: k, " + limited + "}", "k=v", "d.k"},
		{"- {key: k, value: 'v*', " + limited + "}", "k=v1", "d.k_v*"},
		{"- {key: k, value_to_metric: true, " + limited + "}", "k=v", "d.k_v"},
		{"- {key: k, value_to_metric: true, " + limited + "}", "k", "d.k"},
		{"- {key: k, value: 'v*', value_to_metric: true, " + limited + "}", "k=v1", "d.k_v1"},
		{"- {key: k, value: 'v*', value_to_metric: true, share_threshold: true, " + limited + "}", "k=v1", "d.k_v*"},
		{"- {key: k, detailed_metric: true, " + limited + "}", "k=v", "d.k_v"},
		{"- {key: k, detailed_metric: true, " + limited + "}", "k", "d.k_"},
		{"- {key: k, value: 'v*', share_threshold: true, detailed_metric: true, " + limited + "}", "k=v1", "d.k_v*"},
		{"- {key: k, value: 'v*', share_threshold: true, descriptors: [{key: l, detailed_metric: true, " + limited + "}]}", "k=v1,l", "d.k_v*.l"},
		{"- {key: k, value: 'v*', share_threshold: true, descriptors: [{key: l, detailed_metric: true, " + limited + "}]}", "k=v1,l=w", "d.k_v*.l_w"},
		{"- {key: k, value_to_metric: true, descriptors: [{key: l, " + limited + "}]}", "k=v,l=w", "d.k_v.l"},
		{"- {key: 'k*', " + limited + "}", "key=v", "d.key_k*"},
		{"- {key: 'k*', value_to_metric: true, " + limited + "}", "key=v", "d.key_v"},
	}
	for _, tt := range tests {
		domain := load(t, yaml.Text{Name: "a.yaml", Content: []byte("domain: d\ndescriptors:\n" + tt.rules + "\n")}).Domain("d")
		rule := domain.Match(entries(tt.request))
		if rule == nil {
			t.Errorf("%s: %s does not match", tt.rules, tt.request)
			continue
		}
		if got := rule.MetricKey("d", entries(tt.request)); got != tt.want {
			t.Errorf("%s: %s counts as %q, want %q", tt.rules, tt.request, got, tt.want)
		}
	}
}

func TestSharedThreshold(t *testing.T) {
	domain := load(t, yamlFile(`
- key: files
  value: "tmp/*"
  share_threshold: true
  descriptors:
  - {key: user, `+limited+`}
- {key: "h-*", share_threshold: true, `+limited+`}
`)).Domain("d")
	for request, want := range map[string]string{
		"files=tmp/a,user=x":   "d|files=tmp/*|user=x",
		"files=tmp/b,user=x":   "d|files=tmp/*|user=x",
		"files=tmp/*,user=x":   "d|files=tmp/*|user=x",
		"files=tmp/*,user=t/*": "d|files=tmp/*|user=t/%2A",
		"h-1=a":                "d|h-1=h-*%3D",
		"h-1=b":                "d|h-1=h-*%3D",
	} {
		e := entries(request)
		rule := domain.Match(e)
		if rule == nil {
			t.Fatalf("%s does not match", request)
		}
		if got := string(descriptors.AppendID(nil, "d", e, rule.Shared)); got != want {
			t.Errorf("%s counts as %s, want %s", request, got, want)
		}
	}
}

func TestDump(t *testing.T) {
	tree := load(t, yamlFile(`
- key: b
  shadow_mode: true
  rate_limit: {unit: hour, requests_per_unit: 5}
  descriptors:
  - {key: c, value: x, quota_mode: true, rate_limit: {unit: WEEK, requests_per_unit: 6}}
- {key: a, rate_limit: {unlimited: true}}
- key: z
  rate_limits:
  - {unit: second, requests_per_unit: 10}
  - {unit: minute, requests_per_unit: 300, unit_multiplier: 10, strategy: gcra, burst: 7, on_error: error}
- {key: e, rate_limit: {unit: day, requests_per_unit: 1, window: from_first_hit, extend: true, on_error: local}}
- {key: l, rate_limit: {unit: day, requests_per_unit: 1, strategy: leaky_bucket, max_delay: 500ms}}
`))
	const want = `d.a: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false
d.b.c_x: unit=WEEK requests_per_unit=6, shadow_mode: false, quota_mode: true
d.b: unit=HOUR requests_per_unit=5, shadow_mode: true, quota_mode: false
d.e: unit=DAY requests_per_unit=1, shadow_mode: false, quota_mode: false, window: from_first_hit, extend: true, on_error: local
d.l: unit=DAY requests_per_unit=1, shadow_mode: false, quota_mode: false, strategy: leaky_bucket, burst: 1, max_delay: 500ms
d.z: unit=MINUTE requests_per_unit=300, shadow_mode: false, quota_mode: false, unit_multiplier: 10, strategy: gcra, burst: 7
d.z: unit=SECOND requests_per_unit=10, shadow_mode: false, quota_mode: false
`
	if diff := cmp.Diff(want, rules.Dump(tree)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
