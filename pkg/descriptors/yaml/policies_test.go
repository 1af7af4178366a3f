package yaml_test

import (
	"strings"
	"testing"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
)

const policies = `domain: d
descriptors:
- {key: own, rate_limit: {unit: day, requests_per_unit: 1, on_error: deny}}
- {key: none, rate_limit: {unit: day, requests_per_unit: 1}}
- key: outer
  descriptors:
  - key: several
    rate_limits:
    - {unit: day, requests_per_unit: 1, on_error: error}
    - {unit: hour, requests_per_unit: 1}
`

// The nearest on_error counts: that of the limit, that of the domain, wherever it
// stands in the files, or that of the options. Overrides have that of the rule, or
// without a rule that of the domain.
func TestTheNearestPolicyCounts(t *testing.T) {
	text := func(name, content string) yaml.Text { return yaml.Text{Name: name, Content: []byte(content)} }
	for _, tt := range []struct {
		name  string
		files []yaml.Text
		opts  rules.Options
		want  string // of own, none, both of several, and of an override without a rule
	}{
		{"nothing", []yaml.Text{text("a", policies)}, rules.Options{}, "deny error error error, error"},
		{"the options", []yaml.Text{text("a", policies)}, rules.Options{OnError: descriptors.PolicyAllow}, "deny allow error allow, allow"},
		{"the domain", []yaml.Text{text("a", policies+"on_error: local")}, rules.Options{OnError: descriptors.PolicyAllow}, "deny local error local, local"},
		{"the domain, in another file", []yaml.Text{text("a", policies), text("b", "domain: d\non_error: local")}, rules.Options{MergeDomains: true}, "deny local error local, local"},
		{"the domain says error", []yaml.Text{text("a", "on_error: error\n"+policies)}, rules.Options{OnError: descriptors.PolicyAllow}, "deny error error error, error"},
	} {
		tree, warnings, err := yaml.Load(tt.files, tt.opts)
		if err != nil || warnings != nil {
			t.Errorf("%s: %v, %v", tt.name, warnings, err)
			continue
		}
		d := tree.Domain("d")
		several := d.Match(entries("outer,several")).Limits
		override := func(request string) descriptors.Policy {
			l, err := d.Override(d.Match(entries(request)), 5, descriptors.Minute, 1)
			if err != nil {
				t.Error(err)
			}
			return l.OnError
		}
		if p := override("own"); p != descriptors.PolicyDeny {
			t.Errorf("%s: an override of a rule has the policy %s", tt.name, p)
		}
		var got []string
		for _, p := range []descriptors.Policy{d.Match(entries("own")).Limits[0].OnError, d.Match(entries("none")).Limits[0].OnError, several[0].OnError, several[1].OnError} {
			got = append(got, p.String())
		}
		if is := strings.Join(got, " ") + ", " + override("elsewhere").String(); is != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, is, tt.want)
		}
	}
}

func TestProblemsWithPolicies(t *testing.T) {
	for _, tt := range []struct {
		files []string
		want  string
	}{
		{[]string{"domain: d\non_error: alow\n"}, `a:2:11: on_error: unknown policy "alow"; did you mean "allow"?`},
		{[]string{"domain: d\non_error: ~\n"}, `a:2:11: on_error: unknown policy ""; one of error, allow, deny, local`},
		{[]string{"domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: day, requests_per_unit: 1, on_error: ignore}}\n"},
			`a:3:68: rate_limit.on_error: unknown policy "ignore"; one of error, allow, deny, local`},
		{[]string{"domain: d\ndescriptors:\n- {key: k, rate_limit: {unlimited: true, on_error: deny}}\n"}, `a:3:52: rate_limit.on_error: must not be given with unlimited: true`},
		{[]string{"domain: d\ndescriptors:\n- {key: k, on_error: deny}\n"}, `a:3:12: on_error: has no meaning here; it belongs into the top of the file or rate_limit`},
		{[]string{"domain: d\non_error: deny\n", "domain: d\n", "domain: d\non_error: allow\n"}, `c:2:11: on_error: differs from that of the same domain in a:2:11`},
	} {
		var files []yaml.Text
		for i, content := range tt.files {
			files = append(files, yaml.Text{Name: string(rune('a' + i)), Content: []byte(content)})
		}
		_, _, err := yaml.Load(files, rules.Options{MergeDomains: true})
		if err == nil || err.Error() != tt.want {
			t.Errorf("%q:\n%v, want\n%s", tt.files, err, tt.want)
		}
	}
}

// Where nobody knows how many processes share the store, the first limit with the
// policy local gets a warning.
func TestLocalWithoutReplicas(t *testing.T) {
	const local = "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: day, requests_per_unit: 1}}\n" +
		"- {key: b, rate_limit: {unit: day, requests_per_unit: 1, on_error: local}}\n- {key: c, rate_limit: {unit: day, requests_per_unit: 1, on_error: local}}\n"
	for _, tt := range []struct {
		opts rules.Options
		want string
	}{
		{rules.Options{}, ""},
		{rules.Options{ReplicasUnknown: true}, "a.yaml:4:3: on_error: local gives this limit, and every other limit with that policy, to each process in full while the store is away; set REPLICAS or REPLICAS_DNS, so that processes that share the store divide it"},
		{rules.Options{ReplicasUnknown: true, OnError: descriptors.PolicyLocal}, "a.yaml:3:3: on_error: local gives"},
	} {
		_, warnings, err := yaml.Load([]yaml.Text{{Name: "a.yaml", Content: []byte(local)}}, tt.opts)
		if got := rules.Problems(warnings).Error(); err != nil || !strings.HasPrefix(got, tt.want) || len(got) > 0 && len(warnings) != 1 || tt.want == "" && got != "" {
			t.Errorf("%+v: %q, %v; want %s", tt.opts, got, err, tt.want)
		}
	}
}
