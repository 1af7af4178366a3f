package yaml_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/match"
	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
)

// lints loads texts and returns the warnings that have the name of a lint.
func lints(t *testing.T, texts ...yaml.Text) (found []rules.Problem) {
	t.Helper()
	_, warnings, err := yaml.Load(texts, rules.Options{Lint: true, MergeDomains: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range warnings {
		if w.Lint != "" {
			found = append(found, w)
		}
	}
	return found
}

func TestLints(t *testing.T) {
	const l = "rate_limit: {unit: minute, requests_per_unit: 1}"
	for _, tt := range []struct{ name, content, want string }{
		{"unreachable", `
- {key: path, value: /api/*, LIMIT}
- {key: path, value: /api/*/x, LIMIT}
- {key: path, value: /api/v1, LIMIT}
- {key: path, value: '*/x', LIMIT}
- {key: path, value: /ap*, LIMIT}
- {key: path, value: '/ap*b*', LIMIT}
- {key: path, LIMIT}
`, "4 unreachable\n8 unreachable\n"},
		{"plain-table", `
- {key: a, rate_limit: {unit: minute, requests_per_unit: 1, table: {url: "http://h/t"}}}
- {key: b, rate_limit: {unit: minute, requests_per_unit: 1, table: {url: "HTTP://h/t"}}}
- {key: c, rate_limit: {unit: minute, requests_per_unit: 1, table: {url: "https://h/t"}}}
`, "3 plain-table\n4 plain-table\n"},
		{"unreachable: any value", `
- {key: host, LIMIT}
- {key: host, value: '*', LIMIT}
- {key: host, value: a, LIMIT}
- {key: host, value: 'a*', LIMIT}
- {key: other, LIMIT}
`, "3 unreachable\n6 unreachable\n"},
		{"unreachable: wildcards in keys", `
- {key: x-*, value: a*, LIMIT}
- {key: x-y-*, value: ab*, LIMIT}
- {key: x-y-*, LIMIT}
- {key: x-z, value: a*, LIMIT}
- {key: x-z, LIMIT}
- {key: x-y-1, value: b, LIMIT}
- {key: '*', LIMIT}
- {key: '*-x', value: b, LIMIT}
- {key: user, value: b, LIMIT}
- {key: user, LIMIT}
`, "4 unreachable\n6 unreachable\n7 unreachable\n10 unreachable\n12 unreachable\n"},
		{"unreachable: matches", `
- {key: path, match: {prefix: /a}, LIMIT}
- {key: path, value: "/a/*", LIMIT}
- {key: path, match: {prefix: /a/b}, LIMIT}
- {key: path, match: {prefix: /A/b, ignore_case: true}, LIMIT}
- {key: path, match: {values: [/a/b]}, LIMIT}
- {key: path, match: {cidr: [10.0.0.0/8]}, LIMIT}
- {key: path, match: {contains: x}, LIMIT}
- {key: path, match: {regex: x+}, LIMIT}
- {key: path, value: "*", LIMIT}
- {key: path, match: {regex: x*}, LIMIT}
- {key: path, match: {not: {prefix: y}}, LIMIT}
- {key: path, match: {cidr: [11.0.0.0/8]}, LIMIT}
- {key: path, LIMIT}
- {key: name, match: {contains: ".X.", ignore_case: true}, LIMIT}
- {key: name, match: {suffix: a.x.b}, LIMIT}
- {key: name, value: "*c.x.d", LIMIT}
- {key: "name*", match: {contains: ".x."}, LIMIT}
- {key: name, LIMIT}
`, "4 unreachable\n5 unreachable\n12 unreachable\n13 unreachable\n15 unreachable\n17 unreachable\n18 unreachable\n"},
		{"unreachable: a * in the text of a match is no wildcard", `
- {key: path, match: {prefix: "/*/"}, LIMIT}
- {key: path, value: "/*/x*", LIMIT}
- {key: path, value: "/*/x*y", LIMIT}
- {key: path, match: {contains: "*"}, LIMIT}
- {key: path, match: {suffix: K}, LIMIT}
- {key: "name*", match: {contains: "*"}, LIMIT}
- {key: name, match: {suffix: K}, LIMIT}
- {key: name, value: "a*", LIMIT}
`, "5 unreachable\n"},
		{"unreachable: levels are apart", `
- {key: path, value: '*', descriptors: [{key: user, LIMIT}]}
- {key: user, value: '*', descriptors: [{key: path, LIMIT}, {key: user, value: x*, LIMIT}]}
`, ""},
		{"unknown-replaces", `
- {key: a, rate_limit: {unit: day, requests_per_unit: 1, name: one, replaces: [{name: two}, {name: too}]}}
- {key: b, rate_limits: [{unit: day, requests_per_unit: 1, name: two}]}
- {key: c, rate_limit: {unlimited: true, replaces: [{name: three}]}, descriptors: [{key: d, rate_limit: {unlimited: true, name: three}}]}
- {key: e, rate_limit: {unlimited: true, replaces: [{name: four}]}}
`, "3 unknown-replaces\n6 unknown-replaces\n"},
		{"empty-value", `
- {key: a, value: "", LIMIT}
- {key: b, value: '', LIMIT}
- key: c
  value:
  LIMIT
- {key: d, value: " ", LIMIT}
`, "3 empty-value\n4 empty-value\n6 empty-value\n"},
		{"empty-value: a repeated key", "\n- {key: a, value: \"\", value: b, LIMIT}\n", ""},
		{"no-limit", `
- key: a
- {key: b, value: x}
- {key: c, detailed_metric: true}
- {key: d, descriptors: []}
- {key: e, rate_limit: null}
- {key: f, descriptors: [{key: a}]}
- {key: g, rate_limit: {unlimited: true}}
- {key: h, rate_limits: [{unit: day}]}
`, "3 no-limit\n4 no-limit\n5 no-limit\n6 no-limit\n8 no-limit\n"},
		{"duplicate-limit", `
- key: a
  rate_limits:
  - {unit: minute, requests_per_unit: 60, strategy: token_bucket}
  - {unit: second, requests_per_unit: 1, strategy: gcra, burst: 60}
  - {unit: hour, requests_per_unit: 3600, strategy: leaky_bucket, burst: 60}
- key: b
  rate_limits:
  - {unit: minute, requests_per_unit: 60, strategy: token_bucket}
  - {unit: minute, requests_per_unit: 60, strategy: gcra}
  - {unit: minute, requests_per_unit: 60, strategy: leaky_bucket, burst: 60, max_delay: 1s}
  - {unit: minute, requests_per_unit: 60}
  - {unit: minute, requests_per_unit: 60, strategy: sliding_window}
  - {unit: hour, requests_per_unit: 61, strategy: token_bucket, burst: 60}
- key: c
  rate_limits:
  - {unit: minute, requests_per_unit: 60, strategy: token_bucket, name: x}
  - {unit: minute, requests_per_unit: 60, strategy: leaky_bucket}
- key: d
  rate_limits:
  - {unit: minute, requests_per_unit: 60, strategy: token_bucket, on_error: deny}
  - {unit: minute, requests_per_unit: 60, strategy: leaky_bucket}
- key: e
  rate_limits:
  - {unit: minute, requests_per_unit: 60, strategy: token_bucket}
  - {unit: minute, requests_per_unit: 60, strategy: leaky_bucket, shadow_mode: true}
  - {unit: minute, requests_per_unit: 60, strategy: gcra, burst: 60, shadow_mode: true}
  - {unit: second, requests_per_unit: 1, strategy: gcra, burst: 60, rollout: 5%}
- key: f
  rate_limits:
  - {unit: minute, requests_per_unit: 60, strategy: token_bucket, thresholds: [{at: 80%, headers: {x-a: b}}]}
  - {unit: minute, requests_per_unit: 60, strategy: leaky_bucket, thresholds: [{at: 90%, headers: {x-a: b}}]}
  - {unit: minute, requests_per_unit: 60, strategy: gcra, burst: 60, thresholds: [{at: 90%, headers: {x-a: b}}]}
`, "6 duplicate-limit\n7 duplicate-limit\n28 duplicate-limit\n34 duplicate-limit\n"},
		{"unused-pool", `
- {key: a, rate_limit: {unit: day, borrow_from: used}}
pools:
  used: {unit: day, requests_per_unit: 1}
  idle: {unit: day, requests_per_unit: 1}
`, "6 unused-pool\n"},
		{"duplicate-limit: of equal debt", `
- key: a
  rate_limits:
  - {unit: minute, requests_per_unit: 60, strategy: token_bucket}
  - {unit: minute, requests_per_unit: 60, strategy: token_bucket, overdraft: 5}
  - {unit: minute, requests_per_unit: 60, strategy: gcra, burst: 60, overdraft: true}
  - {unit: minute, requests_per_unit: 60, strategy: leaky_bucket, burst: 60, overdraft: 5}
`, "8 duplicate-limit\n"},
		{"fixed-reserve", `
- {key: a, value: x, rate_limit: {unit: minute, requests_per_unit: 1, reserve: true}}
- {key: a*, value: 5, rate_limits: [{unit: minute, requests_per_unit: 1}, {unit: hour, requests_per_unit: 1, reserve: {}}]}
- {key: b, value: x*, rate_limit: {unit: minute, requests_per_unit: 1, reserve: true}}
- {key: c, rate_limit: {unit: minute, requests_per_unit: 1, reserve: true}}
- {key: d, value: x, rate_limit: {unit: minute, requests_per_unit: 1, reserve: false}}
- {key: e, value: x, descriptors: [{key: f, rate_limit: {unit: minute, requests_per_unit: 1, reserve: true}}]}
- {key: g, match: {values: [x, y]}, rate_limit: {unit: minute, requests_per_unit: 1, reserve: true}}
- {key: h, match: {not: {values: [x, y]}}, rate_limit: {unit: minute, requests_per_unit: 1, reserve: true}}
`, "3 fixed-reserve\n4 fixed-reserve\n9 fixed-reserve\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			content := "domain: d\ndescriptors:" + strings.ReplaceAll(tt.content, "LIMIT", l)
			found := lints(t, yaml.Text{Name: "a.yaml", Content: []byte(content)})
			got := "" // the lines and names of the lints
			for _, w := range found {
				got += fmt.Sprintf("%d %s\n", w.Line, w.Lint)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got\n%s%v", diff, rules.Problems(found))
			}
		})
	}
}

func TestCIDRValue(t *testing.T) {
	for value, hint := range map[string]string{
		"10.0.0.0/8": "did you mean match: {cidr: [10.0.0.0/8]}?", "10.1.2.3/16": "did you mean match: {cidr: [10.1.0.0/16]}?",
		"2001:db8::/32": "did you mean match: {cidr: [2001:db8::/32]}?", "0.0.0.0/0": "did you mean match: {cidr: [0.0.0.0/0]}?",
		"10.0.0.0": "", "10.0.*": "", "/api/8": "", "1/2": "", "10.0.0.0/33": "",
	} {
		found := lints(t, rulesOfD(fmt.Sprintf("- {key: remote_address, value: %q, %s}\n- {key: masked_remote_address, value: %q, %s}", value, limited, value, limited)))
		switch {
		case hint == "" && len(found) == 0:
		case hint == "" || len(found) != 1 || found[0].Lint != rules.CIDRValue || found[0].Line != 3 || !strings.Contains(found[0].Message, hint):
			t.Errorf("%s: got %v, want %s", value, found, hint)
		}
	}
}

func TestRegexpValue(t *testing.T) {
	const warned = "is compared as text, in which only * has a meaning: any text; write a pattern with *, or match: {regex: …} [regexp-value]"
	for value, sign := range map[string]string{
		`^/api`: "^ at the start", `/api$`: "$ at the end", `^/api/.*$`: "^ at the start", `/api/.*`: ".*", `.+\.png`: ".+", `/v1.*`: ".*", `(?=a).*`: ".*",
		`/item/\d+`: `\d`, `\w+`: `\w`, `a\s+b`: `\s`, `v\d`: `\d`, `[a-z]+`: "[a-z]", `/[0-9]{3}`: "[a-z]", `[^a-f]`: "[a-z]", `[_a-zA-Z]`: "[a-z]", `/(en|de)/`: "(a|b)", `(?:a|b)`: "(a|b)",
		`^`: "", `$`: "", `1.2.3.4`: "", `a+b`: "", `$5`: "", `get|head`: "", `Go_(game)`: "", `*`: "", `/api/*`: "", `*.png`: "", `a.b`: "", `CORP\dave`: "", `[::1]:80`: "",
		`[2020-10-31]`: "", `what?`: "", `{id}`: "", `C++`: "", `a.b+c@example.org`: "", `U^2`: "", `(a)`: "", `sub-[1]`: "", `US$ 5`: "", `10.0.*`: "", `192.168.*.1`: "",
	} {
		found := rules.Problems(lints(t, rulesOfD("- {key: a, value: '"+value+"', "+limited+"}\n")))
		told := found.Error()
		switch {
		case sign == "" && len(found) > 0:
			t.Errorf("%s: %v", value, found)
		case sign != "" && (len(found) != 1 || !strings.Contains(told, sign) || !strings.HasSuffix(told, warned)):
			t.Errorf("%s: want %s in %v", value, sign, found)
		}
	}
}

// Texts of matches are compared as text, too, except those of regex and cidr.
func TestLintsOfMatches(t *testing.T) {
	for match, want := range map[string]string{
		"values: [a, 10.0.0.0/8]":         "match.values[1]: \"10.0.0.0/8\" is compared as text and matches no address of that network; did you mean match: {cidr: [10.0.0.0/8]}? [cidr-value]",
		"not: {values: ['^/api$']}":       "match.not.values[0]: \"^/api$\" looks like a regular expression (^ at the start) and is compared as text; write match: {regex: …}, or the text as values have it [regexp-value]",
		"prefix: '/v[0-9]+/'":             "match.prefix: \"/v[0-9]+/\" looks like a regular expression (a range such as [a-z]) and is compared as text; write match: {regex: …}, or the text as values have it [regexp-value]",
		"suffix: .png":                    "",
		"regex: '^/v[0-9]+$'":             "",
		"regex: '[a-z]{1,98}'":            "",
		"regex: '[^@]{1,64}@[^@]{1,255}'": "match.regex: has a program of 639 instructions, more than 200: each of them can cost time at every character of a value; repeat less, or use prefix, suffix, contains or values where they do [regexp-cost]",
		"not: {regex: '.{1,999}'}":        "match.not.regex: has a program of 1999 instructions",
		"cidr: [10.0.0.0/8]":              "",
		"not: {cidr: [192.0.2.0/24]}":     "",
		"values: [/api/*, 1.2.3.4, a+b]":  "",
	} {
		found := rules.Problems(lints(t, rulesOfD("- {key: k, match: {"+match+"}, "+limited+"}\n")))
		if got := fmt.Sprint(found); want == "" && len(found) > 0 || !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", match, got, want)
		}
	}
}

// The files of one domain are one set of levels and names.
func TestLintsOfMergedFiles(t *testing.T) {
	first := yaml.Text{Name: "1.yaml", Content: []byte("domain: d\ndescriptors:\n- {key: a, value: 'x*', rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: n}]}}\n")}
	second := yaml.Text{Name: "2.yaml", Content: []byte("domain: d\ndescriptors:\n- {key: a, value: 'xy*', rate_limit: {unit: day, requests_per_unit: 1, name: n}}\n")}
	found := lints(t, first, second)
	if len(found) != 1 || found[0].Lint != rules.Unreachable || found[0].File != "2.yaml" || !strings.Contains(found[0].Message, "1.yaml:3:3") {
		t.Error(rules.Problems(found))
	}
}

// A service does not lint.
func TestNoLintsUnlessAsked(t *testing.T) {
	_, warnings := loadWith(t, rules.Options{}, rulesOfD("- {key: a, value: \"\"}\n- {key: b, value: '*'}\n- {key: b}\n"))
	if warnings != "" {
		t.Error(warnings)
	}
}

// Nothing that ships or is shown in documents has a warning.
func TestShippedRulesHaveNoWarnings(t *testing.T) {
	for _, shipped := range [][]yaml.Text{examples(t), files(t, "../../../deploy/helm/rls/files/rules.yaml")} {
		if _, warnings := loadWith(t, rules.Options{Lint: true}, shipped...); warnings != "" {
			t.Error(warnings)
		}
	}
}

// Which of two matches, or of a wildcard and a match, takes all that the other could.
func TestUnreachableMatches(t *testing.T) {
	const hidden, reached = true, false
	for pair, want := range map[[2]string]bool{
		{"match: {not: {prefix: /admin}}", "match: {prefix: /api}"}:                 reached, // a negated match hides nothing
		{"match: {regex: '(?s)/api/.*'}", "match: {prefix: /api/v1}"}:               hidden,
		{"match: {regex: '(?s)/api/.*'}", "match: {prefix: /api}"}:                  reached,
		{"match: {regex: '/api/.*'}", "match: {prefix: /api/v1}"}:                   reached, // a value can have a line break
		{"match: {regex: '(?s).*'}", "match: {not: {values: [a]}}"}:                 hidden,
		{"match: {regex: '(?s).*png'}", "match: {suffix: .PNG, ignore_case: true}"}: reached,
		{"match: {regex: '(?s).*PNG', ignore_case: true}", "match: {suffix: .png}"}: hidden,
		{"match: {prefix: /api}", "match: {regex: '/api/v[0-9]+'}"}:                 reached, // its text could stand elsewhere
		{"match: {contains: /v}", "match: {regex: '/api/v[0-9]+'}"}:                 hidden,
		{"match: {regex: 'a|b'}", "match: {prefix: a}"}:                             reached,
	} {
		found := lints(t, rulesOfD("- {key: k, "+pair[0]+", "+limited+"}\n- {key: k, "+pair[1]+", "+limited+"}\n"))
		if got := len(found) == 1 && found[0].Lint == rules.Unreachable && found[0].Line == 4; got != want || !got && len(found) > 0 {
			t.Errorf("%s behind %s: got %v, want it hidden: %v", pair[1], pair[0], rules.Problems(found), want)
		}
	}
	// What takes a text by chance does not keep the one behind it from being found.
	found := lints(t, rulesOfD(`- {key: k, match: {not: {contains: z}}, `+limited+`}
- {key: k, match: {regex: ".*v.*"}, `+limited+`}
- {key: k, match: {prefix: /api}, `+limited+`}
- {key: k, match: {prefix: /api/v1}, `+limited+`}
`))
	if len(found) != 1 || found[0].Line != 6 || !strings.Contains(found[0].Message, `prefix:/api" of rules.yaml:5`) {
		t.Errorf("got %v, want line 6 behind line 5", rules.Problems(found))
	}
}

// A descriptor with a match is called unreachable only if no request gets to it.
func TestUnreachableMatchesAgainstRequests(t *testing.T) {
	texts := []string{""}
	for i := 0; len(texts[i]) < 3; i++ {
		texts = append(texts, texts[i]+"a", texts[i]+"b", texts[i]+"A")
	}
	random := rand.New(rand.NewPCG(3, 4))
	reported := 0
	for range 2000 {
		domain := descriptors.Domain{Name: "d"}
		var nodes []*descriptors.Node
		for range 1 + random.IntN(5) {
			d := descriptors.Descriptor{Entry: descriptors.Entry{Key: []string{"k", "k", "k*"}[random.IntN(3)]}, Rule: &descriptors.Rule{}}
			text, kind := texts[random.IntN(13)], random.IntN(8)
			list := []string{text}
			if kind < 5 {
				names := []string{"values", "prefix", "suffix", "contains", "regex"}
				switch {
				case kind == 4 && random.IntN(2) == 0:
					list[0] = []string{"(?s).*", "(?s)" + text + ".*", "(?s).*" + text, "(?s).*" + text + ".*"}[random.IntN(4)]
				case kind == 0 && random.IntN(2) == 0:
					list = append(list, text+"b")
				}
				of := slices.IndexFunc(match.Kinds[:], func(k match.Kind) bool { return k.Name == names[kind] })
				d.Match, _ = match.New(&match.Kinds[of], list, random.IntN(3) == 0, random.IntN(3) == 0)
				if d.Match == nil {
					continue
				}
			} else {
				d.Value = []string{"*", text + "*", "*" + text, text + "*a", text}[random.IntN(5)]
			}
			if n, _, _ := domain.Root().Add(d); n != nil {
				nodes = append(nodes, n)
			}
		}
		descriptors.NewTree(nil, &domain)
		reached := map[*descriptors.Rule]bool{}
		for _, key := range []string{"k", "ka"} {
			for _, value := range texts {
				reached[domain.Match([]descriptors.Entry{{Key: key, Value: value}})] = true
			}
		}
		for _, n := range nodes {
			if hider := n.HiddenBy(); hider != nil {
				if reported++; reached[n.Rule] {
					t.Fatalf("%v is reached beside %v", n.String(), hider.String())
				}
			}
		}
	}
	if reported < 100 {
		t.Errorf("only %d were reported", reported)
	}
}

// A descriptor is called unreachable only if no request gets to it, and a wildcard
// that one other hides is found. Requests are all short texts of three letters.
func TestUnreachableAgainstRequests(t *testing.T) {
	texts := []string{""}
	for i := 0; len(texts[i]) < 4; i++ {
		texts = append(texts, texts[i]+"a", texts[i]+"b", texts[i]+"c")
	}
	random := rand.New(rand.NewPCG(1, 2))
	word := func(letters string) string {
		text := make([]byte, random.IntN(5))
		for i := range text {
			text[i] = letters[random.IntN(len(letters))]
		}
		return string(text)
	}
	reported := 0
	for range 300 {
		domain := descriptors.Domain{Name: "d"}
		var nodes []*descriptors.Node
		for range 1 + random.IntN(5) {
			entry := descriptors.Entry{Key: []string{"k", "k", "k*", "*"}[random.IntN(4)], Value: word("ab**")}
			if n, _, _ := domain.Root().Add(descriptors.Descriptor{Entry: entry, Rule: &descriptors.Rule{}}); n != nil {
				nodes = append(nodes, n)
			}
		}
		reached := map[*descriptors.Rule]bool{}
		for _, key := range []string{"k", "ka", "x"} {
			for _, value := range texts {
				reached[domain.Match([]descriptors.Entry{{Key: key, Value: value}})] = true
			}
		}
		for i, n := range nodes {
			hider := n.HiddenBy()
			if hider != nil {
				reported++
				if reached[n.Rule] {
					t.Fatalf("%v is reached beside %v", n.Entry, hider.Entry)
				}
				continue
			}
			// Alone with one descriptor before it, n is hidden exactly if no text gets to it.
			for _, first := range nodes[:i] {
				pair := descriptors.Domain{Name: "d"}
				pair.Root().Add(descriptors.Descriptor{Entry: first.Entry, Rule: &descriptors.Rule{}})
				own, _, _ := pair.Root().Add(descriptors.Descriptor{Entry: n.Entry, Rule: &descriptors.Rule{}})
				found := n.Value != "" && !n.HasWildcard()
				for _, key := range []string{"k", "ka", "x"} {
					for _, value := range texts {
						found = found || pair.Match([]descriptors.Entry{{Key: key, Value: value}}) == own.Rule
					}
				}
				if !found {
					t.Fatalf("%v is hidden by %v and is not reported", n.Entry, first.Entry)
				}
			}
		}
	}
	if reported < 50 {
		t.Errorf("only %d descriptors were hidden: the test tries too little", reported)
	}
}

// counted is what the lints of one descriptor should find in a document.
type counted struct{ empty, noLimit int }

func (c *counted) add(list any) {
	items, _ := list.([]any)
	for _, item := range items {
		d := item.(mapping)
		if d["value"] == "" {
			c.empty++
		}
		_, single := d["rate_limit"]
		_, several := d["rate_limits"]
		if below, _ := d["descriptors"].([]any); !single && !several && len(below) == 0 {
			c.noLimit++
		}
		c.add(d["descriptors"])
	}
}

// In random files without a fault the lints find neither more nor less than a
// second look at the documents does.
func TestLintsOfRandomFiles(t *testing.T) {
	g := generator{rand.New(rand.NewPCG(3, 8))}
	all := map[rules.Lint]int{}
	files := 0
	for files < 300 || all[rules.DuplicateLimit] == 0 && files < 5000 {
		document := g.file()
		content, err := loadDocument(t, document)
		if err != nil {
			continue
		}
		files++
		var want counted
		want.add(document["descriptors"])
		found := map[rules.Lint]int{}
		for _, w := range lints(t, yaml.Text{Name: "a.yaml", Content: []byte(content)}) {
			found[w.Lint]++
			all[w.Lint]++
		}
		if found[rules.EmptyValue] != want.empty || found[rules.NoLimit] != want.noLimit || found[rules.RegexpValue]+found[rules.DanglingLink] > 0 {
			t.Fatalf("want %+v, got %v in\n%s", want, found, content)
		}
	}
	for _, lint := range []rules.Lint{rules.EmptyValue, rules.NoLimit, rules.UnknownReplaces, rules.DuplicateLimit, rules.FixedReserve} {
		if all[lint] == 0 {
			t.Errorf("%s found nothing: the test tries too little", lint)
		}
	}
}
