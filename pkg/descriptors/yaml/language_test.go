package yaml_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
)

// Each file gives the limits that envoyproxy/ratelimit lists for the same file,
// or is refused as it is there.
func TestLanguageOfTheReference(t *testing.T) {
	const (
		value    = "domain: d\ndescriptors: [{key: k, value: %, rate_limit: {unit: day}}]\n"
		requests = "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: %}}]\n"
		shadow   = "domain: d\ndescriptors: [{key: k, shadow_mode: %, rate_limit: {unit: day}}]\n"
		unit     = "domain: d\ndescriptors: [{key: k, rate_limit: {unit: %}}]\n"
		limit    = "domain: d\ndescriptors:\n- key: k\n  rate_limit: %\n"
		item     = "domain: d\ndescriptors:\n- %\n"
		file     = "%"
	)
	zero := "unit=DAY requests_per_unit=0, shadow_mode: false, quota_mode: false\n"
	line := func(s string) string { return "d." + s + ": " + zero }
	per := func(n string) string { return strings.Replace(line("k"), "unit=0", "unit="+n, 1) }
	const refused = "refused"
	tests := []struct{ frame, text, want string }{
		// Values keep their text, whatever they mean, unless they are fractions.
		{value, "010", line("k_010")}, {value, "0x1F", line("k_0x1F")}, {value, "0o17", line("k_0o17")}, {value, "0b11", line("k_0b11")},
		{value, "1_000", line("k_1_000")}, {value, "true", line("k_true")}, {value, "yes", line("k_yes")}, {value, "2001-01-01", line("k_2001-01-01")},
		{value, "'190:20:30'", line("k_190:20:30")}, {value, "~", line("k")}, {value, "null", line("k")}, {value, "''", line("k")}, {value, "'~'", line("k_~")},
		{value, "-5", line("k_-5")}, {value, "-010", line("k_-010")}, {value, "9223372036854775807", line("k_9223372036854775807")}, {value, "'1.5'", line("k_1.5")}, {value, "!!str 1.5", line("k_1.5")},
		{value, "10.0.0.1", line("k_10.0.0.1")}, {value, "1e", line("k_1e")}, {value, "0x", line("k_0x")}, {value, "_1", line("k__1")}, {value, "!!binary aGVsbG8=", line("k_hello")},
		{value, "1.5", refused}, {value, ".5", refused}, {value, "1.", refused}, {value, "1e3", refused}, {value, "1_0.5", refused}, {value, ".inf", refused}, {value, ".nan", refused},
		{value, "08", refused}, {value, "9223372036854775808", refused}, {value, "99999999999999999999", refused}, {value, "!!float 5", refused}, {value, "!!int x", refused},
		{value, "!!binary '*'", refused}, {value, "[]", refused}, {value, "{}", refused}, {value, "{key: a}", refused},

		{requests, "5", per("5")}, {requests, "0x10", per("16")}, {requests, "010", per("8")}, {requests, "+010", per("8")}, {requests, "0o17", per("15")}, {requests, "0b11", per("3")}, {requests, "1_000", per("1000")},
		{requests, "+5", per("5")}, {requests, "~", per("0")}, {requests, "4294967295", per("4294967295")}, {requests, "!!int '5'", per("5")},
		{requests, "'5'", refused}, {requests, "5.0", refused}, {requests, "-1", refused}, {requests, "4294967296", refused}, {requests, "yes", refused}, {requests, "1e3", refused},
		{requests, "'1:30'", refused}, {requests, "[1]", refused}, {requests, "{unit: 1}", refused},

		{shadow, "yes", strings.Replace(line("k"), "shadow_mode: false", "shadow_mode: true", 1)}, {shadow, "y", strings.Replace(line("k"), "shadow_mode: false", "shadow_mode: true", 1)},
		{shadow, "On", strings.Replace(line("k"), "shadow_mode: false", "shadow_mode: true", 1)}, {shadow, "off", line("k")}, {shadow, "N", line("k")}, {shadow, "~", line("k")},
		{shadow, "'true'", refused}, {shadow, "1", refused}, {shadow, "yEs", refused}, {shadow, "tRue", refused},

		{unit, "DAY", line("k")}, {unit, "dAy", line("k")}, {unit, "'day'", line("k")}, {unit, "days", refused}, {unit, "unknown", refused}, {unit, "''", refused}, {unit, "5", refused},
		{unit, "foo, unlimited: true, requests_per_unit: 3", "d.k: unit=UNKNOWN requests_per_unit=3, shadow_mode: false, quota_mode: false\n"},
		{unit, "day, unlimited: true", refused}, {unit, "day, unlimited: false", line("k")},
		{unit, "day, name: a, replaces: [{name: b}]", line("k")}, {unit, "day, name: a, replaces: [{name: a}]", refused}, {unit, "day, replaces: [{name: ''}]", refused},
		{unit, "day, replaces: [{}]", refused}, {unit, "day, replaces: [b]", refused}, {unit, "day, replaces: b", refused}, {unit, "day, replaces: ~", line("k")}, {unit, "day, replaces: {name: b}", refused},

		{limit, "~", ""}, {limit, "", ""}, {limit, "null", ""}, {limit, "Null", refused}, {limit, "{}", refused}, {limit, "[]", refused}, {limit, "x", refused}, {limit, "''", refused},
		{limit, "{unit: day}\n  share_threshold: true", refused}, {limit, "{unit: day}\n  value: a*\n  share_threshold: true", line("k_a*")},
		{limit, "{unit: day}\n  bogus: true", refused}, {limit, "{unit: day}\n  Key: x", refused}, {limit, "{unit: day}\n  unit: 5", line("k")}, {limit, "{unit: day}\n  unit: 1.5", refused},
		{limit, "{unit: day}\n  domain: {bogus: 1}", line("k")}, {limit, "{unit: day}\n  domain: [{key: {unit: 5}}]", line("k")}, {limit, "{unit: day}\n  domain: [1]", refused},
		{limit, "{unit: day}\n  metadata: {1: a, b: {yes: 1.5, [1]: 2}}", refused}, {limit, "{unit: day}\n  metadata: {1: a, b: {yes: 1.5}}", line("k")}, {limit, "{unit: day}\n  metadata: [a]", refused},
		{limit, "{unit: hour, bogus: 1}\n  rate_limit: {unit: day}", line("k")}, {limit, "{unit: day}\n  rate_limit: {requests_per_unit: 3}", per("3")}, {limit, "{unit: day}\n  rate_limit: ~", ""},
		{limit, "{unit: day}\n  value: 1.5\n  value: x", line("k_x")}, {limit, "{unit: day}\n  value: []\n  value: x", refused}, {limit, "{unit: day}\n  shadow_mode: x\n  shadow_mode: no", refused},
		{limit, "{unit: day}\n  1: x", refused}, {limit, "{unit: day}\n  yes: x", refused}, {limit, "{unit: day}\n  ~: x", refused}, {limit, "{unit: day}\n  2001-01-01: x", refused}, {limit, "{unit: day}\n  [a]: x", refused},
		{limit, "{unit: day}\n- key: k", refused}, {limit, "{unit: day}\n- {key: k, value: ''}", refused}, {limit, "{unit: day}\n- {key: k, value: v}", line("k")},

		{item, "x", refused}, {item, "~", refused}, {item, "[]", refused}, {item, "{}", refused}, {item, "{key: ''}", refused}, {item, "{value: x}", refused},
		{item, "{key: a, descriptors: ~}", ""}, {item, "{key: a, descriptors: {}}", refused}, {item, "{key: a, descriptors: x}", refused},
		// The last of equal keys wins, merged or written; of a list of merged mappings the first. A repeated limit adds to a merged one.
		{item, "&a {key: a, rate_limit: {unit: day}}\n- {<<: *a, key: b}\n- {key: c, <<: *a, value: v}", line("a") + line("a_v") + line("b")},
		{item, "&a {key: a, rate_limit: {unit: day}}\n- {<<: *a, key: b}", line("a") + line("b")},
		{item, "&a {key: a, rate_limit: {unit: day}}\n- {<<: *a, key: b, rate_limit: {requests_per_unit: 9}}", line("a") + strings.Replace(line("b"), "unit=0", "unit=9", 1)},
		{item, "&a {key: a, value: x}\n- &b {key: b, value: y, rate_limit: {unit: day}}\n- {<<: [*b, *a], value: z}", line("b_y") + line("b_z")},
		{item, "{key: a, rate_limit: &l {unit: day}}\n- {key: b, rate_limit: *l}", line("a") + line("b")},
		{item, "&a {key: a, <<: *a}", refused}, {item, "{key: a, <<: 5}", refused}, {item, "{key: a, <<: [5]}", refused}, {item, "{key: a, '<<': {value: x}}", refused}, {item, "*nothing", refused},

		{file, "", refused}, {file, "# nothing\n", refused}, {file, "--- {}\n", refused}, {file, "[]", refused}, {file, "x", refused}, {file, "domain: ''", refused}, {file, "domain: ~", refused},
		{file, "domain: d", ""}, {file, "domain: 5", ""}, {file, "{domain: d}", ""}, {file, "%YAML 1.1\n---\ndomain: d\n", ""}, {file, "\ufeffdomain: d\r\ndescriptors:\r\n", ""},
		{file, "domain: d\n---\nbogus: [\n", ""}, {file, "domain: d\n---\n@\n", ""}, {file, "domain: d\n...\n", ""}, {file, "domain: d\nkey: 5\n", ""}, {file, "domain: d\nbogus: 5\n", refused},
		{file, "domain: d\nkey: 1.5\n", refused}, {file, "\tdomain: d\n", refused}, {file, "domain: [d\n", refused}, {file, "domain: d\n domain: e\n", refused}, {file, "domain: \x00", refused}, {file, "domain: \xff", refused},
	}
	for _, tt := range tests {
		content := strings.Replace(tt.frame, "%", tt.text, 1)
		tree, _, err := yaml.Load([]yaml.Text{{Name: "f", Content: []byte(content)}}, rules.Options{})
		got := rules.Dump(tree)
		if err != nil {
			got = refused
		}
		if got != tt.want {
			t.Errorf("%q\n gives %q\n want  %q (error: %v)", content, got, tt.want, err)
		}
	}
}

func TestMetadata(t *testing.T) {
	domain := load(t, rulesOfD(`
- key: a
  rate_limit: {unit: day, requests_per_unit: 1}
  metadata: &m
    1: one
    text: 2001-01-01
    nested: {yes: 1, 0x10: [1.5, ~, {a: "b"}]}
  metadata: {more: off}
- key: b
  value_to_metric: true
  rate_limit: {unit: day, requests_per_unit: 1}
  metadata: {<<: *m, text: other}
- {key: c, rate_limit: {unit: day}, metadata: {}}
`)).Domain("d")
	nested := map[string]any{"true": int64(1), "16": []any{1.5, nil, map[string]any{"a": "b"}}}
	for request, want := range map[string]map[string]any{
		"a=1": {"1": "one", "text": "2001-01-01", "nested": nested, "more": false},
		"b=1": {"1": "one", "text": "other", "nested": nested},
		"c=1": nil,
	} {
		if diff := cmp.Diff(want, domain.Match(entries(request)).Metadata); diff != "" {
			t.Errorf("%s: -want +got\n%s", request, diff)
		}
	}
}

func TestUnits(t *testing.T) {
	for unit := descriptors.Second; unit <= descriptors.Week; unit++ {
		for _, name := range []string{unit.String(), strings.ToLower(unit.String())} {
			rule := load(t, rulesOfD("- {key: k, rate_limit: {unit: "+name+", requests_per_unit: 1, unit_multiplier: 2}}")).Domain("d").Match(entries("k"))
			l := rule.Limits[0]
			if l.Unit != unit || l.Multiplier != 2 || l.Window != 2*unit.Duration() {
				t.Errorf("%s is %d × %s, %v", name, l.Multiplier, l.Unit, l.Window)
			}
		}
	}
	if u := descriptors.Unit(8); u.Valid() || u.Duration() != 0 || u.String() != "UNKNOWN" {
		t.Errorf("8 is a unit: %s", u)
	}
}
