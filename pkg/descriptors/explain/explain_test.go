package explain_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/operate"
)

const shop = `domain: shop
descriptors:
  - key: plan
    value: free
    descriptors:
      - key: user
        rate_limit: {unit: minute, requests_per_unit: 10}
  - key: plan
    rate_limit: {unit: hour, unit_multiplier: 2, requests_per_unit: 100, strategy: token_bucket, burst: 5, name: plans, on_error: allow}
  - key: plan
    value: "g*"
    rate_limit: {unlimited: true}
  - key: plan
    value: "*d"
    rate_limit: {unit: day, requests_per_unit: 1}
`

// at is ten seconds into a minute, an hour and a day.
const at = 1_800_057_610_000_000

func serve(t *testing.T, text string, change ...func(*service.Config)) *service.Service {
	t.Helper()
	store, err := memory.New(memory.Options{MaxKeys: 1000, Now: func() int64 { return at }})
	if err != nil {
		t.Fatal(err)
	}
	cfg := service.Config{Store: store}
	for _, c := range change {
		c(&cfg)
	}
	s := service.New(cfg)
	tree, _, err := yaml.Load([]yaml.Text{{Name: "shop.yaml", Content: []byte(text)}}, rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.SetTree(tree)
	return s
}

// ask returns the request with a descriptor for each list of key=value,key=value.
func ask(hits uint32, lists ...string) *service.Request {
	a := &service.Request{Domain: "shop", Hits: hits}
	for _, list := range lists {
		var d service.Descriptor
		for pair := range strings.SplitSeq(list, ",") {
			key, value, _ := strings.Cut(pair, "=")
			d.Entries = append(d.Entries, descriptors.Entry{Key: key, Value: value})
		}
		a.Descriptors = append(a.Descriptors, d)
	}
	return a
}

func document(t *testing.T, s *service.Service, view operate.View, a *service.Request) *explain.Document {
	t.Helper()
	doc, err := operate.New(s, strings.Clone).Inspect(t.Context(), &operate.Question{Request: *a}, view)
	if err != nil {
		t.Fatal(err)
	}
	return &doc
}

func text(t *testing.T, doc *explain.Document) string {
	t.Helper()
	var b strings.Builder
	if err := doc.Text(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// check compares lines and shows the differences.
func check(t *testing.T, got, want string) {
	t.Helper()
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(want), "\n"), strings.Split(strings.TrimSpace(got), "\n")); diff != "" {
		t.Errorf("%s\ngot\n%s", diff, got)
	}
}

// indented has a line for each key, in the order of the text.
func indented(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Indent(&b, []byte(text), "", " "); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestJSON(t *testing.T) {
	s := serve(t, shop)
	doc := document(t, s, operate.Trace, ask(0, "plan=free,user=ann", "plan=gold", "plan=x,y=z"))
	got, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	check(t, indented(t, string(got)), indented(t, `
{
 "domain": "shop",
 "descriptors": [
{
 "entries": [ {"key": "plan","value": "free" }, {"key": "user","value": "ann" } ],
 "hits": 1,
 "path": [
  {"depth": 1,"file": "shop.yaml","line": 3,"key": "plan","value": "free","match": "exact","won": true,"why": "it has the entry's key and value" },
  {"depth": 1,"file": "shop.yaml","line": 8,"key": "plan","value": "","match": "key","won": false,"why": "shop.yaml:3 goes first: it has the entry's key and value" },
  {"depth": 1,"file": "shop.yaml","line": 10,"key": "plan","value": "g*","match": "none","won": false,"why": "its value does not match the entry's; shop.yaml:3 won" },
  {"depth": 1,"file": "shop.yaml","line": 13,"key": "plan","value": "*d","match": "none","won": false,"why": "its value does not match the entry's; shop.yaml:3 won" },
  {"depth": 2,"file": "shop.yaml","line": 6,"key": "user","value": "","match": "key","won": true,"why": "it has the entry's key and no value" } ],
 "rule": "shop.plan_free.user",
 "why": "",
 "limits": [ {"rule": "shop.plan_free.user","words": "10 per minute, fixed_window","strategy": "fixed_window","limit": 10,"window": "60s","key": "shop|plan=free|user=ann|1m|30000960" } ]
},
{
 "entries": [ {"key": "plan","value": "gold" } ],
 "hits": 1,
 "path": [
  {"depth": 1,"file": "shop.yaml","line": 3,"key": "plan","value": "free","match": "none","won": false,"why": "its value does not match the entry's; shop.yaml:10 won" },
  {"depth": 1,"file": "shop.yaml","line": 8,"key": "plan","value": "","match": "key","won": false,"why": "shop.yaml:10 goes first: it is the first descriptor whose wildcards match" },
  {"depth": 1,"file": "shop.yaml","line": 10,"key": "plan","value": "g*","match": "wildcard","won": true,"why": "it is the first descriptor whose wildcards match" },
  {"depth": 1,"file": "shop.yaml","line": 13,"key": "plan","value": "*d","match": "wildcard","won": false,"why": "shadowed by the wildcard above it, shop.yaml:10" } ],
 "rule": "shop.plan_g*",
 "why": "",
 "limits": [ {"rule": "shop.plan_g*","unlimited": true } ]
},
{
 "entries": [ {"key": "plan","value": "x" }, {"key": "y","value": "z" } ],
 "hits": 1,
 "path": [
  {"depth": 1,"file": "shop.yaml","line": 3,"key": "plan","value": "free","match": "none","won": false,"why": "its value does not match the entry's; shop.yaml:8 won" },
  {"depth": 1,"file": "shop.yaml","line": 8,"key": "plan","value": "","match": "key","won": true,"why": "it has the entry's key and no value" },
  {"depth": 1,"file": "shop.yaml","line": 10,"key": "plan","value": "g*","match": "none","won": false,"why": "its value does not match the entry's; shop.yaml:8 won" },
  {"depth": 1,"file": "shop.yaml","line": 13,"key": "plan","value": "*d","match": "none","won": false,"why": "its value does not match the entry's; shop.yaml:8 won" } ],
 "rule": "",
 "why": "no descriptor matches y=z: one entry too many, because shop.yaml:8 has no descriptors below it",
   "suggestions": [
    "plan=x"
   ],
 "limits": []
}
 ]
}`))
}

func TestJSONWithStates(t *testing.T) {
	s := serve(t, shop)
	hit := ask(4, "plan=free,user=ann", "plan=x")
	if _, err := s.Evaluate(t.Context(), hit); err != nil {
		t.Fatal(err)
	}
	doc := document(t, s, operate.Explain, hit)
	doc.Rules = &explain.Rules{Source: "file", Path: "/rules", Hash: "1f", Loaded: time.Unix(1, 0).UTC()}
	got, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"rules":{"source":"file","path":"/rules","hash":"1f","loaded":"1970-01-01T00:00:01Z"},`,
		`"key":"shop|plan=free|user=ann|1m|30000960","count":4,"remaining":6,"reset":"50s","next":"0s","policy":"error"}`,
		`{"rule":"shop.plan","words":"100 per 2 hours, token_bucket, burst 5","name":"plans","strategy":"token_bucket","limit":100,"window":"7200s","burst":5,"key":"shop|plan=x|tb2h:100:5","count":4,"remaining":1,"reset":"288s","next":"216s","policy":"allow"}`,
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	var read explain.Document
	if err := json.Unmarshal(got, &read); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(doc, &read); diff != "" {
		t.Errorf("what was read differs: %s", diff)
	}
}

func TestText(t *testing.T) {
	s := serve(t, shop)
	hit := ask(4, "plan=free,user=ann", "plan=x", "plan=gold", "plan=x,y=z")
	for range 3 {
		if _, err := s.Evaluate(t.Context(), hit); err != nil {
			t.Fatal(err)
		}
	}
	doc := document(t, s, operate.Explain, hit)
	doc.Rules = &explain.Rules{Source: "file", Path: "/rules", Hash: "1f", Loaded: time.Unix(1, 0).UTC()}
	check(t, text(t, doc), `
domain shop
rules from file /rules, loaded 1970-01-01T00:00:01Z, hash 1f

descriptor plan=free, user=ann
  1. plan=free
    > shop.yaml:3   plan=free  exact  won: it has the entry's key and value
      shop.yaml:8   plan       key    shop.yaml:3 goes first: it has the entry's key and value
      shop.yaml:10  plan=g*    none   its value does not match the entry's; shop.yaml:3 won
      shop.yaml:13  plan=*d    none   its value does not match the entry's; shop.yaml:3 won
  2. user=ann
    > shop.yaml:6   user       key    won: it has the entry's key and no value
  rule shop.plan_free.user
    10 per minute, fixed_window
      key        shop|plan=free|user=ann|1m|30000960
      count      12
      remaining  0, so a request of 4 hits is denied
      next hit   in 50s
      reset      in 50s
      policy     error, while the store does not answer

descriptor plan=x
  1. plan=x
      shop.yaml:3   plan=free  none  its value does not match the entry's; shop.yaml:8 won
    > shop.yaml:8   plan       key   won: it has the entry's key and no value
      shop.yaml:10  plan=g*    none  its value does not match the entry's; shop.yaml:8 won
      shop.yaml:13  plan=*d    none  its value does not match the entry's; shop.yaml:8 won
  rule shop.plan
    100 per 2 hours, token_bucket, burst 5 (plans)
      key        shop|plan=x|tb2h:100:5
      count      4
      remaining  1, so a request of 4 hits is denied
      next hit   in 3m36s
      reset      in 4m48s
      policy     allow, while the store does not answer

descriptor plan=gold
  1. plan=gold
      shop.yaml:3   plan=free  none      its value does not match the entry's; shop.yaml:10 won
      shop.yaml:8   plan       key       shop.yaml:10 goes first: it is the first descriptor whose wildcards match
    > shop.yaml:10  plan=g*    wildcard  won: it is the first descriptor whose wildcards match
      shop.yaml:13  plan=*d    wildcard  shadowed by the wildcard above it, shop.yaml:10
  rule shop.plan_g*
    unlimited

descriptor plan=x, y=z
  1. plan=x
      shop.yaml:3   plan=free  none  its value does not match the entry's; shop.yaml:8 won
    > shop.yaml:8   plan       key   won: it has the entry's key and no value
      shop.yaml:10  plan=g*    none  its value does not match the entry's; shop.yaml:8 won
      shop.yaml:13  plan=*d    none  its value does not match the entry's; shop.yaml:8 won
  no limit: no descriptor matches y=z: one entry too many, because shop.yaml:8 has no descriptors below it
  did you mean plan=x?
`)
}

// TestNextHit: the text and the JSON tell the moment at which the request passes, and do
// not where no store is asked or the limit is not decided.
func TestNextHit(t *testing.T) {
	s := serve(t, `domain: shop
descriptors:
- {key: none, rate_limit: {unit: minute, requests_per_unit: 0}}
- {key: third, rate_limit: {unit: second, requests_per_unit: 3, strategy: gcra, burst: 1}}
- {key: slow, rate_limit: {unit: day, requests_per_unit: 7, strategy: gcra, burst: 1}}
- {key: queue, rate_limit: {unit: minute, requests_per_unit: 60, strategy: leaky_bucket, max_delay: 1s}}
- {key: old, rate_limit: {unit: second, requests_per_unit: 1, name: old}}
- {key: new, rate_limit: {unit: second, requests_per_unit: 1, replaces: [{name: old}]}}
`)
	for _, test := range []struct{ descriptor, text, json string }{
		{"third", "next hit   now", `"next":"0s"`},
		{"third", "next hit   in 333.334ms", `"next":"0.333334s"`},
		{"slow", "next hit   now", `"next":"0s"`},
		{"slow", "next hit   in 3h25m42.9s", `"next":"12342.857143s"`},
		{"none", "next hit   never", `"never":true`},
		{"queue", "next hit   now", `"next":"0s"`},
		{"queue", "remaining  0, so a hit waits for its turn\n      next hit   now", `"next":"0s"`},
		{"queue", "remaining  0, so a hit is denied\n      next hit   in 1s", `"next":"1s"`},
		{"old,new", "", `"next":"0s"`},
	} {
		hit := ask(1, strings.Split(test.descriptor, ",")...)
		for _, do := range []operate.View{operate.Trace, operate.Explain} {
			doc := document(t, s, do, hit)
			doc.Descriptors = doc.Descriptors[:1]
			got, err := json.Marshal(doc)
			if err != nil {
				t.Fatal(err)
			}
			text, looked := text(t, doc), do == operate.Explain
			if want := looked && test.text != ""; strings.Contains(text, "next hit") != want || want && !strings.Contains(text, test.text+"\n") {
				t.Errorf("want %q of %v in\n%s", test.text, want, text)
			}
			if strings.Contains(string(got), test.json) != looked || strings.Count(string(got), `"next"`)+strings.Count(string(got), `"never"`) > 1 {
				t.Errorf("%s: want %s of %v in %s", test.descriptor, test.json, looked, got)
			}
		}
		if _, err := s.Evaluate(t.Context(), hit); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDebt: a request above what remains passes where debt may be made, and waits for nothing.
func TestDebt(t *testing.T) {
	s := serve(t, `domain: shop
descriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 10, overdraft: true}}]
`)
	for _, want := range []string{"remaining  10, so a request of 30 hits makes debt\n", "remaining  0, so a request of 30 hits is denied\n"} {
		request := ask(30, "user=ann")
		if got := text(t, document(t, s, operate.Explain, request)); !strings.Contains(got, want) {
			t.Errorf("want %q in\n%s", want, got)
		}
		if _, err := s.Evaluate(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
}

// TestControlCharacters: neither rules nor callers can write to the terminal, and
// programs get every byte.
func TestControlCharacters(t *testing.T) {
	s := serve(t, shop)
	a := ask(0, "plan=x")
	a.Domain = "sh\x1bop"
	evil := "\x1b[2Jé\r\n\u202e\x00"
	a.Descriptors[0].Entries = []descriptors.Entry{{Key: "plan", Value: evil}, {Key: evil, Value: evil}}
	unknown := document(t, s, operate.Trace, a)
	a.Domain = "shop"
	for _, doc := range []*explain.Document{unknown, document(t, s, operate.Trace, a)} {
		got := text(t, doc)
		if strings.ContainsAny(got, "\x1b\r\x00\u202e") || !strings.Contains(got, `plan=\x1b[2Jé\r\n\u202e\x00`) {
			t.Errorf("got %q", got)
		}
		data, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		var read explain.Document
		if err := json.Unmarshal(data, &read); err != nil || read.Descriptors[0].Entries[1] != (descriptors.Entry{Key: evil, Value: evil}) {
			t.Errorf("got %+v, %v", read, err)
		}
	}
	if want := `no limit: no rules for domain sh\x1bop`; !strings.Contains(text(t, unknown), want) {
		t.Errorf("no %q in %q", want, text(t, unknown))
	}
}

func TestTextOfManyDescriptorsIsShort(t *testing.T) {
	var b strings.Builder
	b.WriteString("domain: shop\ndescriptors:\n")
	for i := range 1000 {
		fmt.Fprintf(&b, "- {key: user, value: u%d, rate_limit: {unit: day, requests_per_unit: 1}}\n", i)
	}
	doc := document(t, serve(t, b.String()), operate.Trace, ask(0, "user=u500"))
	if path := doc.Descriptors[0].Path; len(path) != 100 || path[99].More != 900 {
		t.Errorf("the document has %d descriptors", len(path))
	}
	got := text(t, doc)
	if strings.Count(got, "\n") > 15 || !strings.Contains(got, "> shop.yaml:503") || !strings.Contains(got, "… and 994 more that do not match") {
		t.Errorf("got %s", got)
	}
}

func TestModesAndReplacedLimits(t *testing.T) {
	s := serve(t, `domain: shop
descriptors:
- {key: tried, shadow_mode: true, rate_limit: {unit: second, requests_per_unit: 1, name: one}}
- {key: quota, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
- {key: vip, rate_limit: {unit: minute, requests_per_unit: 9, strategy: leaky_bucket, max_delay: 1s, replaces: [{name: one}]}}
`)
	a := ask(0, "tried", "vip", "vip=2", "quota")
	a.Descriptors[2].Limit = &service.Override{RequestsPerUnit: 7, Unit: descriptors.Week, Multiplier: 1}
	got := text(t, document(t, s, operate.Trace, a))
	for _, want := range []string{
		"shadow mode: denials are counted and answered OK", "quota mode: the request is denied only if every descriptor in quota mode is",
		"1 per second, fixed_window (one)\n      not decided: shop.vip replaces it\n", "9 per minute, leaky_bucket, burst 1, a queue of at most 1s\n",
		"the limit came with the request\n    7 per 7 days, leaky_bucket",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// TestTriedLimits: the text and the JSON say whether a limit is enforced for the key.
func TestTriedLimits(t *testing.T) {
	s := serve(t, `domain: shop
descriptors:
- key: user
  rate_limits:
  - {unit: second, requests_per_unit: 5}
  - {unit: minute, requests_per_unit: 0, shadow_mode: true}
  - {unit: hour, requests_per_unit: 0, rollout: 12.5%, name: new}
`)
	for value, want := range map[string]string{"1": "enforced", "2": "watched"} {
		doc := document(t, s, operate.Look, ask(0, "user="+value))
		got := text(t, doc)
		for _, want := range []string{
			"5 per second, fixed_window\n", "0 per minute, fixed_window, shadow\n", "so a hit would be denied\n      would pass never\n", "      next hit   now\n",
			"0 per hour, fixed_window, rollout 12.5 %: " + want + " for this key (new)\n",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in\n%s", want, got)
			}
		}
		encoded, err := json.Marshal(doc.Descriptors[0].Limits)
		if err != nil {
			t.Fatal(err)
		}
		for part, times := range map[string]int{
			`"shadow_mode":true,"enforced":false,"key":`:                               1,
			fmt.Sprintf(`"rollout":"12.5%%","enforced":%v,"key":`, want == "enforced"): 1,
			`"enforced":`: 2, `~shadow"`: 1,
		} {
			if n := strings.Count(string(encoded), part); n != times {
				t.Errorf("%d of %s in %s, want %d", n, part, encoded, times)
			}
		}
	}
}

func TestThePeriodOfACalendar(t *testing.T) {
	s := serve(t, `domain: shop
descriptors:
- {key: user, rate_limit: {unit: month, requests_per_unit: 5, window: calendar, timezone: Asia/Tokyo, month_starts: 2}}
- {key: utc, rate_limit: {unit: day, requests_per_unit: 5, window: calendar}}
`)
	doc := document(t, s, operate.Look, ask(0, "user=1"))
	l := doc.Descriptors[0].Limits[0]
	if _, offset := l.Period.Began.Zone(); l.Calendar != "month" || offset != 9*3600 || l.Period.Began.Day() != 2 || !l.Period.Ends.Equal(l.Period.Began.AddDate(0, 1, 0)) {
		t.Errorf("%s from %v to %v", l.Calendar, l.Period.Began, l.Period.Ends)
	}
	for name, want := range map[string]string{
		"user=1": `5 per calendar month, fixed_window, in Asia/Tokyo\n +key +shop\|user=1\|cmonth\|\d+\n +period +\d{4}-\d\d-02 00:00 \+09:00 to \d{4}-\d\d-02 00:00 \+09:00, Asia/Tokyo\n`,
		"utc=1":  `5 per calendar day, fixed_window, in UTC\n +key +shop\|utc=1\|cday\|\d+\n +period +\S+ 00:00 Z to \S+ 00:00 Z, UTC\n`,
	} {
		if got := text(t, document(t, s, operate.Look, ask(0, name))); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
}

// The thresholds of a limit stand beside it, and the highest that is reached beside its count.
func TestThresholds(t *testing.T) {
	s := serve(t, `domain: shop
descriptors:
- {key: user, rate_limit: {unit: hour, requests_per_unit: 10, thresholds: [{at: 80%}, {at: 50%}, {at: 90%}]}}
`)
	for used, want := range map[uint32]string{4: "", 8: "80 %", 10: "90 %"} {
		a := ask(used, fmt.Sprint("user=", used))
		if _, err := s.Evaluate(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		doc := document(t, s, operate.Look, a)
		got := text(t, doc)
		if !strings.Contains(got, "10 per hour, fixed_window, thresholds 50 %, 80 %, 90 %\n") ||
			strings.Contains(got, "threshold  ") != (want != "") || want != "" && !strings.Contains(got, "      threshold  "+want+" is reached\n") {
			t.Errorf("%d used, want %q:\n%s", used, want, got)
		}
		encoded, err := json.Marshal(doc.Descriptors[0].Limits)
		if err != nil {
			t.Fatal(err)
		}
		reached := ""
		if want != "" {
			reached = `"threshold":"` + strings.ReplaceAll(want, " ", "") + `"`
		}
		if !strings.Contains(string(encoded), `"thresholds":["50%","80%","90%"]`) || !strings.Contains(string(encoded), reached) {
			t.Errorf("%d used: %s", used, encoded)
		}
	}
}

func TestTheLimitOfTheLastRequest(t *testing.T) {
	for age, want := range map[time.Duration]string{
		-time.Second: "(0 s ago)", 12 * time.Second: "(12 s ago)", 119 * time.Second: "(119 s ago)",
		2 * time.Minute: "(2 min ago)", 119 * time.Minute: "(119 min ago)", 50 * time.Hour: "(50 h ago)",
	} {
		a := ask(0, "plan=x")
		a.Descriptors[0].Limit = &service.Override{RequestsPerUnit: 100, Unit: descriptors.Hour, Multiplier: 2}
		want = "\n  the last request " + want + " brought 100 per 2 hours in place of the rule's\n"
		q := &operate.Question{Request: *a, Seen: map[int]time.Time{0: time.Now().Add(-age)}}
		doc, err := operate.New(serve(t, shop), strings.Clone).Inspect(t.Context(), q, operate.Trace)
		if err != nil {
			t.Fatal(err)
		}
		if got := text(t, &doc); !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// away is a store that fails at once.
type away struct{ backends.Store }

func (away) Apply(_ context.Context, b *backends.Batch) error {
	return b.Fail(fmt.Errorf("redis 10.0.0.1: %w", backends.ErrUnavailable))
}

func TestAStoreThatIsAway(t *testing.T) {
	s := serve(t, shop, func(c *service.Config) { c.Store = away{c.Store} })
	doc := document(t, s, operate.Explain, ask(0, "plan=x"))
	_, limits, _ := strings.Cut(text(t, doc), "  rule")
	check(t, "  rule"+limits, `
  rule shop.plan
    100 per 2 hours, token_bucket, burst 5 (plans)
      key        shop|plan=x|tb2h:100:5
      not known  redis 10.0.0.1: store unavailable
      policy     allow decides now
`)
	data, err := json.Marshal(doc)
	if err != nil || !strings.Contains(string(data), `"key":"shop|plan=x|tb2h:100:5","policy":"allow","error":"redis 10.0.0.1: store unavailable"}`) {
		t.Errorf("got %s, %v", data, err)
	}
}

func TestDurationsAreExact(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                             "0s",
		time.Minute:                   "60s",
		100 * time.Millisecond:        "0.1s",
		29_741_282 * time.Microsecond: "29.741282s",
		-1500 * time.Millisecond:      "-1.5s",
		time.Nanosecond:               "0.000000001s",
	} {
		text, err := explain.Duration(d).MarshalText()
		if err != nil || string(text) != want {
			t.Errorf("%v: got %s, %v", d, text, err)
		}
	}
}

// Every field that changes what a limit admits is in its words.
func TestWordsOfALimit(t *testing.T) {
	for limit, want := range map[string]string{
		"unit: minute, requests_per_unit: 9":                                                         "9 per minute, fixed_window",
		"unit: hour, unit_multiplier: 2, requests_per_unit: 9, name: two":                            "9 per 2 hours, fixed_window (two)",
		"unit: minute, requests_per_unit: 9, window: from_first_hit, extend: true":                   "9 per minute, fixed_window, from the first hit, extended by each hit",
		"unit: month, requests_per_unit: 9, window: calendar, timezone: Europe/Berlin, overdraft: 5": "9 per calendar month, fixed_window, in Europe/Berlin, overdraft 5",
		"unit: day, requests_per_unit: 9, window: calendar, thresholds: [{at: 80%}, {at: 90%}]":      "9 per calendar day, fixed_window, in UTC, thresholds 80 %, 90 %",
		"unit: minute, requests_per_unit: 9, strategy: sliding_window, precision: 6":                 "9 per minute, sliding_window, precision 6",
		"unit: minute, requests_per_unit: 9, strategy: leaky_bucket, burst: 2, max_delay: 2s":        "9 per minute, leaky_bucket, burst 2, a queue of at most 2s",
		"unit: hour, requests_per_unit: 9, borrow_from: spare, max_borrow: 20%":                      "9 per hour, fixed_window, borrows up to 20 % of spare",
		"unit: minute, requests_per_unit: 9, shadow_mode: true":                                      "9 per minute, fixed_window, shadow",
		"unit: minute, requests_per_unit: 9, rollout: 0.0001%":                                       "9 per minute, fixed_window, rollout 0.0001 %: watched for this key",
		"unit: minute, requests_per_unit: 9, rollout: 99.9999%":                                      "9 per minute, fixed_window, rollout 99.9999 %: enforced for this key",
	} {
		s := serve(t, "domain: shop\npools: {spare: {unit: minute, requests_per_unit: 1000}}\ndescriptors:\n- {key: user, rate_limit: {"+limit+"}}\n")
		if got := document(t, s, operate.Trace, ask(0, "user=a")).Descriptors[0].Limits[0].Line(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestUsageInWords(t *testing.T) {
	for use, want := range map[explain.Usage]string{
		{Count: 4, Remaining: 6}:             "count 4, remaining 6",
		{Count: 4, Granted: 2, Remaining: 8}: "count 4, granted 2, remaining 8",
	} {
		if got := fmt.Sprint(use); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A token that is bound to a customer is not told who has made a grant.
func TestTextOfAGrantByNobody(t *testing.T) {
	s := serve(t, "domain: shop\ndescriptors:\n- {key: user, rate_limit: {unit: minute, requests_per_unit: 9}}\n")
	doc := document(t, s, operate.Trace, ask(0, "user=a"))
	for who, want := range map[string]string{"": " (x1)\n", "alice": " (x1 by alice)\n"} {
		doc.Descriptors[0].Limits[0].Grant = &explain.Grant{Grant: &descriptors.Grant{ID: "x1", Who: who, Hits: 2}, Of: "9 per minute"}
		var text strings.Builder
		if err := doc.Text(&text); err != nil || !strings.Contains(text.String(), want) {
			t.Errorf("%v, got %s, want %q", err, &text, want)
		}
	}
}
