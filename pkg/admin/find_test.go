package admin_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/operate"
	"example.org/rls/pkg/top"
)

// constant remembers the same descriptors for every text.
type constant []service.Remembered

func (m constant) Find(_ string, wanted func(*service.Remembered) bool) (found []service.Remembered) {
	for _, r := range m {
		if wanted == nil || wanted(&r) {
			found = append(found, r)
		}
	}
	return found
}

func user(name string) []descriptors.Entry { return []descriptors.Entry{{Key: "user", Value: name}} }

const findRules = `domain: shop
descriptors:
- key: user
  rate_limit: {unit: minute, requests_per_unit: 10}
- key: user
  value: "a*"
  rate_limit: {unit: minute, requests_per_unit: 5, name: replaced}
- key: name
  value: ann
  rate_limit: {unit: hour, requests_per_unit: 2, replaces: [{name: replaced}]}
- {key: vip, rate_limit: {unlimited: true}}
`

// A value finds the rules in which it can stand, and the keys that have it with their
// counters, without charging them.
func TestFind(t *testing.T) {
	seen := top.New(top.Options{Keys: 10, StoredKey: strings.Clone})
	denied := time.Date(2026, 11, 22, 3, 12, 7, 0, time.UTC)
	limits := newLimits(t, newStore(t), findRules, seen)
	r := start(t, listening{change: func(o *admin.Options) {
		o.Limits = limits
		o.Memories = []admin.Memory{seen, constant{
			{Domain: "shop", Entries: user("joanna"), Rule: "shop.user", LastDenial: denied, Denied: 1},
			{Domain: "shop", Entries: user("ann"), LastDenial: denied},
			{Domain: "shop", Entries: user("ann of a name that is too long…"), Cut: true},
			{Domain: "gone", Entries: user("ann"), Rule: "gone.user"},
		}}
	}})
	for range 6 {
		r.charge("ann", 1)
	}
	r.charge("bob", 1)
	r.chargeEntry("name", "ann", 1)
	r.chargeEntry("vip", "ann", 1)
	got := r.ask("GET", "/v1/find?q=ann", "", bearer(readToken))
	if got.code != 200 {
		t.Fatalf("got %d %s", got.code, got.text)
	}
	var places, keys []string
	for _, p := range got.json["places"].([]any) {
		p := p.(map[string]any)
		places = append(places, fmt.Sprintf("%v %v %v %v %v:%v", p["match"], p["domain"], p["rule"], p["path"], p["file"], p["line"]))
	}
	want := `exact shop shop.name_ann [map[key:name value:ann]] rules.yaml:8
wildcard shop shop.user_a* [map[key:user value:a*]] rules.yaml:5
any shop shop.user [map[key:user value:]] rules.yaml:3
any shop shop.vip [map[key:vip value:]] rules.yaml:11`
	if places := strings.Join(places, "\n"); places != want {
		t.Errorf("places: got\n%s\nwant\n%s", places, want)
	}
	for _, k := range got.json["keys"].([]any) {
		k := k.(map[string]any)
		line := fmt.Sprintf("%v %v %v denied %v last %v:", k["domain"], k["entries"], k["rule"], k["denied"], k["last_denial"])
		for _, l := range k["limits"].([]any) {
			l := l.(map[string]any)
			line += fmt.Sprintf(" %v %v %v", l["rule"], l["count"], l["replaced_by"])
		}
		keys = append(keys, line)
	}
	want = `shop [map[key:user value:ann]] shop.user_a* denied 1 last 2026-11-22T03:12:07Z: shop.user_a* 6 <nil>
gone [map[key:user value:ann]] gone.user denied 0 last <nil>:
shop [map[key:name value:ann]] shop.name_ann denied 0 last <nil>: shop.name_ann 1 <nil>
shop [map[key:user value:joanna]] shop.user denied 1 last 2026-11-22T03:12:07Z: shop.user 0 <nil>
shop [map[key:user value:ann of a name that is too long…]]  denied 0 last <nil>:`
	if keys := strings.Join(keys, "\n"); keys != want {
		t.Errorf("keys: got\n%s\nwant\n%s", keys, want)
	}

	got = r.ask("GET", "/v1/find?q=ann&n=1", "", bearer(readToken))
	if p, k := got.json["places"].([]any), got.json["keys"].([]any); len(p) != 1 || len(k) != 1 {
		t.Errorf("n=1: got %s", got.text)
	}
	got = r.ask("GET", "/v1/find?q=bo", "", bearer(readToken))
	if p := got.json["places"].([]any); len(p) != 2 || !strings.Contains(got.text, `"limits":[{"rule":"shop.user","words":"10 per minute, fixed_window","strategy":"fixed_window","limit":10,"window":"60s","key":"shop|user=bob`) {
		t.Errorf("a part of a value: got %s", got.text)
	}
	for query, want := range map[string]string{
		"": "q is empty", "?q=a&n=101": "n is 101: want 1 to 100", "?q=a&n=-1": "n is -1", "?q=a&x=1": "unknown name",
	} {
		if got := r.ask("GET", "/v1/find"+query, "", bearer(readToken)); got.code != 400 || !strings.Contains(got.text, want) {
			t.Errorf("%s: got %d %s", query, got.code, got.text)
		}
	}
}

// A whole value comes first also if it is sought as people are shown it.
func TestFindsAWholeValueOfAnyText(t *testing.T) {
	r := start(t, listening{change: func(o *admin.Options) {
		o.Memories = []admin.Memory{constant{{Domain: "shop", Entries: user("joann\xff"), Denied: 9}, {Domain: "shop", Entries: user("ann\xff")}}}
	}})
	got := r.ask("GET", `/v1/find?q=ann%5Cxff`, "", bearer(readToken))
	if first, second := strings.Index(got.text, `"YW5u/w=="`), strings.Index(got.text, `"am9hbm7/"`); first < 0 || second < first {
		t.Errorf("got %s", got.text)
	}
}

func TestFindsNothing(t *testing.T) {
	r := start(t, listening{change: func(o *admin.Options) {
		limits := service.New(service.Config{Store: newStore(t)})
		o.Limits = operate.New(limits, strings.Clone)
	}})
	if got := r.ask("GET", "/v1/find?q=ann", "", bearer(readToken)); got.code != 200 || strings.TrimSpace(got.text) != `{"places":[],"keys":[]}` {
		t.Errorf("without rules and memories: got %d %s", got.code, got.text)
	}
}

// TestFleetFinds: each rule and each key stands once, with the denials of all replicas; a process that has
// no fleet answers alone, and a replica that does not answer is named.
func TestFleetFinds(t *testing.T) {
	memory := func(all ...service.Remembered) func(*admin.Options) {
		return func(o *admin.Options) { o.Memories = []admin.Memory{constant(all)} }
	}
	denied := time.Date(2026, 11, 22, 3, 12, 7, 0, time.UTC)
	b := start(t, listening{change: memory(
		service.Remembered{Domain: "shop", Entries: user("ann"), Denied: 5, LastDenial: denied.Add(time.Minute)},
		service.Remembered{Domain: "shop", Entries: user("joanna"), Denied: 90})})
	a := inFleet(t, listening{change: memory(
		service.Remembered{Domain: "shop", Entries: user("ann"), Denied: 2, LastDenial: denied})}, b.addr(), "127.0.0.1:OWN", "127.0.0.1:1")
	var found admin.Found
	got := a.ask("GET", "/v1/find?q=ann&fleet=true", "", bearer(readToken))
	if err := json.Unmarshal([]byte(got.text), &found); err != nil || len(found.Keys) != 2 || len(found.Replicas) != 3 || found.Replicas[2].OK {
		t.Fatalf("%v: got %d %s", err, got.code, got.text)
	}
	if k := found.Keys[0]; k.Entries[0].Value != "ann" || k.Denied != 7 || !k.LastDenial.Equal(denied.Add(time.Minute)) || len(k.Limits) == 0 {
		t.Errorf("got %+v", k)
	}
	rules := map[string]int{}
	for _, p := range found.Places {
		rules[p.Rule]++
	}
	if rules["shop.user"] != 1 {
		t.Errorf("got %+v", found.Places)
	}
	if got := b.ask("GET", "/v1/find?q=ann&fleet=true", "", bearer(readToken)); got.code != 200 || strings.Contains(got.text, "replicas") {
		t.Errorf("without a fleet: got %d %s", got.code, got.text)
	}
}

// A request that nothing limits is answered with names that it may have meant.
func TestSuggestions(t *testing.T) {
	limits := newLimits(t, newStore(t), `domain: tree
descriptors:
- {key: plan, value: free, descriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 10}}]}
`)
	r := start(t, listening{change: func(o *admin.Options) { o.Limits = limits }})
	const ann = `{"domain":"tree","descriptors":[{"entries":[{"key":"user","value":"ann"}]}`
	for path, body := range map[string]string{"get": ann + "]}", "reset": ann + "]}", "grant": ann + `],"hits":1}`} {
		for domain, want := range map[string]struct{ message, suggestion string }{
			"tree": {"no descriptor matches user=ann; did you mean plan=free,user=ann?", "plan=free,user=ann"},
			"tre":  {"no rules for domain tre; did you mean tree?", "tree"},
		} {
			got := r.ask("POST", "/v1/"+path, strings.Replace(body, "tree", domain, 1), bearer(writeToken))
			wanted := map[string]any{"code": "NOT_FOUND", "message": "the request has no counter: " + want.message, "suggestions": []any{want.suggestion}}
			if got.code != 404 || !reflect.DeepEqual(got.json, wanted) {
				t.Errorf("%s in %s: got %d %s, want %v", path, domain, got.code, got.text, wanted)
			}
		}
	}
	const suggestions = `"suggestions":["plan=free,user=ann"]`
	if got := r.ask("POST", "/v1/explain", ann+"]}", bearer(readToken)); got.code != 200 || !strings.Contains(got.text, suggestions) {
		t.Errorf("explain: got %d %s", got.code, got.text)
	}
	both := ann + `,{"entries":[{"key":"plan","value":"free"},{"key":"user","value":"ann"}]}]}`
	if got := r.ask("POST", "/v1/get", both, bearer(readToken)); got.code != 200 || strings.Count(got.text, "suggestions") != 1 || !strings.Contains(got.text, suggestions) {
		t.Errorf("get of one with a counter and one without: got %d %s", got.code, got.text)
	}
}
