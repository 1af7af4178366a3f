package admin_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/grants"
	"example.org/rls/pkg/top"
)

const (
	boundToken = "bound-token-of-acme"
	boundLine  = "acme read " + boundToken + " domain:shop tenant=acme\n"
)

const tenantRules = `domain: shop
pools: {common: {unit: minute, requests_per_unit: 100}}
descriptors:
- key: tenant
  value: beta
  descriptors: [{key: secret_route, rate_limit: {unit: minute, requests_per_unit: 10}}]
- key: tenant
  rate_limit: {unit: minute, requests_per_unit: 10}
  descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 10, borrow_from: common}}
  - {key: tenant, rate_limit: {unit: minute, requests_per_unit: 10}}
- key: plan
  descriptors: [{key: tenant, value: a*, share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 10}}]
- key: net
  descriptors: [{key: tenant, mask: {ipv4: 24}, rate_limit: {unit: minute, requests_per_unit: 10}}]
- key: folded
  descriptors: [{key: tenant, match: {values: [acme], ignore_case: true}, rate_limit: {unit: minute, requests_per_unit: 10}}]
- {key: user, rate_limit: {unit: minute, requests_per_unit: 10}}
---
domain: other
descriptors:
- {key: tenant, rate_limit: {unit: minute, requests_per_unit: 10}}
`

// tenants has an API with the rules of tenants, and a memory of what they ask.
func tenants(t *testing.T) func(*admin.Options) {
	return func(o *admin.Options) {
		seen := top.New(top.Options{Keys: 100, StoredKey: strings.Clone})
		o.Limits, o.Top, o.Memories = newLimits(t, newStore(t), tenantRules, seen), seen, []admin.Memory{seen}
	}
}

func startTenants(t *testing.T) *rig {
	r := start(t, listening{change: tenants(t)})
	r.bind()
	return r
}

// bind has the file of tokens name the bound token, and waits until it counts.
func (r *rig) bind() {
	r.t.Helper()
	r.writeTokens(tokenFile + boundLine)
	testenv.Eventually(r.t, 20*time.Second, func() bool { return r.ask("GET", "/v1/status", "", bearer(boundToken)).code == 403 }, "the token counts")
	for _, value := range []string{"acme", "beta", "ACME", "acm", "acme|x", "acme%"} {
		r.chargeEntries("shop", 3, "tenant", value)
		r.chargeEntries("shop", 2, "tenant", value, "user", "ann")
		r.chargeEntries("shop", 1, "plan", "x", "tenant", value)
		r.chargeEntries("other", 1, "tenant", value)
	}
	r.chargeEntries("shop", 1, "tenant", "beta", "secret_route", "acme")
	r.chargeEntries("shop", 1, "user", "acme")
}

func (r *rig) chargeEntries(domain string, hits uint32, pairs ...string) {
	r.t.Helper()
	var entries []descriptors.Entry
	for i := 0; i < len(pairs); i += 2 {
		entries = append(entries, descriptors.Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	ask := service.Request{Domain: domain, Hits: hits, Descriptors: []service.Descriptor{{Entries: entries}}}
	if _, err := r.limits.Evaluate(r.t.Context(), &ask); err != nil {
		r.t.Fatal(err)
	}
}

// patiently asks again while the token asks too often.
func (r *rig) patiently(method, path, body string, headers ...header) (a answered) {
	r.t.Helper()
	testenv.Eventually(r.t, 20*time.Second, func() bool {
		a = r.ask(method, path, body, append(headers, bearer(boundToken))...)
		return a.code != http.StatusTooManyRequests
	}, "the token may ask")
	return a
}

// ofOthers is what no answer for acme may have.
var ofOthers = regexp.MustCompile(`beta|ACME|"acm"|acme\|x|acme%|rules\.yaml|secret_route|"places":\[\{|"pool":|suggestions|other\.`)

// TestBoundTokenOnEveryRoute: a bound token may ask the routes of this table, and is refused all others. A new
// route fails until the table says which it is.
func TestBoundTokenOnEveryRoute(t *testing.T) {
	t.Parallel()
	r := startTenants(t)
	may := map[string]string{ // with a question that it may ask
		"GET /v1/find": "?q=acme", "GET /v1/why": "?q=acme", "GET /v1/usage": "?rule=shop.tenant.user",
		"POST /v1/explain": `{"domain":"shop","descriptors":[{"entries":[{"key":"tenant","value":"acme"}]}],"rlqs":true}`,
		"POST /v1/get":     `{"domain":"shop","descriptors":[{"entries":[{"key":"tenant","value":"acme"}]}]}`,
	}
	refused := []string{
		"GET /v1/status", "GET /v1/rules", "GET /v1/top", "GET /v1/audit", "GET /v1/history", "GET /v1/grants", "GET /v1/denials",
		"GET /v1/events", "POST /v1/reset", "POST /v1/grant", "POST /v1/revoke", "POST /v1/forget",
	}
	source, err := os.ReadFile("routes.go")
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string]string{"usagePath": "/v1/usage", "forgetPath": "/v1/forget"}
	rows := regexp.MustCompile(`(?m)^\t\{http\.Method(\w+), (?:"([^"]+)"|(\w+)),`).FindAllStringSubmatch(string(source), -1)
	if len(rows) < 15 {
		t.Fatalf("%d routes are found", len(rows))
	}
	for _, row := range rows {
		name := strings.ToUpper(row[1]) + " " + row[2] + paths[row[3]]
		if _, is := may[name]; !is && !slices.Contains(refused, name) {
			t.Errorf("%s: decide whether a bound token may ask", name)
		}
	}
	all := slices.Clone(refused)
	for name := range may {
		all = append(all, name)
	}
	for _, name := range all {
		_, path, _ := strings.Cut(name, " ")
		for _, accept := range []string{"application/json", "text/event-stream"} {
			for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
				asks, is := may[method+" "+path]
				body := annsRequest + `,"hits":5}`
				if method == "POST" && is {
					body, asks = asks, ""
				}
				got := r.patiently(method, path+asks, body, with("Accept", accept))
				_, head := may["GET "+path]
				switch {
				case is, method == "HEAD" && head:
					if method != "HEAD" && got.code != 200 {
						t.Errorf("%s %s: got %d %s", method, path, got.code, got.text)
					}
				case got.code != 403 && got.code != 405:
					t.Errorf("%s %s (%s): got %d %s", method, path, accept, got.code, got.text)
				case method+" "+path == name && (got.code != 403 || got.json["bound"] != "domain:shop tenant=acme" || !strings.Contains(got.text, "and nothing else")):
					t.Errorf("%s: got %d %s", name, got.code, got.text)
				}
				if ofOthers.MatchString(got.text) {
					t.Errorf("%s %s tells of others: %s", method, path, got.text)
				}
			}
		}
	}
	if got := r.ask("GET", "/v1/audit", "", bearer(readToken)); got.text != `{"entries":[]}`+"\n" {
		t.Errorf("a bound token has changed something: %s", got.text)
	}
}

// TestBoundTokenAboutOthers: the descriptors of others, in every disguise, are refused by get and explain, and nothing
// of them is told.
func TestBoundTokenAboutOthers(t *testing.T) {
	t.Parallel()
	r := startTenants(t)
	const mine = `{"key":"tenant","value":"acme"}`
	one := func(entries string) string { return `"descriptors":[{"entries":[` + entries + `]}]` }
	for name, c := range map[string]struct {
		body string
		code int
	}{
		"its own":                      {`{"domain":"shop",` + one(mine) + `}`, 200},
		"its own user":                 {`{"domain":"shop",` + one(mine+`,{"key":"user","value":"ann"}`) + `}`, 200},
		"its own in base64":            {`{"domain":"shop",` + one(`{"key":"tenant","raw":"YWNtZQ=="}`) + `}`, 200},
		"its own, escaped in JSON":     {`{"domain":"shop",` + one(`{"key":"\u0074enant","value":"\u0061cme"}`) + `}`, 200},
		"its own with a limit":         {`{"domain":"shop","descriptors":[{"entries":[` + mine + `],"limit":{"requests_per_unit":5,"unit":"HOUR"}}]}`, 200},
		"its own, twice":               {`{"domain":"shop",` + one(mine+`,`+mine) + `}`, 200},
		"another":                      {`{"domain":"shop",` + one(`{"key":"tenant","value":"beta"}`) + `}`, 403},
		"another in base64":            {`{"domain":"shop",` + one(`{"key":"tenant","raw":"YmV0YQ=="}`) + `}`, 403},
		"another beside its own":       {`{"domain":"shop",` + one(mine+`,{"key":"tenant","value":"beta"}`) + `}`, 403},
		"another before its own":       {`{"domain":"shop",` + one(`{"key":"tenant","value":"beta"},`+mine) + `}`, 403},
		"another behind its own":       {`{"domain":"shop","descriptors":[{"entries":[` + mine + `]},{"entries":[{"key":"tenant","value":"beta"}]}]}`, 403},
		"the value in another case":    {`{"domain":"shop",` + one(`{"key":"tenant","value":"ACME"}`) + `}`, 403},
		"the key in another case":      {`{"domain":"shop",` + one(`{"key":"TENANT","value":"acme"}`) + `}`, 403},
		"a space behind the value":     {`{"domain":"shop",` + one(`{"key":"tenant","value":"acme "}`) + `}`, 403},
		"a NUL behind the value":       {`{"domain":"shop",` + one(`{"key":"tenant","value":"acme\u0000"}`) + `}`, 403},
		"the value, escaped":           {`{"domain":"shop",` + one(`{"key":"tenant","value":"%61cme"}`) + `}`, 403},
		"no value":                     {`{"domain":"shop",` + one(`{"key":"tenant","value":""}`) + `}`, 403},
		"no such key":                  {`{"domain":"shop",` + one(`{"key":"user","value":"acme"}`) + `}`, 403},
		"the key as a value":           {`{"domain":"shop",` + one(`{"key":"user","value":"tenant=acme"}`) + `}`, 403},
		"a pattern":                    {`{"domain":"shop",` + one(`{"key":"tenant","value":"a*"}`) + `}`, 403},
		"no entries":                   {`{"domain":"shop",` + one("") + `}`, 403},
		"another domain":               {`{"domain":"other",` + one(mine) + `}`, 403},
		"no domain":                    {`{"domain":"",` + one(mine) + `}`, 403},
		"a counter of all of a*":       {`{"domain":"shop",` + one(`{"key":"plan","value":"x"},`+mine) + `}`, 403},
		"a counter of networks":        {`{"domain":"shop",` + one(`{"key":"net","value":"x"},`+mine) + `}`, 403},
		"a match that folds, its name": {`{"domain":"shop",` + one(`{"key":"folded","value":"x"},{"key":"tenant","value":"Acme"}`) + `}`, 403},
		"a pool":                       {`{"domain":"shop","pool":"common"}`, 403},
		"a pool beside its own":        {`{"domain":"shop","pool":"common",` + one(mine) + `}`, 403},
		"its own, nothing limits":      {`{"domain":"shop",` + one(mine+`,{"key":"usr","value":"x"}`) + `}`, 404},
		"no descriptors":               {`{"domain":"shop","descriptors":[]}`, 400},
	} {
		for _, path := range []string{"/v1/get", "/v1/explain", "/v1/get?fleet=true"} {
			want := c.code
			if want == 404 && path == "/v1/explain" {
				want = 200 // it says that nothing limits it
			}
			got := r.patiently("POST", path, c.body)
			if got.code != want || want == 403 && got.json["bound"] == nil || ofOthers.MatchString(got.text) {
				t.Errorf("%s: %s: got %d %s, want %d", name, path, got.code, got.text, want)
			}
			if want == 200 && strings.Contains(got.text, `"path":[`) {
				t.Errorf("%s: %s tells its way through the rules: %s", name, path, got.text)
			}
		}
	}
}

// TestBoundTokenFindsItsOwn: others are left out before rows are counted, in a process and in a fleet whose replicas have
// other files.
func TestBoundTokenFindsItsOwn(t *testing.T) {
	t.Parallel()
	b := start(t, listening{change: tenants(t)})
	a := inFleet(t, listening{change: tenants(t)}, "127.0.0.1:OWN", b.addr())
	a.bind()
	b.bind()
	loose := tokenFile + "acme read " + boundToken + "\n" // the other replica has the token unbound
	for _, file := range []string{tokenFile + boundLine, loose} {
		b.writeTokens(file)
		want := 403
		if file == loose {
			want = 200
		}
		testenv.Eventually(t, 20*time.Second, func() bool { return b.ask("GET", "/v1/status", "", bearer(boundToken)).code == want }, "the file counts")
		for _, path := range []string{
			"/v1/why?q=acme", "/v1/why?q=a", "/v1/why?q=ann&since=1h", "/v1/why?q=bet",
			"/v1/find?q=acme&n=2", "/v1/find?q=a&n=100", "/v1/find?q=beta", "/v1/find?q=ann&n=1",
			"/v1/usage?rule=shop.tenant", "/v1/usage?rule=shop.tenant.user&n=1", "/v1/usage?rule=shop.tenant_beta.secret_route",
			"/v1/usage?rule=shop.plan.tenant_a*", "/v1/usage?rule=other.tenant", "/v1/usage?rule=nobody",
		} {
			for _, fleet := range []string{"false", "true"} {
				got := a.patiently("GET", path+"&fleet="+fleet, "")
				if got.code != 200 || ofOthers.MatchString(got.text) {
					t.Errorf("%s, fleet %s: got %d %s", path, fleet, got.code, got.text)
				}
				var d struct {
					Keys, Rows []struct{ Entries []map[string]string }
					Hidden     int
				}
				_ = json.Unmarshal([]byte(got.text), &d)
				if path == "/v1/why?q=acme" && !strings.Contains(got.text, `"limits":[{`) {
					t.Errorf("%s, fleet %s: got no limits: %s", path, fleet, got.text)
				}
				rows := len(d.Keys) + len(d.Rows)
				wanted := map[string]int{"/v1/find?q=acme&n=2": 2, "/v1/find?q=a&n=100": 2, "/v1/find?q=ann&n=1": 1, "/v1/usage?rule=shop.tenant": 1, "/v1/usage?rule=shop.tenant.user&n=1": 1}[path]
				if file != loose && fleet == "false" && rows != wanted {
					t.Errorf("%s, fleet %s: %d rows, want %d: %s", path, fleet, rows, wanted, got.text)
				}
			}
		}
	}
}

// A file with a wrong binding adds nobody and unbinds nobody, and a token that is bound in one of two
// files is bound while the newer one is wrong.
func TestBindingsAreReadAgain(t *testing.T) {
	t.Parallel()
	r := startTenants(t)
	body := func(tenant string) string {
		return `{"domain":"shop","descriptors":[{"entries":[{"key":"tenant","value":"` + tenant + `"}]}]}`
	}
	for _, c := range []struct {
		line        string
		acme, gamma int
	}{
		{boundLine, 200, 403},
		{"acme read " + boundToken + " tenant\n", 401, 401},                                  // the line is wrong
		{boundLine, 200, 403},                                                                // right again
		{"acme read " + boundToken + "\nx\n", 200, 403},                                      // another line is wrong: it stays bound
		{boundLine, 200, 403},                                                                //
		{"acme read " + boundToken + " domain:shop tenant=gamma\nx\n", 401, 401},             // neither the one nor the other
		{"acme read " + boundToken + " domain:shop tenant=gamma\n", 403, 200},                //
		{"acme read " + boundToken + "\n", 200, 200},                                         // it is unbound by a right file
		{"acme read " + boundToken + " domain:shop tenant=acme\nmallory read x\n", 200, 403}, // bound at once
	} {
		r.writeTokens(tokenFile + c.line)
		testenv.Eventually(t, 20*time.Second, func() bool {
			acme, gamma := r.patiently("POST", "/v1/get", body("acme")), r.patiently("POST", "/v1/get", body("gamma"))
			return acme.code == c.acme && gamma.code == c.gamma
		}, fmt.Sprintf("%q counts", c.line))
	}
}

// A bound token may ask ten times at once, and then ten times a second.
func TestBoundTokenIsPaced(t *testing.T) {
	t.Parallel()
	r := startTenants(t)
	refused, passed := answered{}, 0
	testenv.Eventually(t, 20*time.Second, func() bool {
		begun := time.Now()
		passed = 0
		for range 40 {
			if got := r.ask("GET", "/v1/find?q=acme", "", bearer(boundToken)); got.code == 429 {
				refused = got
			} else {
				passed++
			}
		}
		if most := 11 + int(time.Since(begun)/(time.Second/10)); passed > most {
			t.Errorf("%d calls passed within %v", passed, time.Since(begun))
		}
		return refused.code != 0
	}, "a call is refused")
	if refused.header.Get("Retry-After") != "1" || !strings.Contains(refused.text, "10 times a second") {
		t.Errorf("got %v %s", refused.header, refused.text)
	}
	if got := r.ask("GET", "/v1/find?q=acme", "", bearer(readToken)); got.code != 200 {
		t.Errorf("another token: got %d %s", got.code, got.text)
	}
}

// TestBoundTokenLearnsNoOperator: a bound token learns that its limit was raised and until when, and neither
// who did it nor why, by any route; an operator learns both, also afterwards.
func TestBoundTokenLearnsNoOperator(t *testing.T) {
	t.Parallel()
	r := start(t, listening{change: func(o *admin.Options) {
		store := newStore(t)
		seen := top.New(top.Options{Keys: 100, StoredKey: strings.Clone})
		limits := newLimits(t, store, tenantRules, seen)
		limits.Keep(grants.NewKeeper(grants.Options{
			Store: store.(backends.Notes), Name: "grants", Log: slog.New(slog.DiscardHandler),
			Changed: func(m *descriptors.Grants, _ []*descriptors.Grant) { limits.SetGrants(m) },
		}))
		o.Limits, o.Top, o.Memories = limits, seen, []admin.Memory{seen}
	}})
	r.bind()
	const acme = `{"domain":"shop","descriptors":[{"entries":[{"key":"tenant","value":"acme"}]}]`
	if got := r.ask("POST", "/v1/grant", acme+`,"hits":5,"for":"1h","reason":"ticket of mallory"}`, bearer(writeToken)); got.code != 200 {
		t.Fatalf("got %d %s", got.code, got.text)
	}
	for _, ask := range [][3]string{
		{"POST", "/v1/explain", acme + "}"}, {"POST", "/v1/get", acme + "}"}, {"GET", "/v1/find?q=acme", ""}, {"GET", "/v1/why?q=acme", ""},
	} {
		if got := r.patiently(ask[0], ask[1], ask[2]); got.code != 200 || !strings.Contains(got.text, `"until":"`) || regexp.MustCompile("alice|mallory").MatchString(got.text) {
			t.Errorf("%s: got %d %s", ask[1], got.code, got.text)
		}
		if got := r.ask(ask[0], ask[1], ask[2], bearer(readToken)); !strings.Contains(got.text, `"who":"alice"`) || !strings.Contains(got.text, "mallory") {
			t.Errorf("%s of an operator: got %s", ask[1], got.text)
		}
	}
}

// TestBoundUsageOfOneStore: of replicas with one store each limit of a counter is told once, also two without names.
func TestBoundUsageOfOneStore(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	shared := listening{change: func(o *admin.Options) {
		seen := top.New(top.Options{Keys: 100, StoredKey: strings.Clone})
		o.Limits = limitsOf(t, service.Config{Store: store, Observers: []service.Observer{seen}, Local: true}, `domain: shop
descriptors:
  - {key: tenant, rate_limits: [{unit: minute, requests_per_unit: 10}, {unit: day, requests_per_unit: 2000}]}
`)
		o.Top, o.Memories = seen, []admin.Memory{seen}
	}}
	b := start(t, shared)
	a := inFleet(t, shared, "127.0.0.1:OWN", b.addr())
	a.bind()
	b.bind()
	for _, fleet := range []string{"false", "true"} {
		got := a.patiently("GET", "/v1/usage?rule=shop.tenant&fleet="+fleet, "")
		if n := strings.Count(got.text, `"value":"acme"`); n != 2 || !strings.Contains(got.text, `"limit":2000,`) {
			t.Errorf("fleet %s: got %d %s", fleet, got.code, got.text)
		}
	}
}
