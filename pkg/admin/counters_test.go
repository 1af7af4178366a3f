package admin_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/service/operate"
	"example.org/rls/pkg/top"
)

// limit is the only limit of the answer to /v1/get for a user.
func (r *rig) limit(user string) map[string]any {
	r.t.Helper()
	got := r.ask("POST", "/v1/get", strings.ReplaceAll(annsRequest, "ann", user)+"}", bearer(readToken))
	if got.code != 200 {
		r.t.Fatalf("got %d %s", got.code, got.text)
	}
	descriptor := got.json["descriptors"].([]any)[0].(map[string]any)
	return descriptor["limits"].([]any)[0].(map[string]any)
}

func (r *rig) remaining(user string) any { return r.limit(user)["remaining"] }

func (r *rig) lastAudited() map[string]any {
	r.t.Helper()
	got := r.ask("GET", "/v1/audit?n=1", "", bearer(readToken))
	entries, _ := got.json["entries"].([]any)
	if len(entries) != 1 {
		r.t.Fatalf("the audit has %s", got.text)
	}
	return entries[0].(map[string]any)
}

// A reset empties the cells of a request, and the audit and the log say who did it.
func TestReset(t *testing.T) {
	r := start(t, listening{})
	r.charge("ann", 12)
	r.charge("bob", 2)
	dry := r.ask("POST", "/v1/reset", annsRequest+`,"dry_run":true}`, bearer(writeToken))
	if dry.code != 200 || dry.json["dry_run"] != true || dry.json["changed"] != 1.0 || r.remaining("ann") != 0.0 {
		t.Errorf("dry run: got %d %s", dry.code, dry.text)
	}
	got := r.ask("POST", "/v1/reset", annsRequest+`,"reason":"she called <b>us</b>"}`, bearer(writeToken))
	changes, _ := got.json["changes"].([]any)
	if got.code != 200 || got.json["dry_run"] != false || got.json["changed"] != 1.0 || len(changes) != 1 {
		t.Fatalf("got %d %s", got.code, got.text)
	}
	change := changes[0].(map[string]any)
	before, after := change["before"].(map[string]any), change["after"].(map[string]any)
	if change["rule"] != "shop.user" || before["count"] != 12.0 || before["remaining"] != 0.0 || after["count"] != 0.0 || after["remaining"] != 10.0 {
		t.Errorf("got %v", change)
	}
	if r.remaining("ann") != 10.0 || r.remaining("bob") != 8.0 {
		t.Errorf("ann has %v, bob has %v", r.remaining("ann"), r.remaining("bob"))
	}
	entry := r.lastAudited()
	for field, want := range map[string]any{
		"who": "alice", "action": "reset", "domain": "shop", "rule": "shop.user", "reason": "she called <b>us</b>", "changed": 1.0,
		"key": change["key"],
	} {
		if entry[field] != want {
			t.Errorf("audit: %s is %v, want %v", field, entry[field], want)
		}
	}
	if !strings.HasPrefix(entry["from"].(string), "127.0.0.1:") || entry["before"].(map[string]any)["count"] != 12.0 {
		t.Errorf("audit: %v", entry)
	}
	for _, want := range []string{`"msg":"audit"`, `"action":"reset"`, `"who":"alice"`, `"before":{"count":12,"remaining":0}`, `"after":{"count":0,"remaining":10}`} {
		if !strings.Contains(r.log.String(), want) {
			t.Errorf("the log has no %s: %s", want, r.log)
		}
	}
}

// A grant adds to the hits that remain, up to a maximum.
func TestGrant(t *testing.T) {
	r := start(t, listening{})
	r.charge("ann", 12)
	grant := func(hits string) answered {
		return r.ask("POST", "/v1/grant", annsRequest+`,"hits":`+hits+`,"reason":"a sale"}`, bearer(writeToken))
	}
	if got := grant("5"); got.code != 200 || got.json["changed"] != 1.0 || r.remaining("ann") != 5.0 {
		t.Errorf("got %d %s; %v remain", got.code, got.text, r.remaining("ann"))
	}
	if entry := r.lastAudited(); entry["action"] != "grant" || fmt.Sprint(entry["after"]) != "map[count:10 granted:5 remaining:5]" {
		t.Errorf("audit: %v", entry)
	}
	if l := r.limit("ann"); l["count"] != 10.0 || l["granted"] != 5.0 {
		t.Errorf("got %v", l)
	}
	for hits, want := range map[string]string{"0": "want at least 1", "-3": "want at least 1", "101": "100", "1.5": "hits", `"x"`: "hits"} {
		got := grant(hits)
		if message, _ := got.json["message"].(string); got.code != 400 || got.json["code"] != "INVALID_ARGUMENT" || !strings.Contains(message, want) {
			t.Errorf("%s: got %d %s", hits, got.code, got.text)
		}
	}
	if r.remaining("ann") != 5.0 {
		t.Errorf("refused grants left %v", r.remaining("ann"))
	}
}

// A limit that the request brings along neither raises the bound of a grant nor hides
// the rule whose counter is changed.
func TestChangesWithALimitOfTheRequest(t *testing.T) {
	r := start(t, listening{})
	raised := strings.Replace(annsRequest, `]}]`, `],"limit":{"requests_per_unit":4000000000,"unit":"minute"}}]`, 1)
	got := r.ask("POST", "/v1/grant", raised+`,"hits":40000000000}`, bearer(writeToken))
	if message, _ := got.json["message"].(string); got.code != 400 || !strings.Contains(message, "at most 100 (10 times the limit of 10)") {
		t.Errorf("a grant beyond the rule's bound: got %d %s", got.code, got.text)
	}
	if got := r.remaining("ann"); got != 10.0 {
		t.Errorf("%v remain", got)
	}
	for path, body := range map[string]string{"/v1/grant": raised + `,"hits":5}`, "/v1/reset": raised + "}"} {
		got := r.ask("POST", path, body, bearer(writeToken))
		if entry := r.lastAudited(); got.code != 200 || !strings.Contains(got.text, `"rule":"shop.user",`) || entry["rule"] != "shop.user" {
			t.Errorf("%s: got %d %s, audited as %v", path, got.code, got.text, entry)
		}
	}
}

// Where a key has very many rules, an explanation has some of them, and few explanations
// are made at a time.
func TestExplanationsAreBounded(t *testing.T) {
	var many strings.Builder
	many.WriteString("domain: shop\ndescriptors:\n- {key: any, rate_limits: [{unit: hour, requests_per_unit: 1}, {unit: day, requests_per_unit: 1}, {unit: week, requests_per_unit: 1}]}\n")
	for i := range 2000 {
		fmt.Fprintf(&many, "- {key: user, value: u%d, rate_limit: {unit: day, requests_per_unit: 1}}\n", i)
	}
	var crowd *counted
	r := start(t, listening{change: func(o *admin.Options) {
		crowd = &counted{Limits: newLimits(t, newStore(t), many.String())}
		o.Limits = crowd
	}})
	descriptors := strings.Repeat(`{"entries":[{"key":"user","value":"u700"}]},`, 9) + `{"entries":[{"key":"user","value":"u"}]}`
	var calls sync.WaitGroup
	for range 24 {
		calls.Go(func() {
			got := r.ask("POST", "/v1/explain", `{"domain":"shop","descriptors":[`+descriptors+"]}", bearer(readToken))
			if steps := strings.Count(got.text, `"depth":1`); got.code != 200 || len(got.text) > 1<<20 || steps != 10*100 ||
				strings.Count(got.text, `"won":true`) != 9 || strings.Count(got.text, `"more":1900`) != 10 {
				t.Errorf("got %d, %d bytes, %d steps", got.code, len(got.text), steps)
			}
		})
	}
	calls.Wait()
	if peak := crowd.peak.Load(); peak > 8 {
		t.Errorf("%d explanations at a time", peak)
	}
	long := `{"entries":[{"key":"any","value":"` + strings.Repeat(" ", 2000) + `"}]}`
	large := r.ask("POST", "/v1/explain", `{"domain":"shop","descriptors":[`+strings.Repeat(long+",", 399)+long+"]}", bearer(readToken))
	if message, _ := large.json["message"].(string); large.code != 429 || !strings.Contains(message, "ask for fewer descriptors") {
		t.Errorf("400 descriptors, each with three keys of 3 KiB: got %d, %d bytes", large.code, len(large.text))
	}
}

// counted counts the calls that inspect a request at a time.
type counted struct {
	admin.Limits
	now, peak atomic.Int64
}

func (c *counted) Inspect(ctx context.Context, r *operate.Question, view operate.View) (explain.Document, error) {
	now := c.now.Add(1)
	defer c.now.Add(-1)
	for peak := c.peak.Load(); now > peak && !c.peak.CompareAndSwap(peak, now); peak = c.peak.Load() {
	}
	for range 1000 { // so that others come meanwhile
		runtime.Gosched()
	}
	return c.Limits.Inspect(ctx, r, view)
}

func TestNothingToChange(t *testing.T) {
	r := start(t, listening{})
	for _, path := range []string{"/v1/get", "/v1/reset", "/v1/grant"} {
		for entry, want := range map[string]string{`"key":"nobody","value":"x"`: "no descriptor matches", `"key":"vip","value":"x"`: "unlimited"} {
			body := `{"domain":"shop","descriptors":[{"entries":[{` + entry + `}]}]`
			if path == "/v1/grant" {
				body += `,"hits":1`
			}
			got := r.ask("POST", path, body+"}", bearer(writeToken))
			message, _ := got.json["message"].(string)
			if path == "/v1/get" && want == "unlimited" {
				if got.code != 200 || !strings.Contains(got.text, `"limits":[{"rule":"shop.vip","unlimited":true}]`) {
					t.Errorf("%s: got %d %s", path, got.code, got.text)
				}
			} else if got.code != 404 || got.json["code"] != "NOT_FOUND" || !strings.Contains(message, want) {
				t.Errorf("%s: got %d %s, want %s", path, got.code, got.text, want)
			}
		}
	}
	if got := r.ask("GET", "/v1/audit", "", bearer(readToken)); got.text != `{"entries":[]}`+"\n" {
		t.Errorf("the audit has %s", got.text)
	}
}

func TestWrongRequests(t *testing.T) {
	r := start(t, listening{})
	for _, test := range []struct{ path, body, want string }{
		{"/v1/get", "", "it is empty; want a JSON object"},
		{"/v1/get", "[]", "is a JSON array: want a JSON object"},
		{"/v1/get", `{"domain":"\ud800"}`, "half of a surrogate pair"},
		{"/v1/get", `{"domain":"\uD83D\uDE00 \\ud800 \ud7ff"}`, "descriptor list must not be empty"},
		{"/v1/get", `{"domain":"\ude00\ud83d"}`, "half of a surrogate pair"},
		{"/v1/get", `{"domain":7}`, "wrong: domain is a JSON number: want a string"},
		{"/v1/get", `{"domain":"shop"`, "unexpected EOF"},
		{"/v1/get", `{"domain":"shop"} {}`, "something follows the JSON object"},
		{"/v1/get", `{"domain":"shop","descriptors":[{"entries":[{"key":"user","valeu":"ann"}]}]}`, `unknown field "valeu"`},
		{"/v1/get", `{"domain":"shop","descriptor":[]}`, `unknown field "descriptor"`},
		{"/v1/get", `{"domain":"shop","descriptors":[{"user":"ann"}]}`, `unknown field "user"`},
		{"/v1/get", `{}`, "domain must not be empty"},
		{"/v1/get", `{"domain":"shop"}`, "descriptor list must not be empty"},
		{"/v1/get", "{\"domain\":\"\xff\"}", "UTF-8"},
		{"/v1/reset", `{"domain":"shop","descriptors":[{"entries":[{"key":"user","raw":"ann\\xff"}]}]}`, `raw or raw_key in base64`},
		{"/v1/explain", `{"domain":"shop","descriptors":[{"entries":[],"limit":{"requests_per_unit":1,"unit":"fortnight"}}]}`, "want one of second, minute"},
		{"/v1/reset", annsRequest + `,"rule":"shop.user"}`, "rule is set without all_matching"},
		{"/v1/reset", annsRequest + `,"rule":"shop.user","all_matching":true}`, "descriptors and all_matching are both set"},
		{"/v1/reset", `{"domain":"shop","all_matching":true}`, "want the rule's path"},
		{"/v1/reset", annsRequest + `,"reason":"` + strings.Repeat("x", 1025) + `"}`, "want at most 1024"},
	} {
		got := r.ask("POST", test.path, test.body, bearer(writeToken))
		if message, _ := got.json["message"].(string); got.code != 400 || got.json["code"] != "INVALID_ARGUMENT" || !strings.Contains(message, test.want) {
			t.Errorf("%s %s: got %d %s, want %s", test.path, test.body, got.code, got.text, test.want)
		}
	}
	large := r.ask("POST", "/v1/get", `{"domain":"`+strings.Repeat("x", 1<<20)+`"}`, bearer(writeToken))
	if large.code != 413 || large.json["code"] != "RESOURCE_EXHAUSTED" {
		t.Errorf("a body of 1 MiB: got %d %s", large.code, large.text)
	}
}

func TestQueries(t *testing.T) {
	r := start(t, listening{})
	const row = `"entries":null,"hits":3,"denied":0,"cost":0,"rate":0,"error":0,"key":"","limit":""}],"total":{"hits":0,"denied":0,"cost":0}}`
	for path, want := range map[string]string{
		"/v1/top":                            `{"by":"denied","window":"60s","error":20,"rows":[{"domain":"","rule":"",` + row,
		"/v1/top?by=hits&rule=shop.user&n=":  `{"by":"hits","window":"60s","error":20,"rows":[{"domain":"","rule":"shop.user",` + row,
		"/v1/top?n=7":                        `{"by":"denied","window":"60s","error":7,"rows":[{"domain":"","rule":"",` + row,
		"/v1/rules":                          `{"rules":[{"rule":", 1000 after 0"}]}`,
		"/v1/rules?n=5&q=per+day&offset=100": `{"rules":[{"rule":"per day, 5 after 100"}]}`,
	} {
		if got := r.ask("GET", path, "", bearer(readToken)); got.code != 200 || got.text != want+"\n" {
			t.Errorf("%s: got %d %s", path, got.code, got.text)
		}
	}
	for path, want := range map[string]string{
		"/v1/top?by=size": "want denied, hits or cost", "/v1/status?range=2h": "want 15m, 1h or 6h", "/v1/top?n=0x": "whole number", "/v1/top?n=-1": "want 1 to", "/v1/top?nn=1": `unknown name "nn"`,
		"/v1/top?n=%zz": "query is wrong", "/v1/rules?n=1001": "want 1 to 1000", "/v1/rules?offset=-1": "want at least 0",
	} {
		got := r.ask("GET", path, "", bearer(readToken))
		if message, _ := got.json["message"].(string); got.code != 400 || !strings.Contains(message, want) {
			t.Errorf("%s: got %d %s, want %s", path, got.code, got.text, want)
		}
	}
}

func TestWithoutHeavyHitters(t *testing.T) {
	r := start(t, listening{change: func(o *admin.Options) { o.Top = nil }})
	if got := r.ask("GET", "/v1/top", "", bearer(readToken)); got.code != 501 || !strings.Contains(got.text, "TOP_KEYS=0") {
		t.Errorf("got %d %s", got.code, got.text)
	}
}

// A panic is an error without details, and the process goes on.
func TestPanic(t *testing.T) {
	r := start(t, listening{change: func(o *admin.Options) { o.Top = broken{} }})
	got := r.ask("GET", "/v1/top", "", bearer(readToken))
	if got.code != 500 || got.json["code"] != "INTERNAL" || strings.Contains(got.text, "kaput") || strings.Contains(got.text, "goroutine") {
		t.Errorf("got %d %s", got.code, got.text)
	}
	if !strings.Contains(r.log.String(), "kaput") {
		t.Errorf("the log has no panic: %s", r.log)
	}
}

type broken struct{}

func (broken) Table(top.Query) top.Table                              { panic("kaput") }
func (broken) Override(string, []descriptors.Entry) *explain.Override { return nil }

// The audit keeps the last 1,000 changes.
func TestAuditIsBounded(t *testing.T) {
	r := start(t, listening{})
	for i := range 1003 {
		r.ask("POST", "/v1/reset", annsRequest+`,"reason":"`+strconv.Itoa(i)+`"}`, bearer(writeToken))
	}
	for query, want := range map[string][3]any{"": {1000, "1002", "3"}, "?n=5000": {1000, "1002", "3"}, "?n=2": {2, "1002", "1001"}} {
		entries := r.ask("GET", "/v1/audit"+query, "", bearer(readToken)).json["entries"].([]any)
		first, last := entries[0].(map[string]any)["reason"], entries[len(entries)-1].(map[string]any)["reason"]
		if got := [3]any{len(entries), first, last}; got != want {
			t.Errorf("%s: got %v, want %v", query, got, want)
		}
	}
}

const allOfUser = `{"domain":"shop","rule":"shop.user","all_matching":true,"reason":"a test"`

func TestResetOfAllMatching(t *testing.T) {
	r := start(t, listening{})
	for i := range 250 {
		r.charge(fmt.Sprint("user", i), 4)
	}
	r.chargeEntry("route", "/cart", 4)
	got := r.ask("POST", "/v1/reset", allOfUser+`,"dry_run":true}`, bearer(writeToken))
	if want := `{"dry_run":true,"matched":250,"changed":0}`; got.text != want+"\n" {
		t.Errorf("dry run: got %d %s, want %s", got.code, got.text, want)
	}
	if r.remaining("user7") != 6.0 {
		t.Error("the dry run has changed a cell")
	}
	got = r.ask("POST", "/v1/reset", allOfUser+"}", bearer(writeToken))
	if want := `{"dry_run":false,"matched":250,"changed":250}`; got.text != want+"\n" {
		t.Errorf("got %d %s, want %s", got.code, got.text, want)
	}
	if r.remaining("user7") != 10.0 || r.remaining("user249") != 10.0 {
		t.Error("a cell was not reset")
	}
	route := r.ask("POST", "/v1/get", `{"domain":"shop","descriptors":[{"entries":[{"key":"route","value":"/cart"}]}]}`, bearer(readToken))
	if !strings.Contains(route.text, `"count":4,`) {
		t.Errorf("the cell of another rule has changed: %s", route.text)
	}
	if entry := r.lastAudited(); entry["rule"] != "shop.user" || entry["changed"] != 250.0 || entry["key"] != "" || entry["reason"] != "a test" {
		t.Errorf("audit: %v", entry)
	}
}

func TestResetOfAllMatchingAsStream(t *testing.T) {
	r := start(t, listening{})
	r.charge("ann", 4)
	got := r.ask("POST", "/v1/reset", allOfUser+"}", bearer(writeToken), with("Accept", "text/event-stream"))
	if want := `data: {"scanned":1,"matched":1,"changed":1,"done":{"dry_run":false,"matched":1,"changed":1}}` + "\n\n"; got.text != want {
		t.Errorf("got %s, want %s", got.text, want)
	}
}

func TestResetOfAllMatchingThatCannotBe(t *testing.T) {
	plain := start(t, listening{change: func(o *admin.Options) { o.Limits = newLimits(t, struct{ backends.Store }{newStore(t)}, rules) }})
	got := plain.ask("POST", "/v1/reset", allOfUser+"}", bearer(writeToken))
	if message, _ := got.json["message"].(string); got.code != 501 || !strings.Contains(message, "cannot scan") {
		t.Errorf("a store that cannot scan: got %d %s", got.code, got.text)
	}
	r := start(t, listening{})
	for body, want := range map[string]int{
		strings.Replace(allOfUser, "shop.user", "shop.nobody", 1): 404,
		strings.Replace(allOfUser, `"shop"`, `"shopping"`, 1):     404,
		strings.Replace(allOfUser, "shop.user", "shop.vip", 1):    400, // unlimited
		strings.Replace(allOfUser, `"all_matching":true,`, "", 1): 400,
	} {
		for _, accept := range []string{"*/*", "text/event-stream"} {
			if got := r.ask("POST", "/v1/reset", body+"}", bearer(writeToken), with("Accept", accept)); got.code != want || got.json["message"] == nil {
				t.Errorf("%s: got %d %s, want %d", body, got.code, got.text, want)
			}
		}
	}
	if got := r.ask("POST", "/v1/reset", annsRequest+"}", bearer(writeToken), with("Accept", "text/event-stream")); got.code != 400 {
		t.Errorf("descriptors: got %d %s", got.code, got.text)
	}
}
