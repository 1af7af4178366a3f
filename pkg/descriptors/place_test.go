package descriptors_test

import (
	"fmt"
	"strings"
	"testing"

	"example.org/rls/pkg/descriptors"
)

func TestPlaces(t *testing.T) {
	tree := load(t, yamlFile(`- key: plan
  value: free
  descriptors:
  - {key: user, `+limited+`}
  - {key: user, value: ann, `+limited+`}
  - {key: user, value: "a*", `+limited+`}
  - {key: user, value: bob, `+limited+`}
- key: name
  value: ann
  `+limited+`
  descriptors: [{key: path, `+limited+`}, {key: path, value: /, `+limited+`}]
- {key: "x-*", `+limited+`}
- {key: "y-*", value: ann, `+limited+`}
- {key: ann, value: other, `+limited+`}
- {key: user}
`))
	places := func(value string, n int) string {
		var lines []string
		for _, p := range tree.Places(value, n) {
			lines = append(lines, fmt.Sprintf("%s %s %s at %d", p.Match, descriptors.Pairs(p.Path), p.Rule, p.Line))
		}
		return strings.Join(lines, "\n")
	}
	exact := `exact plan=free,user=ann d.plan_free.user_ann at 7
exact name=ann d.name_ann at 10
exact name=ann,path d.name_ann.path at 13
exact name=ann,path=/ d.name_ann.path_/ at 13
exact y-*=ann d.y-*_ann at 15
`
	wildcard := "wildcard plan=free,user=a* d.plan_free.user_a* at 8\n"
	for _, test := range []struct {
		value string
		n     int
		want  string
	}{
		{"ann", 20, exact + wildcard + "any plan=free,user d.plan_free.user at 6\nany x-* d.x-* at 14"},
		{"ann", 2, strings.Join(strings.SplitAfter(exact, "\n")[:2], "")},
		{"ann", 6, exact + wildcard},
		{"ann", 0, ""},
		{"an", 2, wildcard + "any plan=free,user d.plan_free.user at 6"},
		{"a*", 1, "exact plan=free,user=a* d.plan_free.user_a* at 8"},
		{"/", 1, "exact name=ann,path=/ d.name_ann.path_/ at 13"},
		{"", 20, "any plan=free,user d.plan_free.user at 6\nany name=ann,path d.name_ann.path at 13\nany x-* d.x-* at 14"},
	} {
		if got := places(test.value, test.n); got != strings.TrimSuffix(test.want, "\n") {
			t.Errorf("%d places of %q: got\n%s\nwant\n%s", test.n, test.value, got, test.want)
		}
	}
	if places := (*descriptors.Tree)(nil).Places("ann", 20); len(places) != 0 {
		t.Errorf("without rules: got %v", places)
	}
}

// The networks of a value, and the other matches that take it, are places.
func TestPlacesOfMatches(t *testing.T) {
	tree := load(t, yamlFile("- {key: ip, match: {cidr: [10.0.0.0/8]}, "+limited+"}\n- {key: ip, match: {values: [10.1.1.1, a]}, "+limited+"}\n"+
		"- {key: path, match: {not: {prefix: /}}, "+limited+"}\n- {key: user, "+limited+"}"))
	var got []string
	for _, p := range tree.Places("10.1.1.1", 20) {
		got = append(got, p.Match+" "+descriptors.Pairs(p.Path)+" "+p.Rule)
	}
	want := "exact ip~values:10.1.1.1+1 d.ip~values:10.1.1.1+1\nmatcher ip~cidr:10.0.0.0/8 d.ip~cidr:10.0.0.0/8\n" +
		"matcher path~not:prefix:/ d.path~not:prefix:/\nany user d.user"
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

// The best of many places are found, whatever their order is.
func TestPlacesOfMany(t *testing.T) {
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n")
	for i := range 1000 {
		fmt.Fprintf(&b, "- {key: k%d, %s}\n", i, limited)
	}
	b.WriteString("- {key: last, value: ann, " + limited + "}\n")
	file := manyRules(0)
	file.Content = []byte(b.String())
	places := load(t, file).Places("ann", 3)
	var keys []string
	for _, p := range places {
		keys = append(keys, p.Path[0].Key)
	}
	if got := strings.Join(keys, " "); got != "last k0 k1" {
		t.Errorf("got %s", got)
	}
}

func BenchmarkPlaces(b *testing.B) {
	any100k := strings.ReplaceAll(string(manyRules(100_000).Content), "\n    value: v0-", "-")
	for name, rules := range map[string]string{
		"values": string(manyRules(100_000).Content), "wildcards": string(manyWildcards(100_000).Content), "keys": any100k,
	} {
		b.Run(name, func(b *testing.B) {
			file := manyRules(0)
			file.Content = []byte(rules)
			tree := load(b, file)
			b.ReportAllocs()
			for b.Loop() {
				tree.Places("v0-7", 20)
			}
		})
	}
}
