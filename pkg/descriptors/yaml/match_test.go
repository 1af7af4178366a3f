package yaml_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
)

func TestMatchProblems(t *testing.T) {
	const kinds = "values, prefix, suffix, contains, regex, cidr, not"
	for _, tt := range []struct{ content, want string }{
		{"match: text", `3:19: match: must be a mapping with one of ` + kinds + `, not the string "text"`},
		{"match: {}", `3:19: match: must have one of ` + kinds},
		{"match: {ignore_case: true}", `3:19: match: must have one of ` + kinds},
		{"match: {prefx: a}", `3:20: match.prefx: unknown key; did you mean "prefix"?`},
		{"match: {prefix: a, suffix: b}", `3:39: match.suffix: excludes prefix; a match has one of ` + kinds},
		{"match: {prefix: a, not: {suffix: b}}", `3:36: match.not: excludes prefix; a match has one of ` + kinds},
		{"match: {not: {not: {suffix: b}}}", `3:31: match.not.not: stands in another not; write the match without both`},
		{"match: {not: {}}", `3:25: match.not: must have one of ` + kinds},
		{"match: {not: x}", `3:25: match.not: must be a mapping with one of ` + kinds + `, not the string "x"`},
		{"match: {prefix: ''}", `3:28: match.prefix: must not be empty`},
		{"match: {prefix: [a]}", `3:28: match.prefix: must be a text, not a list`},
		{"match: {prefix: 1.5}", `3:28: match.prefix: 1.5 must be quoted to be a text: "1.5"`},
		{"match: {prefix: }", `3:28: match.prefix: must be a text, not null`},
		{"match: {values: a}", `3:28: match.values: must be a list of texts, not the string "a"`},
		{"match: {values: []}", `3:28: match.values: must have at least one text`},
		{"match: {values: [a, '']}", `3:32: match.values[1]: must not be empty`},
		{"match: {values: [a, {b: c}]}", `3:32: match.values[1]: must be a text, not a mapping`},
		{"match: {values: [a, b, a]}", `3:35: match.values[2]: "a" is the same value as "a" before it; write it once`},
		{"match: {values: [a, A], ignore_case: true}", `3:32: match.values[1]: "A" is the same value as "a" before it; write it once`},
		{"match: {not: {regex: '[a-z]{1,1000}', ignore_case: true}}", `3:33: match.not.regex: has a program of 2001 instructions, each of which can cost time at every character of a value; want at most 2000: repeat less, {1,20} in place of {1,200}, or use prefix, suffix, contains or values`},
		{"match: {cidr: [10.0.0.0/8, 10.0.0/8]}", `3:39: match.cidr[1]: "10.0.0/8" is no network; want one such as 10.0.0.0/8 or 2001:db8::/32`},
		{"match: {cidr: [10.0.0.0/33]}", `3:27: match.cidr[0]: "10.0.0.0/33" is no network; want one such as 10.0.0.0/8 or 2001:db8::/32`},
		{"match: {cidr: [10.1.0.0/8]}", `3:27: match.cidr[0]: "10.1.0.0/8" is an address in a network; the network is 10.0.0.0/8`},
		{"match: {cidr: [10.1.0.1]}", `3:27: match.cidr[0]: "10.1.0.1" is an address; the network of it alone is 10.1.0.1/32`},
		{"match: {cidr: ['::ffff:0:0/90']}", `3:27: match.cidr[0]: "::ffff:0:0/90" has more than IPv4-mapped addresses, which are IPv4; want a network such as 10.0.0.0/8 or 2001:db8::/32`},
		{"match: {cidr: [10.0.0.0/8, '::ffff:10.0.0.0/104']}", `3:39: match.cidr[1]: 10.0.0.0/8 stands in the list twice; write it once`},
		{"match: {cidr: [10.0.0.0/8, 10.1.0.0/8, x, 10.0.0.0/8]}", `3:39: match.cidr[1]: "10.1.0.0/8" is an address in a network; the network is 10.0.0.0/8
3:51: match.cidr[2]: "x" is no network; want one such as 10.0.0.0/8 or 2001:db8::/32
3:54: match.cidr[3]: 10.0.0.0/8 stands in the list twice; write it once`},
		{"match: {values: [a, a, '', '']}", "3:35: match.values[2]: must not be empty\n3:39: match.values[3]: must not be empty"},
		{"match: {cidr: [10.0.0.0/8], ignore_case: true}", `3:26: match.cidr: has no meaning beside ignore_case; addresses have no case`},
		{"match: {not: {cidr: [10.0.0.0/8]}, ignore_case: true}", `3:32: match.not.cidr: has no meaning beside ignore_case; addresses have no case`},
		{"match: {regex: 'a)|(b'}", "3:27: match.regex: is no regular expression of RE2: unexpected ): `a)|(b`"},
		{"match: {regex: 'a(?=b)'}", "3:27: match.regex: is no regular expression of RE2: invalid or unsupported Perl syntax: `(?=`"},
		{"match: {regex: " + strings.Repeat("a", 1001) + "}", `3:27: match.regex: must have at most 1000 bytes, not 1001; split it into several descriptors`},
		{"value: b, match: {prefix: a}", `3:29: match: excludes value; write the value as match: {values: [...]}, or remove one of the two`},
		{"cidr: [10.0.0.0/8]", "3:12: cidr: has no meaning here; it belongs into match"},
		{"mask: 24", `3:18: mask: must be a mapping with ipv4, ipv6 or both, such as {ipv4: 24, ipv6: 64}, not 24`},
		{"mask: {}", `3:18: mask: must be a mapping with ipv4, ipv6 or both, such as {ipv4: 24, ipv6: 64}, not an empty mapping`},
		{"mask: {ipv4: 33, ipv6: 0}", "3:25: mask.ipv4: must be between 1 and 32, not 33\n3:35: mask.ipv6: must be between 1 and 128, not 0"},
		{"value: 10.0.0.1, mask: {ipv4: 24}", "3:35: mask: has no meaning beside single values; remove it, or match addresses with cidr"},
		{"match: {values: [10.0.0.1]}, mask: {ipv4: 24}", "3:47: mask: has no meaning beside single values; remove it, or match addresses with cidr"},
		{"value: '10.*', mask: {ipv4: 24}, share_threshold: true", "3:33: mask: has no meaning beside share_threshold, with which all addresses share one counter; remove one of the two"},
		{"mask: {ipv4: 24}, rate_limit: {unit: day, requests_per_unit: 1, reserve: true}", `3:18: mask: has no meaning beside reserve: the value of "k" is the id of a reservation, which is in no counter and in no metric`},
		{"match: {prefix: a}}\n- {key: k, match: {prefix: a}", `4:3: repeats key "k", match "prefix:a" of a.yaml:3:3; a descriptor may be listed once`},
		{"match: {not: {cidr: [10.0.0.0/8]}}}\n- {key: k, match: {not: {cidr: [10.0.0.0/8]}}", `4:3: repeats key "k", match "not:cidr:10.0.0.0/8" of a.yaml:3:3; a descriptor may be listed once`},
		{"match: {cidr: [10.0.0.0/8]}}\n- {key: k, match: {cidr: [11.0.0.0/8, 10.0.0.0/8]}", `4:39: match.cidr[1]: "10.0.0.0/8" is taken by key "k", match "cidr:10.0.0.0/8" of a.yaml:3:3 already; write it in one of the two`},
		{"match: {cidr: [10.0.0.0/8]}}\n- {key: k, match: {cidr: [12.0.0.0/8, 10.0.0.0/8, 9.0.0.0/8]}", `4:39: match.cidr[1]: "10.0.0.0/8" is taken by key "k", match "cidr:10.0.0.0/8" of a.yaml:3:3 already; write it in one of the two`},
		{"value: a}\n- {key: k, match: {values: [b, a]}", `4:32: match.values[1]: "a" is taken by key "k", value "a" of a.yaml:3:3 already; write it in one of the two`},
		{"match: {values: [b, a]}}\n- {key: k, value: a", `4:3: value: "a" is taken by key "k", match "values:b+1" of a.yaml:3:3 already; write it in one of the two`},
		{"match: {values: [b, a]}}\n- {key: k, match: {values: [c, A], ignore_case: true}", `4:32: match.values[1]: "A" is taken by key "k", match "values:b+1" of a.yaml:3:3 already; write it in one of the two`},
		{"match: {values: [A], ignore_case: true}}\n- {key: k, value: a", `4:3: value: "a" is taken by key "k", match "values/i:A" of a.yaml:3:3 already; write it in one of the two`},
		{"match: {values: [A], ignore_case: true}}\n- {key: k, match: {values: [ſ, K, a]}", `4:35: match.values[2]: "a" is taken by key "k", match "values/i:A" of a.yaml:3:3 already; write it in one of the two`},
		{"value: K}\n- {key: k, match: {values: [k], ignore_case: true}", `4:29: match.values[0]: "k" is taken by key "k", value "K" of a.yaml:3:3 already; write it in one of the two`},
	} {
		content := "domain: d\ndescriptors:\n- {key: k, " + tt.content + "}\n"
		_, _, err := yaml.Load([]yaml.Text{text("a.yaml", content)}, rules.Options{})
		want := strings.Split(tt.want, "\n")
		for i := range want {
			want[i] = "a.yaml:" + want[i]
		}
		if diff := cmp.Diff(want, strings.Split(fmt.Sprint(err), "\n")); diff != "" {
			t.Errorf("%s: -want +got\n%s", tt.content, diff)
		}
	}
}

// What several descriptors may have in common without taking one another's values.
func TestMatchesBesideEachOther(t *testing.T) {
	load(t, rulesOfD(`
- {key: k, value: a}
- {key: k, value: A}
- {key: k, match: {values: [b, B]}}
- {key: k, match: {values: [c], ignore_case: true}}
- {key: k, match: {prefix: a}}
- {key: k, match: {prefix: a, ignore_case: true}}
- {key: k, match: {prefix: A, ignore_case: true}}
- {key: k, match: {not: {prefix: a}}}
- {key: k, match: {not: {values: [a]}}}
- {key: k, match: {cidr: [10.0.0.0/8]}}
- {key: k, match: {cidr: [10.0.0.0/9]}}
- {key: l, match: {cidr: [10.0.0.0/8]}}
- {key: "k*", match: {values: [a]}}
- {key: "k*", match: {cidr: [10.0.0.0/8]}}
- {key: k, mask: {ipv4: 24}}
`))
}

// A part of a file that is left out leaves the rest.
func TestSkipsWrongMatch(t *testing.T) {
	tree, _, err := yaml.Load([]yaml.Text{rulesOfD("- {key: k, match: {cidr: [x]}, " + limited + "}\n- {key: k, match: {cidr: [10.0.0.0/8]}, " + limited + "}\n- {key: k, match: {cidr: [10.0.0.0/8]}, " + limited + "}")}, rules.Options{SkipWrong: true})
	if err == nil || tree.Rules() != 1 || tree.Domain("d").Match(entries("k=10.1.1.1")) == nil || tree.Domain("d").Match(entries("k=y")) != nil {
		t.Errorf("got %v, %d rules", err, tree.Rules())
	}
}

// /rlconfig shows the masks of a rule, and the masks of the descriptors around it.
func TestDumpOfMasks(t *testing.T) {
	tree, _ := loadWith(t, rules.Options{}, text("a.yaml", `domain: d
descriptors:
- key: a
  mask: {ipv4: 24}
  rate_limit: {unit: day, requests_per_unit: 1}
  descriptors:
  - {key: b, rate_limit: {unlimited: true}}
  - {key: c, mask: {ipv4: 16, ipv6: 64}, rate_limit: {unit: day, requests_per_unit: 1, strategy: gcra}}
- {key: e, match: {cidr: [10.0.0.0/8]}, mask: {ipv4: 8}, rate_limit: {unit: day, requests_per_unit: 1}}
`))
	want := `d.a.b: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false, mask: {ipv4: 24}
d.a.c: unit=DAY requests_per_unit=1, shadow_mode: false, quota_mode: false, mask: {ipv4: 24}, mask: {ipv4: 16, ipv6: 64}, strategy: gcra, burst: 1
d.a: unit=DAY requests_per_unit=1, shadow_mode: false, quota_mode: false, mask: {ipv4: 24}
d.e~cidr:10.0.0.0/8: unit=DAY requests_per_unit=1, shadow_mode: false, quota_mode: false, mask: {ipv4: 8}
`
	if diff := cmp.Diff(want, rules.Dump(tree)); diff != "" {
		t.Error(diff)
	}
}
