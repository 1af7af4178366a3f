package yaml_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	library "go.yaml.in/yaml/v3"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
)

// schema is the compiled schema of rule files.
func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	return compiled(t, rules.NewSchema())
}

func compiled(t *testing.T, schema rules.Schema) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("rules.json", instance(t, schema)); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("rules.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// instance is a document as the validator takes it.
func instance(t *testing.T, document any) any {
	t.Helper()
	content, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// loadDocument loads a document as YAML.
func loadDocument(t *testing.T, document any) (string, error) {
	t.Helper()
	content, err := library.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = yaml.Load([]yaml.Text{{Name: "a.yaml", Content: content}}, rules.Options{})
	return string(content), err
}

// known are the messages of the loader about faults that the schema knows; unknown
// those about conditions between the items of a list, about the sizes of values that are
// written as text, and of arithmetic. A problem is one or the other.
var (
	known   = regexp.MustCompile(`unknown (key|unit|charge|policy|strategy|window|time zone|weekday|month)|must be a (string|list|mapping|whole number|duration above 0 such|percentage (above|with))|must be (a mapping with domain|true or false|true, false, or (a mapping|a number)|between [0-9]+ and|at least 1$)|is a number with a fraction|belongs into|must not be (empty|a list|given with (unlimited|plan))|is always the plan|unit: is missing|must have at least one limit|needs a wildcard|excludes rate_limit|has no meaning in a pool|concurrency lends nothing|the name of a (pool|plan) must|needs borrow_from|has no burst|never delays|sliding_log remembers|a window is at most 10 years|needs (strategy fixed_window|.window: calendar)|at: is missing|is not the name of a header|the value of a header|is an option of|with .window: calendar|must not be Local|has no meaning (with|beside)|unknown on_expiry|cannot have debt|at most 10000 slots`)
	unknown = regexp.MustCompile(`unknown p(ool|lan) |repeats key|share its counter|cannot replace itself|takes? more than 100 years|must be between 1us|no share of|less than one hit|percentage from 1%|at most 1s|is the at of|more than half|is out of range`)
)

// size is the part of such a message about a percentage that is written as one.
var size = regexp.MustCompile(`not "[0-9]+%"$`)

// What the loader accepts the schema accepts, and what the loader refuses for its
// structure the schema refuses. 1,000 random files are loaded as they were made, and
// again with one thing wrong.
func TestSchemaAgreesWithLoader(t *testing.T) {
	s := schema(t)
	g := generator{rand.New(rand.NewPCG(7, 11))}
	accepted, refused := 0, 0
	for i := range 1000 {
		document := g.file()
		if i%2 == 1 {
			g.spoil(document)
		}
		text, err := loadDocument(t, document)
		valid := s.Validate(instance(t, document))
		if err == nil {
			if accepted++; valid != nil {
				t.Fatalf("the loader accepts and the schema refuses: %v\n%s", valid, text)
			}
			continue
		}
		for line := range strings.SplitSeq(err.Error(), "\n") {
			switch is := known.MatchString(line); {
			case is && valid == nil && !size.MatchString(line):
				t.Fatalf("the loader refuses and the schema accepts: %s\n%s", line, text)
			case is:
				refused++
			case !unknown.MatchString(line):
				t.Fatalf("a problem of an unknown kind: %s\n%s", line, text)
			}
		}
	}
	if accepted < 300 || refused < 300 {
		t.Errorf("%d files were accepted, and %d problems of structure found: the test tries too little", accepted, refused)
	}
}

// The schema refuses none of the files that ship.
func TestSchemaAcceptsExamples(t *testing.T) {
	s := schema(t)
	for _, f := range examples(t) {
		var document any
		if err := library.Unmarshal(f.Content, &document); err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(instance(t, document)); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
	}
}

// The schema and the loader agree about these examples, except about the kinds of
// faults that a schema cannot know.
func TestSchemaKnowsConditions(t *testing.T) {
	const (
		good      = "good"
		bad       = "bad"
		unknown   = "unknown to the schema"
		one       = "{domain: d, descriptors: [{key: a, %}]}"
		limit     = "{domain: d, descriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 100, %}}]}"
		several   = "{domain: d, descriptors: [{key: a, rate_limits: [{unit: day, requests_per_unit: 100, %}]}]}"
		bare      = "{domain: d, descriptors: [{key: a, rate_limit: {%}}]}"
		pool      = "{domain: d, pools: {spare: {%}}, descriptors: [{key: a, rate_limit: {unit: day, borrow_from: spare, max_borrow: 20%}}]}"
		plan      = "{domain: d, plans: {free: {%}}, descriptors: [{key: a, rate_limit: {plan: free}}]}"
		plans     = "{domain: d, plans: {free: [%]}, descriptors: [{key: a, rate_limit: {plan: free}}]}"
		twoLimits = "{domain: d, descriptors: [{key: a, rate_limits: [{unit: day}, {unit: %}]}]}"
	)
	s := schema(t)
	for _, tt := range []struct{ want, frame, text string }{
		{bad, one, "rate_limit: {unit: day}, rate_limits: [{unit: hour}]"}, {bad, one, "rate_limit: {unlimited: true}, rate_limits: [{unit: hour}]"},
		{unknown, one, "rate_limit: {unit: day}, rate_limits: null"}, {good, one, "rate_limit: null, rate_limits: [{unit: hour}]"},
		{bad, one, "share_threshold: true"}, {bad, one, "value: b, share_threshold: true"}, {bad, one, "value: 5, share_threshold: true"},
		{good, one, "value: b*, share_threshold: true"}, {good, one, "share_threshold: false"}, {good, one, "share_threshold: null"},
		{good, "{domain: d, descriptors: [{key: 'a*', share_threshold: true}]}", ""},
		{bad, limit, "burst: 5"}, {bad, limit, "burst: 5, strategy: fixed_window"}, {bad, several, "burst: 5, strategy: sliding_log"},
		{good, limit, "burst: 5, strategy: gcra"}, {good, several, "burst: 5, strategy: token_bucket"}, {good, limit, "burst: 5, strategy: leaky_bucket"},
		{bad, limit, "max_delay: 1s"}, {bad, limit, "max_delay: 1s, strategy: gcra"}, {good, limit, "max_delay: 1s, strategy: leaky_bucket"},
		{bad, limit, "window: from_first_hit, strategy: gcra"}, {good, limit, "window: from_first_hit, strategy: fixed_window"}, {good, limit, "window: from_first_hit"},
		{bad, limit, "window: calendar, strategy: gcra"}, {good, limit, "window: calendar, strategy: fixed_window"}, {good, limit, "window: calendar, timezone: Europe/Berlin"},
		{bad, limit, "window: calendar, timezone: Local"}, {bad, limit, "timezone: UTC"}, {bad, limit, "window: from_first_hit, timezone: UTC"}, {bad, limit, "window: calendar, week_starts: monday"},
		{bad, bare, "unit: hour, window: calendar"}, {bad, bare, "unit: month, unit_multiplier: 2, window: calendar"}, {good, bare, "unit: MONTH, unit_multiplier: 1, window: calendar"},
		{good, bare, "unit: Week, window: calendar, week_starts: sunday"}, {bad, bare, "unit: week, window: calendar, week_starts: sun"}, {bad, bare, "unit: week, week_starts: sunday"},
		{good, bare, "unit: month, window: calendar, month_starts: 28"}, {bad, bare, "unit: month, window: calendar, month_starts: 29"}, {bad, bare, "unit: year, window: calendar, month_starts: 2"},
		{good, bare, "unit: year, window: calendar, year_starts: april"}, {bad, bare, "unit: year, window: calendar, year_starts: 4"}, {bad, bare, "unit: day, window: calendar, extend: true"},
		{bad, limit, "extend: true"}, {bad, several, "extend: true, strategy: gcra"}, {good, limit, "extend: false"}, {good, limit, "extend: true, window: from_first_hit"},
		{bad, limit, "extend: true, window: from_first_hit, lease: true"}, {good, limit, "extend: true, window: from_first_hit, lease: false"}, {good, limit, "extend: false, lease: {}"},
		{bad, limit, "max_delay: 1s, strategy: leaky_bucket, lease: {share: 5%}"}, {good, limit, "max_delay: 1s, strategy: leaky_bucket, lease: null"},
		{good, limit, "overdraft: true"}, {good, limit, "overdraft: 5, strategy: gcra"}, {good, several, "overdraft: false, strategy: sliding_log"}, {good, limit, "overdraft: ~, lease: true"}, {good, limit, "overdraft: true, window: calendar"},
		{bad, limit, "overdraft: 0"}, {bad, limit, "overdraft: 4294967296"}, {bad, limit, "overdraft: {}"}, {bad, limit, "overdraft: 1.5"}, {bad, limit, "overdraft: 5, strategy: sliding_window"}, {bad, limit, "overdraft: 5, strategy: concurrency"},
		{bad, limit, "overdraft: 5, strategy: leaky_bucket, max_delay: 1s"}, {bad, limit, "overdraft: 5, window: from_first_hit"}, {bad, limit, "overdraft: true, lease: {}"}, {bad, bare, "unlimited: true, overdraft: false"},
		{good, limit, "precision: 2, strategy: sliding_window"}, {good, several, "precision: 60, strategy: sliding_window"}, {bad, limit, "precision: 1, strategy: sliding_window"}, {bad, limit, "precision: 61, strategy: sliding_window"}, {bad, limit, "precision: 6"}, {bad, limit, "precision: 6, strategy: sliding_log"},
		{good, limit, "strategy: concurrency, reserve: {ttl: 10m, on_expiry: give_back}"}, {bad, limit, "strategy: concurrency, burst: 5"}, {bad, limit, "strategy: concurrency, window: from_first_hit"}, {bad, limit, "strategy: concurrency, max_delay: 1s"},
		{bad, limit, "strategy: concurrency, lease: true"}, {bad, bare, "unit: day, strategy: concurrency, requests_per_unit: 10001"}, {good, bare, "unit: day, strategy: concurrency, requests_per_unit: 10000"},
		{good, limit, "reserve: true"}, {good, several, "reserve: {}"}, {good, limit, "reserve: false, lease: true"}, {bad, limit, "reserve: 5"}, {bad, limit, "reserve: {tll: 5m}"}, {bad, limit, "reserve: {on_expiry: give}"}, {bad, limit, "reserve: {ttl: 5}"},
		{bad, limit, "reserve: true, lease: true"}, {bad, limit, "reserve: true, window: from_first_hit"}, {bad, limit, "reserve: {}, strategy: leaky_bucket, max_delay: 1s"}, {bad, bare, "unlimited: true, reserve: true"},
		{bad, one, "value: b*, share_threshold: true, rate_limit: {unit: day, reserve: true}"}, {good, one, "value: b*, share_threshold: true, rate_limit: {unit: day, reserve: false}"}, {good, one, "value: b*, share_threshold: false, rate_limit: {unit: day, reserve: true}"},
		{bad, one, "value_to_metric: true, rate_limit: {unit: day, reserve: {}}"}, {bad, one, "detailed_metric: true, rate_limits: [{unit: day}, {unit: hour, reserve: true}]"}, {good, one, "detailed_metric: true, value_to_metric: true, rate_limit: ~"},
		{good, one, "detailed_metric: true, descriptors: [{key: b, rate_limit: {unit: day, reserve: true}}]"},
		{good, limit, "thresholds: [{at: 80%, headers: {x-a: 1.5, X-b: yes}, response_headers: ~, metadata: {a: [b]}, delay: 1s}, {at: 1%}]"}, {good, limit, "thresholds: []"}, {good, several, "thresholds: ~"},
		{bad, limit, "thresholds: {at: 80%}"}, {bad, limit, "thresholds: [{delay: 1s}]"}, {bad, limit, "thresholds: [{at: 80}]"}, {bad, limit, "thresholds: [{at: 80%, header: {}}]"},
		{bad, limit, "thresholds: [{at: 80%, headers: {Host: x}}]"}, {bad, limit, "thresholds: [{at: 80%, headers: {':path': x}}]"}, {bad, limit, "thresholds: [{at: 80%, headers: {a b: x}}]"}, {bad, limit, "thresholds: [{at: 80%, headers: {Content-Length: x}}]"},
		{bad, limit, "thresholds: [{at: 80%, response_headers: {a: ~}}]"}, {bad, limit, "thresholds: [{at: 80%, response_headers: {a: \"b\\n\"}}]"}, {bad, limit, "thresholds: [{at: 80%, delay: 5}]"}, {bad, bare, "unlimited: true, thresholds: [{at: 80%}]"},
		{unknown, limit, "thresholds: [{at: 100%}]"}, {unknown, limit, "thresholds: [{at: 80%}, {at: 80%}]"}, {unknown, limit, "thresholds: [{at: 80%, delay: 2s}]"}, {unknown, limit, "thresholds: [{at: 80%, metadata: {rule: x}}]"},
		{bad, bare, "unit: YEAR, unit_multiplier: 11"}, {good, bare, "unit: year, unit_multiplier: 10"}, {bad, bare, "unit: minute, unit_multiplier: 5256001"}, {good, bare, "unit: Minute, unit_multiplier: 5256000"},
		{bad, bare, "unit: day, strategy: sliding_log, requests_per_unit: 10001"}, {good, bare, "unit: day, strategy: sliding_log, requests_per_unit: 10000"},
		{bad, bare, "unlimited: true, burst: 5"}, {bad, several, "unlimited: true"},

		{bad, limit, "borrow_from: spare, strategy: concurrency"}, {bad, limit, "max_borrow: 20%"}, {bad, limit, "borrow_from: ''"}, {bad, limit, "borrow_from: null"}, {bad, bare, "unlimited: true, borrow_from: spare"},
		{good, pool, "unit: day"}, {good, pool, "unit: day, burst: 3, strategy: gcra"}, {bad, pool, ""}, {bad, pool, "unit: day, lease: true"}, {bad, pool, "unit: day, strategy: concurrency"}, {bad, pool, "unit: day, burst: 3"},
		{bad, pool, "unlimited: true"}, {bad, pool, "unit: day, name: x"}, {bad, pool, "unit: day, borrow_from: spare"}, {bad, "{domain: d, pools: {spare: null}}", ""}, {good, "{domain: d, pools: null}", ""},

		{good, one, "match: {prefix: a}"}, {good, one, "value: '', match: {values: [a, 5, true]}, share_threshold: true"}, {good, one, "match: {not: {cidr: [10.0.0.0/8]}}, mask: {ipv4: 24}"},
		{good, one, "match: {regex: a+, ignore_case: true}"}, {good, one, "match: {not: {regex: a+, ignore_case: true}}"}, {good, one, "value: '10.*', mask: {ipv4: 24, ipv6: 64}"},
		{bad, one, "match: {}"}, {bad, one, "match: null"}, {bad, one, "match: {prefix: a, suffix: b}"}, {bad, one, "match: {prefix: a, not: {suffix: b}}"}, {bad, one, "match: {not: {not: {prefix: a}}}"},
		{bad, one, "match: {prefix: ''}"}, {bad, one, "match: {prefix: 1.5}"}, {bad, one, "match: {values: a}"}, {bad, one, "match: {values: []}"}, {bad, one, "match: {values: [null]}"}, {bad, one, "match: {prefix: [a]}"},
		{bad, one, "match: {cidr: [10.0.0.0/8], ignore_case: true}"}, {bad, one, "match: {not: {cidr: [10.0.0.0/8]}, ignore_case: true}"}, {bad, one, "value: b, match: {prefix: a}"},
		{bad, one, "mask: {}"}, {bad, one, "mask: 24"}, {bad, one, "mask: {ipv4: 0}"}, {bad, one, "mask: {ipv6: 129}"}, {bad, one, "value: a, mask: {ipv4: 24}"}, {bad, one, "match: {values: [a]}, mask: {ipv4: 24}"},
		{bad, one, "value: a*, share_threshold: true, mask: {ipv4: 24}"}, {bad, one, "mask: {ipv4: 24}, rate_limit: {unit: day, requests_per_unit: 1, reserve: true}"},
		{unknown, one, "match: {cidr: [x]}"}, {unknown, one, "match: {regex: '('}"}, {unknown, one, "match: {values: [a, a]}"},

		{bad, bare, "plan: ''"}, {bad, bare, "plan: ~"}, {bad, limit, "plan: unlimited"}, {bad, several, "plan: unlimited"}, {bad, bare, "plan: unlimited, unlimited: true"}, {bad, bare, "plan: unlimited, shadow_mode: true"},
		{good, bare, "plan: unlimited"}, {good, bare, "plan: unlimited, name: x, replaces: [{name: y}]"}, {good, plan, "unit: day"}, {good, plan, "unlimited: true"}, {bad, plan, ""}, {bad, plan, "plan: unlimited"}, {bad, plan, "unit: day, burst: 3"},
		{good, plans, "{unit: day}, {unit: hour, name: x}"}, {bad, plans, ""}, {bad, plans, "{unlimited: true}"}, {bad, plans, "{unit: day, plan: unlimited}"}, {bad, plans, "5"}, {bad, "{domain: d, plans: {unlimited: {unit: day}}}", ""}, {good, "{domain: d, plans: null}", ""},

		{good, limit, "table: {url: 'https://h/t.csv?mail=a@b', every: 1h}"}, {good, limit, "table: {url: 'HTTPS://h:8443/@a'}"}, {good, limit, "table: {url: 'https://h?t#'}"}, {bad, limit, "table: {url: 'https://a@h/t'}"},
		{bad, limit, "table: {url: 'https://h/t#a'}"}, {bad, limit, "table: {url: 'https://?a'}"}, {bad, limit, "table: {url: 'ftp://h/t'}"}, {bad, limit, "table: t.txt"}, {bad, limit, "table: {url: 'https://h/t', file: t.csv}"},

		{unknown, bare, "plan: free"}, {unknown, limit, "borrow_from: spare"}, {unknown, limit, "borrow_from: 5, max_borrow: 20%"},
		{unknown, "{domain: d, descriptors: [{key: a}, {key: a}]}", ""},
		{unknown, twoLimits, "day"}, {good, twoLimits, "hour"},
		{unknown, limit, "lease: {share: 60%, ttl: 1h}"},
		{unknown, limit, "reserve: {ttl: 500ms}"}, {unknown, limit, "reserve: {ttl: 25h}"},
		{unknown, bare, "unit: year, requests_per_unit: 1, overdraft: 1000"},
		{unknown, "{domain: d, descriptors: [{key: a, rate_limits: [{unit: day, overdraft: 5, requests_per_unit: 1}, {unit: day, overdraft: true, requests_per_unit: 2}]}]}", ""},
		{unknown, limit, "strategy: leaky_bucket, max_delay: 1h"},
		{unknown, bare, "unit: day, requests_per_unit: 1, lease: true"},
		{unknown, bare, "requests_per_unit: 1, unit: year, unit_multiplier: 10, strategy: gcra, burst: 4294967295"},
		{unknown, bare, "unit: day, requests_per_unit: 5.0"},
		{unknown, one, "value: 18446744073709551615"},
		{unknown, limit, "name: x, replaces: [{name: x}]"},
	} {
		document := strings.Replace(tt.frame, "%", tt.text, 1)
		var v any
		if err := library.Unmarshal([]byte(document), &v); err != nil {
			t.Fatal(err)
		}
		_, _, refused := yaml.Load([]yaml.Text{{Name: "a.yaml", Content: []byte(document)}}, rules.Options{})
		invalid := s.Validate(instance(t, v))
		if (refused != nil) != (tt.want != good) || (invalid != nil) != (tt.want == bad) {
			t.Errorf("%s: %s\nthe loader: %v\nthe schema: %v", document, tt.want, refused, invalid)
		}
	}
}

// generator makes rule files as documents.
type generator struct{ *rand.Rand }

type mapping = map[string]any

func (g generator) file() mapping {
	m := mapping{"domain": g.pick("shop", "d", 5, true), "descriptors": g.descriptors(3)}
	g.maybe(m, "charge", "always", "admitted")
	m["pools"] = mapping{"spare": g.pool(), "other": g.pool()}
	m["plans"] = mapping{"free": g.pool(), "pro": []any{mapping{"unit": "minute"}, mapping{"unit": "day"}}}
	g.maybe(m, "on_error", g.policies()...)
	g.maybe(m, "unit", "x", nil, mapping{"key": 5}, []any{mapping{"metadata": []any{1.5}}}) // ignored here
	return m
}

func (g generator) pool() mapping {
	m := mapping{"unit": g.pick("minute", "HOUR")}
	g.maybe(m, "requests_per_unit", 0, 7, nil)
	g.maybe(m, "unit_multiplier", 1, 5)
	if g.IntN(5) == 0 {
		m["strategy"], m["burst"] = "token_bucket", 5
	}
	return m
}

func (g generator) descriptors(depth int) []any {
	var list []any
	for i := range g.IntN(4) {
		list = append(list, g.descriptor(i, depth))
	}
	return list
}

func (g generator) descriptor(i, depth int) mapping {
	m := mapping{"key": g.pick(fmt.Sprint("k", i), i, fmt.Sprintf("x%d-*", i))}
	g.maybe(m, "value", "v", "", 7, false, nil, "a*", "*")
	for _, name := range []string{"shadow_mode", "quota_mode", "detailed_metric", "value_to_metric"} {
		g.maybe(m, name, true, false, nil)
	}
	if value, _ := m["value"].(string); strings.Contains(value, "*") {
		g.maybe(m, "share_threshold", true)
	}
	g.maybe(m, "metadata", mapping{"a": []any{1, 1.5, mapping{"b": nil}}}, mapping{}, nil)
	g.maybe(m, "requests_per_unit", 5, "x", nil, []any{}) // ignored here
	switch g.IntN(4) {
	case 0:
		m["rate_limit"] = g.pick(nil, g.limit(0), g.limit(1), mapping{"plan": g.pick("free", "pro", "unlimited"), "name": "n"})
	case 1:
		m["rate_limit"] = mapping{"unlimited": true, "requests_per_unit": g.IntN(9), "name": "n"}
		g.maybe(m["rate_limit"].(mapping), "unit", "", "never")
	case 2:
		var list []any
		for i := range 1 + g.IntN(3) {
			list = append(list, g.limit(i))
		}
		m["rate_limits"] = list
	}
	if depth > 0 {
		m["descriptors"] = g.pick(g.descriptors(depth-1), nil)
	}
	return m
}

// limit makes a limit whose window differs from that of others with another i.
func (g generator) limit(i int) mapping {
	m := mapping{"unit": g.pick("minute", "HOUR", "Day"), "unit_multiplier": 1 + i*7}
	g.maybe(m, "requests_per_unit", 0, 1, 1000, 10000, 4294967295, nil)
	g.maybe(m, "strategy", "fixed_window", "sliding_window", "gcra", "token_bucket", "leaky_bucket", "concurrency")
	g.maybe(m, "on_error", g.policies()...)
	g.maybe(m, "name", fmt.Sprint("n", i), 5)
	g.maybe(m, "replaces", nil, []any{}, []any{mapping{"name": "other"}, mapping{"name": 6, "key": "ignored"}})
	g.maybe(m, "unlimited", false, nil)
	if g.IntN(10) == 0 {
		m["borrow_from"] = g.pick("spare", "other")
		g.maybe(m, "max_borrow", "1%", "20%", "100%")
	}
	g.maybe(m, "shadow_mode", true, "ignored")
	switch strategy, _ := m["strategy"].(string); strategy {
	case "", "fixed_window":
		if g.IntN(4) == 0 {
			m["window"], m["extend"] = "from_first_hit", g.pick(true, false, nil)
		}
	case "leaky_bucket":
		g.maybe(m, "max_delay", "500ms", "1h2m3.5s", "+.5s", "2µs")
	case "sliding_window":
		g.maybe(m, "precision", 2, 60)
	}
	g.maybe(m, "overdraft", true, false, false, nil, 1000)
	g.maybe(m, "reserve", true, false, false, nil, mapping{"ttl": "24h", "on_expiry": g.pick("keep", "give_back")})
	g.maybe(m, "thresholds", nil, []any{}, []any{mapping{"at": "80%", "headers": mapping{"x-a": g.pick("b", 5, 1.5, true)}, "metadata": mapping{"b": []any{1}}, "delay": "1s"}, mapping{"at": "1%", "response_headers": g.pick(nil, mapping{"X-B": ""})}})
	g.maybe(m, "lease", true, false, nil, mapping{}, mapping{"share": "7.5%", "ttl": "100ms"}, mapping{"share": "1e1%"})
	return m
}

func (g generator) policies() []any { return []any{"error", "allow", "deny", "local"} }

func (g generator) pick(choices ...any) any { return choices[g.IntN(len(choices))] }

// maybe sets a key in every fifth mapping.
func (g generator) maybe(m mapping, key string, choices ...any) {
	if g.IntN(5) == 0 {
		m[key] = g.pick(choices...)
	}
}

// spoil changes one thing in a document: it adds a key, removes one, or gives one
// another value.
func (g generator) spoil(document mapping) {
	places := mappings(document)
	m := places[g.IntN(len(places))]
	keys := slices.Sorted(maps.Keys(m))
	names := []any{"domian", "rate_limt", "x", "on_error", "burst", "strategy", "share", "ttl", "unit", "key", "pools", "borrow_from", "max_borrow", "plans", "plan", "unlimited", "lease", "charge", "extend", "thresholds", "at", "headers", "delay", "window", "max_delay", "unit_multiplier", "overdraft", "precision", "reserve", "on_expiry"}
	switch g.IntN(4) {
	case 0:
		m[g.pick(names...).(string)] = g.wrong()
	case 1:
		if len(keys) > 0 {
			delete(m, keys[g.IntN(len(keys))])
		}
	default:
		if len(keys) > 0 {
			m[keys[g.IntN(len(keys))]] = g.wrong()
		}
	}
}

// wrong is a value that is wrong in most places.
func (g generator) wrong() any {
	return g.pick("", "wrong", 1.5, -1, 0, 4294967296, true, nil, []any{}, []any{1}, []any{nil}, mapping{}, mapping{"x": 1}, mapping{"unit": "eon"},
		[]any{mapping{}}, "5", "5%", "101%", "0%", "1s", "1", "-1s", "always", "minute", "local", strings.ToUpper(algorithms.Names()[0]), descriptors.UnitNames()[0]+"s")
}

// mappings are all mappings of a document, without those in metadata.
func mappings(v any) (all []mapping) {
	switch v := v.(type) {
	case mapping:
		all = append(all, v)
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if key != "metadata" {
				all = append(all, mappings(v[key])...)
			}
		}
	case []any:
		for _, item := range v {
			all = append(all, mappings(item)...)
		}
	}
	return all
}
