package descriptors_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"example.org/rls/pkg/descriptors"
)

// named are the entries of a request that rule limits, as people are told them.
func named(rule *descriptors.Rule, asked []descriptors.Entry) []descriptors.Entry {
	told := slices.Clone(asked)
	for i, e := range asked {
		told[i] = descriptors.Named(rule.Shared, i, e)
	}
	return told
}

// The entries that people are told lead to the rule and to the counter of the request.
func TestNamedEntriesHaveTheCounter(t *testing.T) {
	domain := load(t, yamlFile(`
- {key: ip, match: {cidr: [10.0.0.0/8, 192.168.0.0/16]}, share_threshold: true, `+limited+`}
- {key: ip, match: {cidr: [10.1.0.0/16]}, mask: {ipv4: 24}, `+limited+`}
- {key: ip, match: {cidr: [10.1.2.0/32]}, `+limited+`}
- {key: ip, match: {prefix: "x"}, share_threshold: true, `+limited+`}
- {key: ip, value: "a*", share_threshold: true, `+limited+`}
- {key: ip, mask: {ipv4: 16, ipv6: 48}, `+limited+`}
- {key: "k-*", match: {values: ["1+1", "2"], ignore_case: true}, share_threshold: true, `+limited+`}
- {key: "k-*", value: "b*", share_threshold: true, `+limited+`}
- {key: path, match: {regex: "/v[0-9]{1,2}=x~.*"}, share_threshold: true, descriptors: [{key: user, mask: {ipv4: 24}, `+limited+`}]}
- {key: path, match: {not: {suffix: ".png"}}, share_threshold: true, `+limited+`}
- {key: m, match: {not: {cidr: [10.0.0.0/8]}}, mask: {ipv4: 8}, `+limited+`}
- {key: half, `+limited+`}
- {key: half, match: {cidr: [10.0.0.128/25, "2001:db8:0:1:8000::/65"]}, mask: {ipv4: 24, ipv6: 64}, `+limited+`}
- {key: rest, match: {not: {cidr: [10.0.0.0/25]}}, mask: {ipv4: 24}, `+limited+`}
- {key: best, mask: {ipv4: 24}, `+limited+`}
- {key: best, match: {cidr: [11.0.0.0/8]}, mask: {ipv4: 24}, `+limited+`}
- {key: best, match: {cidr: [11.1.1.0/28]}, `+limited+`}
- {key: hold, match: {prefix: "y"}, share_threshold: true, descriptors: [{key: id, rate_limit: {unit: minute, requests_per_unit: 1, reserve: true}}]}
`)).Domain("d")
	for request, want := range map[string]string{
		"ip=10.2.0.1": "ip~cidr:10.0.0.0/8+1", "ip=192.168.0.1": "ip~cidr:10.0.0.0/8+1", "ip=10.1.2.3": "ip=10.1.2.0/24", "ip=10.1.2.0": "ip=10.1.2.0", "ip=xyz": "ip~prefix:x",
		"ip=abc": "ip=a*", "ip=1.2.3.4": "ip=1.2.0.0/16", "ip=2001:db8::1": "ip=2001:db8::/48", "ip=other": "ip=other", "ip": "ip",
		"k-1=2": "k-1=~k-*~values/i:1+1+1", "k-~=1+1": "k-~=~k-*~values/i:1+1+1", "k-1=bb": "k-1=b*", "path=/v12=x~~,user=10.1.2.3": "path~regex:/v[0-9]{1,2}=x~.*,user=10.1.2.0/24",
		"path=a": "path~not:suffix:.png", "m=11.1.1.1": "m=11.0.0.0/8", "m=~x": "m=~x", "half=10.0.0.200": "half=10.0.0.0/24", "half=2001:db8:0:1:ffff::": "half=2001:db8:0:1::/64", "half=10.0.0.1": "half=10.0.0.1",
		"rest=10.0.0.200": "rest=10.0.0.0/24", "rest=10.0.1.1": "rest=10.0.1.0/24", "best=11.1.1.99": "best=11.1.1.0/24", "best=12.1.1.1": "best=12.1.1.0/24", "hold=y,id=1": "hold~prefix:y,id",
	} {
		asked := entries(request)
		rule := domain.Match(asked)
		told := named(rule, asked)
		if got := descriptors.Pairs(told); got != want {
			t.Errorf("%s: is told as %s, want %s", request, got, want)
		}
		id := func(entries []descriptors.Entry) string {
			return string(descriptors.AppendID(nil, "d", entries, rule.Shared))
		}
		if got := domain.MatchNamed(told); got != rule || id(told) != id(asked) {
			t.Errorf("%s: %s is of %v, %s; want %s, %s", request, want, got, id(told), rule.Path, id(asked))
		}
		trace := domain.Explain(told, 100)
		if trace.Rule != rule {
			t.Errorf("%s: explained as %v", want, trace)
		}
		won := 0
		for _, s := range trace.Path {
			if s.Won && s.Match != descriptors.Nothing && s.Why != "" {
				won++
			}
		}
		if won != len(told) {
			t.Errorf("%s: descriptors won %d times in %v", want, won, trace)
		}
		for i, e := range told {
			if back := descriptors.ParsePair(e.Pair()); back != e {
				t.Errorf("%s: %s is read as %q", want, e.Pair(), back)
			}
			// A client has no use of the text of a match.
			if e != asked[i] && strings.HasPrefix(e.Value, "~") && domain.Match(told) == rule {
				t.Errorf("a request with %s has the rule %s", want, rule.Path)
			}
		}
	}
	for text, want := range map[string]string{
		"ip=~cidr:10.0.0.0/8": "d.ip", "ip=10.1.2.3/24": "d.ip", "ip=~suffix:x": "d.ip", "ip=10.2.0.0/8": "d.ip", "k-1=~prefix:x": "", "m=10.0.0.0/8": "d.m~not:cidr:10.0.0.0/8",
		"half=10.0.1.0/24": "d.half", "half=9.255.255.0/24": "d.half", "half=2001:db8:0:2::/64": "d.half", "rest=10.0.0.0/25": "d.rest~not:cidr:10.0.0.0/25",
		"ip=a*": "d.ip_a*", "path=~not:suffix:.png,user=1": "",
	} {
		got := ""
		if rule := domain.MatchNamed(entries(text)); rule != nil {
			got = rule.Path
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

// An explanation of the text of a match says that this is no value, and names it where others lose.
func TestExplainNamedEntries(t *testing.T) {
	domain := load(t, yamlFile(`- {key: ip, match: {cidr: [10.0.0.0/8]}, share_threshold: true, `+limited+`}
- {key: ip, match: {not: {contains: x}}, `+limited+`}
- {key: ip, `+limited+`}
`)).Domain("d")
	const names = "the entry names its counter, not one of its values"
	want := "cidr ip~cidr:10.0.0.0/8 at 3 won: " + names + "\n" +
		"not ip~not:contains:x at 4: rules.yaml:3 goes first: " + names + "\n" +
		"key ip at 5: rules.yaml:3 goes first: " + names
	var got []string
	for _, s := range domain.Explain(entries("ip=~cidr:10.0.0.0/8"), 100).Path {
		line := fmt.Sprintf("%s %s at %d", s.Match, descriptors.Entry{Key: s.Key, Value: s.Value}.Pair(), s.Line)
		if s.Won {
			line += " won"
		}
		got = append(got, line+": "+s.Why)
	}
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}
