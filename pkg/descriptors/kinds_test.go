package descriptors_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gaissmai/bart"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/match"
	"example.org/rls/pkg/descriptors/yaml"
)

func TestMatchKinds(t *testing.T) {
	domain := load(t, yamlFile(`
- {key: ip, match: {cidr: [10.0.0.0/8, "2001:db8::/32"]}, `+limited+`}
- {key: ip, match: {cidr: [10.1.0.0/16]}, `+limited+`}
- {key: ip, match: {cidr: ["::ffff:10.1.2.0/120"]}, `+limited+`}
- {key: ip, value: 10.1.2.3, `+limited+`}
- {key: ip, match: {values: [10.1.2.4, host]}, `+limited+`}
- {key: ip, match: {prefix: "10."}, `+limited+`}
- {key: ip, `+limited+`}
- {key: path, match: {prefix: /API/}, `+limited+`}
- {key: path, value: "/api/*", `+limited+`}
- {key: path, match: {prefix: /api/v2, ignore_case: true}, `+limited+`}
- {key: path, match: {suffix: .png}, `+limited+`}
- {key: path, match: {contains: "*"}, `+limited+`}
- {key: path, match: {regex: "/v[0-9]+|/x"}, `+limited+`}
- {key: path, match: {regex: "/straße", ignore_case: true}, `+limited+`}
- {key: path, match: {not: {prefix: /}}, `+limited+`}
- {key: plan, match: {values: [Gold, ſilver], ignore_case: true}, `+limited+`}
- {key: plan, match: {not: {values: [free]}}, `+limited+`}
- {key: "x-*", match: {cidr: [10.0.0.0/8]}, `+limited+`}
- {key: "x-*", match: {not: {contains: A, ignore_case: true}}, `+limited+`}
`+strings.Replace(`- {key: way, match: {prefix: a}, descriptors: [{key: b, LIMIT}]}`, "LIMIT", limited, 1))).Domain("d")
	for request, want := range map[string]string{
		"ip=10.200.0.1": "d.ip~cidr:10.0.0.0/8+1", "ip=10.1.3.3": "d.ip~cidr:10.1.0.0/16", "ip=::ffff:10.1.3.3": "d.ip~cidr:10.1.0.0/16",
		"ip=10.1.2.9": "d.ip~cidr:::ffff:10.1.2.0/120", "ip=10.1.2.3": "d.ip_10.1.2.3", "ip=10.1.2.4": "d.ip~values:10.1.2.4+1", "ip=host": "d.ip~values:10.1.2.4+1",
		"ip=2001:DB8::1": "d.ip~cidr:10.0.0.0/8+1", "ip=2001:db9::1": "d.ip", "ip": "d.ip",
		"ip=10.0.0.1:80": "d.ip~prefix:10.", "ip=[2001:db8::1]": "d.ip", "ip=2001:db8::1%eth0": "d.ip", "ip=010.0.0.1": "d.ip", "ip=10.0.0.0/8": "d.ip~prefix:10.",
		"path=/API/x": "d.path~prefix:/API/", "path=/api/v2": "d.path_/api/*", "path=/Api/V2": "d.path~prefix/i:/api/v2", "path=/a.png": "d.path~suffix:.png",
		"path=/a*b.png": "d.path~suffix:.png", "path=/a*b": "d.path~contains:*", "path=/v12": "d.path~regex:/v[0-9]+|/x", "path=/x": "d.path~regex:/v[0-9]+|/x", "path=/xx": "",
		"path=/v1/": "", "path=/STRAßE": "d.path~regex/i:/straße", "path=/STRAẞE": "d.path~regex/i:/straße", "path=foo": "d.path~not:prefix:/", "path": "d.path~not:prefix:/",
		"plan=gold": "d.plan~values/i:Gold+1", "plan=SILVER": "d.plan~values/i:Gold+1", "plan=free": "", "plan=none": "d.plan~not:values:free",
		"x-a=10.1.1.1": "d.x-*~cidr:10.0.0.0/8", "x-a=b": "d.x-*~not:contains/i:A", "x-a=bac": "",
		"way=ax,b=1": "d.way~prefix:a.b", "way=b,b=1": "", "way=ax": "",
	} {
		got := ""
		if rule := domain.Match(entries(request)); rule != nil {
			got = rule.Path
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", request, got, want)
		}
	}
}

// Names in metrics and keys.
func TestNamesOfMatches(t *testing.T) {
	domain := load(t, yamlFile(`
- {key: a, match: {prefix: "x*|~"}, share_threshold: true, value_to_metric: true, `+limited+`, descriptors: [{key: b, detailed_metric: true, `+limited+`}]}
- {key: a, match: {suffix: y}, `+limited+`}
- {key: a, match: {suffix: z}, value_to_metric: true, `+limited+`}
- {key: a, match: {contains: "-"}, descriptors: [{key: b, value_to_metric: true, `+limited+`}]}
- {key: a, match: {values: ["1+1", "2"]}, share_threshold: true, `+limited+`}
- {key: a, match: {values: ["1", "3"]}, share_threshold: true, `+limited+`}
- {key: a, match: {cidr: [10.0.0.0/8]}, mask: {ipv4: 16}, value_to_metric: true, `+limited+`}
- {key: "k-*", match: {prefix: x}, share_threshold: true, `+limited+`}
- {key: "k-*", value: "*", mask: {ipv6: 64}, detailed_metric: true, `+limited+`}
`)).Domain("d")
	for request, want := range map[string]string{
		"a=x*|~1":       "d.a~prefix:x*|~ d|a~prefix:x%2A%7C~ d_a~prefix:x*|~__",
		"a=x*|~1,b=c":   "d.a~prefix:x*|~.b_c d|a~prefix:x%2A%7C~|b=c d_a~prefix:x*|~__b_c_",
		"a=xy":          "d.a~suffix:y d|a=xy d_a_xy_",
		"a=xz":          "d.a_xz d|a=xz d_a_xz_",
		"a=-,b=c":       "d.a~contains:-.b_c d|a=-|b=c d_a_-_b_c_",
		"a=2":           "d.a~values:1+1+1 d|a~values:1%2B1+1 d_a~values:1+1+1__",
		"a=3":           "d.a~values:1+1 d|a~values:1+1 d_a~values:1+1__",
		"a=10.1.2.3":    "d.a_10.1.0.0/16 d|a=10.1.0.0/16 d_a_10.1.0.0/16_",
		"k-1=xx":        "d.k-1_k-*~prefix:x d|k-1~k-*~prefix:x d_k-1~k-*~prefix:x__",
		"k-1=::ffff:1":  "d.k-1_::/64 d|k-1=::/64 d_k-1_::/64_",
		"k-1=10.0.0.1":  "d.k-1_10.0.0.1 d|k-1=10.0.0.1 d_k-1_10.0.0.1_",
		"k-~=10.0.0.1":  "d.k-~_10.0.0.1 d|k-%7E=10.0.0.1 d_k-~_10.0.0.1_",
		"k-1=fe80::1%e": "d.k-1_fe80::1%e d|k-1=fe80::1%25e d_k-1_fe80::1%e_",
	} {
		asked := entries(request)
		rule := domain.Match(asked)
		if rule == nil {
			t.Errorf("%s: no rule", request)
			continue
		}
		id := string(descriptors.AppendID(nil, "d", asked, rule.Shared))
		got := rule.MetricKey("d", asked) + " " + id + " " + string(descriptors.AppendRatelimitID(nil, "d", asked, rule.Shared))
		if got != want {
			t.Errorf("%s: got %s, want %s", request, got, want)
		}
		if _, parsed, ok := descriptors.ParseID(id); !ok || string(descriptors.AppendID(nil, "d", parsed, rule.Shared)) != id || !rule.Identifies(domain, parsed) {
			t.Errorf("%s: %s is read as %q", request, id, parsed)
		}
	}
}

func TestExplainMatches(t *testing.T) {
	domain := load(t, yamlFile(`- {key: ip, match: {cidr: [10.0.0.0/8, 11.0.0.0/8]}, `+limited+`}
- {key: ip, match: {cidr: [10.1.0.0/16]}, `+limited+`}
- {key: ip, value: 10.1.1.1, `+limited+`}
- {key: ip, match: {prefix: "10."}, `+limited+`}
- {key: ip, match: {not: {contains: x}}, `+limited+`}
- {key: ip, match: {values: [a, b]}, `+limited+`}
- {key: ip, `+limited+`}
`)).Domain("d")
	const longest = "its network is the longest that has the address"
	for request, want := range map[string]string{
		"ip=10.1.2.3": "cidr ip~cidr:10.0.0.0/8+1 at 3: rules.yaml:4 goes first: its network 10.1.0.0/16 is longer\n" +
			"cidr ip~cidr:10.1.0.0/16 at 4 won: " + longest + "\n" +
			"none ip_10.1.1.1 at 5: its value does not match the entry's; rules.yaml:4 won\n" +
			"prefix ip~prefix:10. at 6: rules.yaml:4 goes first: " + longest + "\n" +
			"not ip~not:contains:x at 7: rules.yaml:4 goes first: " + longest + "\n" +
			"none ip~values:a+1 at 8: the entry's value is not in its list; rules.yaml:4 won\n" +
			"key ip at 9: rules.yaml:4 goes first: " + longest,
		"ip=10.x": "none ip~cidr:10.0.0.0/8+1 at 3: the entry's value is no address of its networks; rules.yaml:6 won\n" +
			"none ip~cidr:10.1.0.0/16 at 4: the entry's value is no address of its networks; rules.yaml:6 won\n" +
			"none ip_10.1.1.1 at 5: its value does not match the entry's; rules.yaml:6 won\n" +
			"prefix ip~prefix:10. at 6 won: it is the first wildcard or match that has the entry: the entry's value begins with its text\n" +
			"none ip~not:contains:x at 7: the entry's value has its text; rules.yaml:6 won\n" +
			"none ip~values:a+1 at 8: the entry's value is not in its list; rules.yaml:6 won\n" +
			"key ip at 9: rules.yaml:6 goes first: it is the first wildcard or match that has the entry: the entry's value begins with its text",
		"ip=b": "none ip~cidr:10.0.0.0/8+1 at 3: the entry's value is no address of its networks; rules.yaml:8 won\n" +
			"none ip~cidr:10.1.0.0/16 at 4: the entry's value is no address of its networks; rules.yaml:8 won\n" +
			"none ip_10.1.1.1 at 5: its value does not match the entry's; rules.yaml:8 won\n" +
			"none ip~prefix:10. at 6: the entry's value does not begin with its text; rules.yaml:8 won\n" +
			"not ip~not:contains:x at 7: rules.yaml:8 goes first: the entry's value is in its list\n" +
			"values ip~values:a+1 at 8 won: the entry's value is in its list\n" +
			"key ip at 9: rules.yaml:8 goes first: the entry's value is in its list",
		"ip=10.9": "none ip~cidr:10.0.0.0/8+1 at 3: the entry's value is no address of its networks; rules.yaml:6 won\n" +
			"none ip~cidr:10.1.0.0/16 at 4: the entry's value is no address of its networks; rules.yaml:6 won\n" +
			"none ip_10.1.1.1 at 5: its value does not match the entry's; rules.yaml:6 won\n" +
			"prefix ip~prefix:10. at 6 won: it is the first wildcard or match that has the entry: the entry's value begins with its text\n" +
			"not ip~not:contains:x at 7: shadowed by the match above it, rules.yaml:6\n" +
			"none ip~values:a+1 at 8: the entry's value is not in its list; rules.yaml:6 won\n" +
			"key ip at 9: rules.yaml:6 goes first: it is the first wildcard or match that has the entry: the entry's value begins with its text",
	} {
		var got []string
		for _, s := range domain.Explain(entries(request), 100).Path {
			e := descriptors.Entry{Key: s.Key, Value: s.Value}
			written := e.Pair()
			if s.Value == "10.1.1.1" {
				written = e.String()
			}
			line := fmt.Sprintf("%s %s at %d", s.Match, written, s.Line)
			if s.Won {
				line += " won"
			}
			got = append(got, line+": "+s.Why)
		}
		if text := strings.Join(got, "\n"); text != want {
			t.Errorf("%s: got\n%s\nwant\n%s", request, text, want)
		}
	}
}

// modelKind is a descriptor of the model with a match or with a value.
type modelKind struct {
	yaml    string
	rank    int                    // 0 goes first
	takes   func(value string) int // 0 if it does not, else higher for a longer network
	spelled string                 // the value that it takes as an exact one although it has a wildcard
}

// modelOf makes the descriptor of a kind with some texts.
func modelOf(kind string, texts []string, not, fold bool) modelKind {
	folded := func(s string) string {
		if fold {
			return strings.ToLower(s)
		}
		return s
	}
	is := map[string]func(value, text string) bool{
		"values": func(v, text string) bool { return folded(v) == folded(text) },
		"prefix": func(v, text string) bool { return strings.HasPrefix(folded(v), folded(text)) },
		"suffix": func(v, text string) bool { return strings.HasSuffix(folded(v), folded(text)) },
		"contains": func(v, text string) bool {
			return slices.ContainsFunc(slices.Collect(func(yield func(string) bool) {
				for i := range len(v) + 1 {
					if !yield(folded(v[i:])) {
						return
					}
				}
			}), func(rest string) bool { return strings.HasPrefix(rest, folded(text)) })
		},
		"regex": func(v, text string) bool {
			flags := ""
			if fold {
				flags = "(?i)"
			}
			return regexp.MustCompile(flags + "^(?:" + text + ")$").MatchString(v)
		},
		"cidr": func(v, text string) bool {
			address, err := netip.ParseAddr(v)
			return err == nil && netip.MustParsePrefix(text).Contains(address.Unmap())
		},
		"value": func(v, text string) bool { return v == text || strings.Contains(text, "*") && globMatches(text, v) },
	}[kind]
	m := modelKind{rank: 2}
	m.takes = func(v string) int {
		best := 0
		for _, text := range texts {
			if is(v, text) {
				best = max(best, 1)
				if kind == "cidr" {
					best = max(best, 1+netip.MustParsePrefix(text).Bits())
				}
			}
		}
		if not {
			return 1 - min(best, 1)
		}
		return best
	}
	list := fmt.Sprintf("%q", texts[0])
	if kind == "values" || kind == "cidr" {
		list = "[" + strings.Join(quoted(texts), ", ") + "]"
	}
	switch {
	case kind == "value":
		m.yaml = "value: " + list
		if !strings.Contains(texts[0], "*") {
			m.rank = 0
		}
		m.spelled = texts[0]
		return m
	case not:
	case kind == "values":
		m.rank = 0
	case kind == "cidr":
		m.rank = 1
	}
	m.yaml = kind + ": " + list
	if not {
		m.yaml = "not: {" + m.yaml + "}"
	}
	if fold {
		m.yaml += ", ignore_case: true"
	}
	m.yaml = "match: {" + m.yaml + "}"
	return m
}

func quoted(texts []string) (all []string) {
	for _, text := range texts {
		all = append(all, fmt.Sprintf("%q", text))
	}
	return all
}

// FuzzMatchKinds compares Match with a model that tries every descriptor of a level, few of
// them and many.
func FuzzMatchKinds(f *testing.F) {
	for i := range 30 {
		f.Add(uint64(i), i%2*30+i%8)
	}
	f.Fuzz(func(t *testing.T, seed uint64, n int) {
		random := rand.New(rand.NewPCG(seed, 1))
		pick := func(from ...string) string { return from[random.IntN(len(from))] }
		word := func(letters string, least int) string {
			var b strings.Builder
			for range least + random.IntN(4) {
				b.WriteString(pick(strings.Split(letters, "")...))
			}
			return b.String()
		}
		address := func() string {
			if random.IntN(3) == 0 {
				return netip.AddrFrom16([16]byte{0x20, 1, byte(random.IntN(2)), 15: byte(random.IntN(3))}).String()
			}
			return pick("", "", "", "::ffff:") + netip.AddrFrom4([4]byte{10, byte(random.IntN(3)), byte(random.IntN(3)), byte(random.IntN(4))}).String()
		}
		var model []modelKind
		var b strings.Builder
		for range max(0, min(n, 60)) {
			kind := pick("value", "value", "values", "prefix", "suffix", "contains", "contains", "regex", "cidr")
			not, fold := random.IntN(8) == 0 && kind != "value", random.IntN(3) == 0 && kind != "value" && kind != "cidr"
			texts := []string{word("aAbBé1/ ", 1)}
			switch kind {
			case "value":
				texts[0] = word("ab1*", 1)
			case "regex":
				texts[0] = pick("", "a", "é", "(B)", "(?i:a)", "ab") + pick("[ab]+", ".*", "a|b", "(1|/)?", `\w*`, "a*") + pick("", "a", "b1", "(ab)", "$")
			case "values":
				texts = append(texts, word("aAbB1", 2))
			case "cidr":
				texts = nil
				for range 1 + random.IntN(2) {
					a := netip.MustParseAddr(address()).Unmap()
					p, _ := a.Prefix(random.IntN(a.BitLen() + 1))
					texts = append(texts, p.String())
				}
			}
			m := modelOf(kind, texts, not, fold)
			line := fmt.Sprintf("- {key: k, %s, rate_limit: {unit: hour, requests_per_unit: %d}}\n", m.yaml, len(model))
			if _, _, err := yaml.Load([]yaml.Text{yamlFile(b.String() + line)}, yaml.Options{}); err != nil {
				continue // it repeats something
			}
			b.WriteString(line)
			model = append(model, m)
		}
		if len(model) == 0 {
			return
		}
		domain := load(t, yamlFile(b.String())).Domain("d")
		for range 60 {
			value := word("aAbBé1/ *", 0)
			if random.IntN(3) == 0 {
				value = address()
			}
			want, best := -1, [2]int{4, 0}
			for i, m := range model {
				if m.spelled != "" && m.spelled == value {
					m.rank = 0
				}
				if takes := m.takes(value); takes > 0 && (m.rank < best[0] || m.rank == 1 && best[0] == 1 && takes > best[1]) && !(m.rank == 0 && value == "") {
					want, best = i, [2]int{m.rank, takes}
				}
			}
			got, request := -1, []descriptors.Entry{{Key: "k", Value: value}}
			rule := domain.Match(request)
			if rule != nil {
				got = int(rule.Limits[0].Requests)
			}
			if got != want {
				t.Fatalf("%q matches number %d, want %d, of\n%s", value, got, want, b.String())
			}
			trace := domain.Explain(request, 100)
			if trace.Rule != rule {
				t.Fatalf("%q: Explain gives %v", value, trace.Rule)
			}
			for i, seen := range trace.Path {
				if matches := seen.Match != descriptors.Nothing; seen.Won != (i == want) || matches != (model[i].takes(value) > 0) && value != "" || seen.Why == "" {
					t.Fatalf("%q: %+v, want number %d of\n%s", value, seen, want, b.String())
				}
			}
		}
	})
}

// FuzzNetworks compares addresses and networks with those of net/netip.
func FuzzNetworks(f *testing.F) {
	for _, text := range []string{
		"", "10.0.0.1", "10.0.0.256", "10.0.0", "010.0.0.1", "1.2.3.4.5", "0.0.0.0", "::", "::1", "1::", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::", "1::8:9::", "::ffff:10.0.0.1",
		"1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5:6:7:1.2.3.4", "::1.2.3", "12345::", "g::", "1:", ":1", "1:::2", "fe80::1%eth0", "10.0.0.1:80", "[::1]:80", "@::", "::\x10", "1.2.3.4::", "1:2:3:4:5:6:7:8:", "::1:2:3:4:5:6:7:8",
	} {
		f.Add(text, uint8(8))
	}
	f.Fuzz(func(t *testing.T, text string, bits uint8) {
		address, err := netip.ParseAddr(text)
		want := text
		if err == nil && address.Zone() == "" && bits > 0 {
			if network, err := address.Unmap().Prefix(int(bits)); err == nil {
				want = network.String()
			}
		}
		if got := (descriptors.Mask{IPv4: bits, IPv6: bits}).Of(text); got != want {
			t.Fatalf("%q is counted as %q, want %q", text, got, want)
		}
		network := fmt.Sprintf("%s/%d", text, bits)
		m, wrong := match.New(kind(t, "cidr"), []string{network}, false, false)
		parsed, err := netip.ParsePrefix(network)
		if fits := err == nil && parsed == parsed.Masked() && (!parsed.Addr().Is4In6() || parsed.Bits() >= 96); fits != (wrong == nil) {
			t.Fatalf("%q: got %v, and %v of netip", network, wrong, err)
		}
		if wrong == nil && !m.Takes(text) {
			t.Fatalf("%q is not in %q", text, network)
		}
	})
}

// FuzzRegex looks for a value that an expression fits and the match does not take, or the
// other way round.
func FuzzRegex(f *testing.F) {
	for _, text := range []string{"a", "ab|cd", "(ab)+c", "a?bc", `\x{FFFD}b`, "(?i)k", "(?i:k)elvin", `\Aab\z`, "^a$", `a\bb`, "x{0}y", "a(b(c)d)*e", "(?s).*x", "(?s)ab.*", "(?s).*K.*", "(?s).*", "ſ", "[^a]b"} {
		f.Add(text, "ab", true)
		f.Add(text, "K\xffbcde", false)
	}
	f.Fuzz(func(t *testing.T, text, value string, fold bool) {
		m, wrong := match.New(kind(t, "regex"), []string{text}, false, fold)
		if wrong != nil {
			return
		}
		flags := ""
		if fold {
			flags = "(?i)"
		}
		if want := regexp.MustCompile(flags + `\A(?:` + text + `)\z`).MatchString(value); m.Takes(value) != want {
			t.Fatalf("%q takes %q: %v, want %v", text, value, !want, want)
		}
	})
}

func kind(t testing.TB, name string) *match.Kind {
	i := slices.IndexFunc(match.Kinds[:], func(k match.Kind) bool { return k.Name == name })
	if i < 0 {
		t.Fatal("no kind", name)
	}
	return &match.Kinds[i]
}

// manyKinds is a file of n matchers of one key, some of each kind, with expressions that share
// their beginning, and values for them.
func manyKinds(n int) (file yaml.Text, values []string) {
	var b strings.Builder
	b.WriteString("domain: bench\ndescriptors:\n")
	for i := range n {
		text := [...]string{
			"values: [/exact/%d, /other/%d]", "prefix: /service-%d/", "suffix: -%d.png", "contains: id%dx", "cidr: [10.%d.%d.0/24]", `regex: "/v[0-9]+/tenant-%d/.*"`,
			"values: [/Exact-%d, /Other-%d], ignore_case: true", "prefix: /Service+%d/, ignore_case: true", "", "contains: Id%dY, ignore_case: true",
		}[i%10]
		switch i % 10 {
		case 4:
			text = fmt.Sprintf(text, i/10/256, i/10%256)
		case 8:
			if text = fmt.Sprintf("suffix: /%d", i); i == 18 { // the others below would never be reached
				text = "not: {prefix: /}"
			}
		default:
			text = strings.ReplaceAll(text, "%d", fmt.Sprint(i))
		}
		fmt.Fprintf(&b, "  - {key: k, match: {%s}, %s}\n", text, limited)
	}
	last := n / 10 * 10
	for _, text := range []string{"/exact/%d", "/service-%d/orders/4711/items", "/pictures/2026/11/a-%d.png", "/orders/id%dx/and/more", "10.0.1.7", "/v12/tenant-%d/users/17", "/EXACT-%d", "/SERVICE+%d/x", "/a/%d", "/x/iD%dy/z"} {
		values = append(values, strings.ReplaceAll(text, "%d", fmt.Sprint(last-10+len(values))))
	}
	return yaml.Text{Name: "bench.yaml", Content: []byte(b.String())}, append(values, "none", "/orders/2026/nothing/of/it")
}

// Look-ups do not allocate, also of texts that are nearly addresses. Only of four numbers that are too
// large net/netip makes an error.
func TestMatchKindsAllocates(t *testing.T) {
	file, values := manyKinds(1000)
	domain := load(t, file).Domain("bench")
	for _, value := range append(values, "10.0.0.1:80", "fe80::1%eth0", "12:30", strings.Repeat("É", 200)) {
		request := []descriptors.Entry{{Key: "k", Value: value}}
		if n := testing.AllocsPerRun(100, func() { domain.Match(request) }); n != 0 {
			t.Errorf("%q: %v allocations", value, n)
		}
	}
}

func BenchmarkMatchKinds(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		file, values := manyKinds(n)
		domain := load(b, file).Domain("bench")
		for _, value := range values {
			b.Run(fmt.Sprintf("%d/%s", n, strings.ReplaceAll(value, "/", "|")), func(b *testing.B) {
				request := []descriptors.Entry{{Key: "k", Value: value}}
				b.ReportAllocs()
				for b.Loop() {
					domain.Match(request)
				}
			})
		}
	}
}

// randomNetworks are n networks of the sizes that networks of the Internet have, each once.
func randomNetworks(n int) []string {
	random := rand.New(rand.NewPCG(1, 2))
	known := make(map[netip.Prefix]bool, n)
	list := make([]string, 0, n)
	for len(list) < n {
		var bytes [16]byte
		address, bits := netip.Addr{}, 0
		for i := range bytes {
			bytes[i] = byte(random.Uint32())
		}
		if len(list)%4 == 0 {
			bytes[0] = 0x20
			address, bits = netip.AddrFrom16(bytes), 29+random.IntN(30)
		} else {
			address, bits = netip.AddrFrom4([4]byte(bytes[:])), 12+random.IntN(17)
		}
		if p, err := address.Prefix(bits); err == nil && !known[p] {
			known[p] = true
			list = append(list, p.String())
		}
	}
	return list
}

// networkDomain is a domain with a descriptor for a list of networks.
func networkDomain(tb testing.TB, networks []string) *descriptors.Domain {
	m, wrong := match.New(kind(tb, "cidr"), networks, false, false)
	if wrong != nil {
		tb.Fatal(wrong)
	}
	d := &descriptors.Domain{Name: "d"}
	if n, _, _ := d.Root().Add(descriptors.Descriptor{Entry: descriptors.Entry{Key: "ip"}, Match: m, Rule: new(descriptors.Rule)}); n == nil {
		tb.Fatal("not added")
	}
	descriptors.NewTree(nil, d)
	return d
}

// Networks take some 65 bytes each if they are few and random, and 50 if they are a million.
func TestMemoryOfNetworks(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const n, most = 200_000, 16 << 20
	networks := randomNetworks(n)
	before := heap()
	d := networkDomain(t, networks)
	if took := heap() - before; took > most {
		t.Errorf("%d networks take %d bytes, want at most %d", n, took, most)
	}
	runtime.KeepAlive(d)
	runtime.KeepAlive(networks)
}

// BenchmarkMatchNetwork asks for addresses of a million networks, far apart in memory, beside the
// library that finds the networks.
func BenchmarkMatchNetwork(b *testing.B) {
	networks := randomNetworks(1_000_000)
	var all bart.Table[int32]
	for i, text := range networks {
		all.Insert(netip.MustParsePrefix(text), int32(i))
	}
	alone, d := all.Clone(), networkDomain(b, networks)
	var addresses []netip.Addr
	var requests [][]descriptors.Entry
	for i := range 200_000 {
		addresses = append(addresses, netip.MustParsePrefix(networks[i*4999%len(networks)]).Addr())
		requests = append(requests, []descriptors.Entry{{Key: "ip", Value: addresses[i].String()}})
	}
	b.Run("alone", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if _, found := alone.Lookup(addresses[i%len(addresses)]); !found {
				b.Fatal("no network")
			}
		}
	})
	b.Run("rule", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if d.Match(requests[i%len(requests)]) == nil {
				b.Fatal("no rule")
			}
		}
	})
}

// BenchmarkLoadNetworks loads a list of 50,000 networks.
func BenchmarkLoadNetworks(b *testing.B) {
	file := yamlFile("- {key: ip, match: {cidr: [\"" + strings.Join(randomNetworks(50_000), "\",\n\"") + "\"]}, " + limited + "}")
	for b.Loop() {
		load(b, file)
	}
}
