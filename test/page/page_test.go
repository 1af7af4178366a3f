package page_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
)

func TestSignIn(t *testing.T) {
	p := open(t, serve(t).url+"/")
	p.waits(labelled("Token") + `?.matches("input[type=password]:focus")`)
	if title := js[string](p, "document.title"); !strings.Contains(title, "rls") {
		t.Errorf("title %q", title)
	}
	p.shot("form")
	p.signIn("wrong-token-0123456789")
	p.waits(`document.querySelector("[role=alert]")?.innerText.includes("does not take this token")`)
	p.shot("refused")
	p.signIn("not a token \u2603")
	p.waits(`document.querySelector("[role=alert]")?.innerText.includes("no special characters")`)
	if kept := js[int](p, "sessionStorage.length"); kept != 0 {
		t.Errorf("%d values are kept after wrong tokens", kept)
	}
	p.fill("Token", writeToken)
	p.click(named("button", "Sign in"))
	p.sees("All well", "Requests a second")
	if got := js[string](p, "JSON.stringify([Object.values(sessionStorage), localStorage.length, document.cookie, location.href.includes('token')])"); got != `[["`+writeToken+`"],0,"",false]` {
		t.Errorf("sessionStorage, localStorage, cookies and address: %s", got)
	}
	js[bool](p, "location.reload() || true")
	p.sees("Requests a second")
	p.click(named("button", "Sign out"))
	p.waits(labelled("Token"))
	if kept := js[int](p, "sessionStorage.length"); kept != 0 {
		t.Errorf("%d values are kept after the sign-out", kept)
	}
}

func TestNow(t *testing.T) {
	s := serve(t)
	p := s.signedIn("")
	s.hit(15, user("ann"))
	p.waits(`document.querySelector("[aria-label=Denied] .value").innerText > "0"`)
	p.sees("15 since", "All well", "memory, in this process", "3 rules")
	p.waits(`document.querySelectorAll("canvas").length === 2`)
	p.size(1280, 1200)
	p.shot("light")

	s.write(strings.Replace(rules, "requests_per_unit: 10,", "requests_per_unit: ten,", 1))
	p.sees("Attention", "The newest rules were refused", "shop.yaml:8:")
	p.waits(`document.querySelector(".pill").innerText === "Warning"`)
	p.shot("refused")
	s.write(rules)
	p.waits(`document.querySelector(".pill").innerText === "All well"`)
	p.waits(`!document.body.innerText.includes("refused")`)
}

// The page says which server is away, and that policies decide in its place.
func TestStoreAway(t *testing.T) {
	redis := testenv.Redis(t)
	s := serve(t, "BACKEND_TYPE=redis", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis.Addr, "REPLICAS=2")
	p := s.signedIn("#now")
	s.hit(1, user("ann"))
	p.sees("redis, 1 server", redis.Addr)
	p.waits(`document.querySelector("[aria-label=Replicas] .value").innerText === "2"`)
	redis.Kill()
	testenv.Eventually(t, patience, func() bool {
		s.hit(5, user("ann"))
		return js[string](p, `document.querySelector(".pill").innerText`) == "Critical"
	}, "the page says Critical")
	p.sees("Action needed", "The store is away", redis.Addr+" is away")
	p.waits(`document.querySelector("[aria-label=Errors]").dataset.state === "red"`)
	p.shot("critical")
	redis.Restart()
	testenv.Eventually(t, patience, func() bool {
		s.hit(1, user("ann"))
		return js[string](p, `document.querySelector("[aria-label=Store] .value").innerText`) == "ok"
	}, "the page says that the store is back")
}

func TestRules(t *testing.T) {
	s := serve(t)
	s.hit(20, user("ann"))
	p := s.signedIn("#rules")
	rows := `[...document.querySelectorAll("[data-testid=rule]")].map(r => r.innerText.replaceAll(/\s+/g, " "))`
	p.waits(rows + ".length === 3")
	p.sees("10 per hour, fixed window, from the first hit, per user", "1000 per day, fixed window, per user", "100 per second, gcra, per plan and user", "shadow: denies nothing", "shop.yaml:6")
	p.waits(rows + `[0].includes("50 %")`) // denied
	p.waits(`document.querySelectorAll("[data-testid=rule] svg[role=img]").length === 1`)
	s.hit(5, []entry{{"banner", "x"}})
	p.waits(rows + `[2].match(/[1-9.]\/s/)`)
	p.shot("all")

	p.fill("Search", "gcra plan_*")
	p.waits(rows + ".length === 1")
	p.sees("1 of 3 rules")
	p.fill("Search", "nothing like this")
	p.sees("No rule matches the search.")
	p.fill("Search", "daily")
	p.waits(rows + `.join() && ` + rows + `[0].includes("shop.plan_free.user")`)

	s.write(strings.Replace(rules, "requests_per_unit: 10,", "requests_per_unit: 11,", 1))
	p.sees("11 per hour")
}

func TestWhy(t *testing.T) {
	s := serve(t)
	s.hit(7, user("ann"))
	p := s.signedIn("#why")
	p.fill("Domain", "shop")
	p.fill("Descriptor", "plan=free,user=ann")
	p.press("\r")
	p.waits(`document.querySelectorAll("[data-testid=path-step]").length === 3`)
	if won := js[string](p, `[...document.querySelectorAll("[data-testid=path-step][data-won=true]")].map(s => s.querySelector(".key").innerText).join()`); won != "plan=free,user" {
		t.Errorf("won: %s", won)
	}
	limit := `document.querySelector("[data-testid=limit]").innerText`
	p.waits(limit + `.includes("10 per hour")`)
	p.waits(`/count 7\s+remaining 3\s+reset in 59 min \d+ s/.test(` + limit + `)`)
	if at := js[string](p, "location.hash"); at != "#why?domain=shop&descriptor=plan%3Dfree%2Cuser%3Dann" {
		t.Errorf("address %s", at)
	}
	before := js[string](p, `document.querySelector(".countdown").innerText`)
	p.waits(`document.querySelector(".countdown").innerText !== ` + quote(before)) // it ticks
	p.shot("explained")
	s.hit(1, user("ann"))
	p.waits(limit + `.includes("count 8")`) // by itself

	p.fill("Hits", "5")
	p.fill("Reason", "ticket 4711")
	p.click(named("button", "Grant"))
	p.waits(`document.querySelector("[role=dialog]")?.innerText.includes("Grant 5 hits more?")`)
	p.waits(`document.querySelector("[role=dialog]").innerText.includes("2 → 7")`)
	p.shot("question")
	p.press("\x1b") // Escape
	p.waits(`!document.querySelector("[role=dialog]")`)
	p.click(named("button", "Grant"))
	p.click(named("[role=dialog] button", "Cancel"))
	p.waits(`!document.querySelector("[role=dialog]")`)
	p.waits(limit + `.includes("remaining 2")`)
	p.click(named("button", "Grant"))
	p.click(named("[role=dialog] button", "Confirm"))
	p.sees("Granted: 2 counters changed.")
	p.waits(limit + `.includes("remaining 7")`)

	p.click(named("button", "Reset"))
	p.waits(`document.querySelector("[role=dialog]")?.innerText.includes("3 → 0")`)
	p.click(named("[role=dialog] button", "Confirm"))
	p.sees("Reset: 2 counters changed.")
	p.waits(`/count 0\s+remaining 10/.test(` + limit + `)`)

	p.fill("Hits", "1001")
	p.click(named("button", "Grant"))
	p.click(named("[role=dialog] button", "Confirm"))
	p.waits(`[...document.querySelectorAll("[role=alert]")].some(a => a.innerText.includes("at most"))`)

	p.view("Audit")
	p.waits(`document.querySelectorAll("[data-testid=audit-row]").length === 4`)
	p.waits(`document.querySelector("[data-testid=audit-row]").innerText.includes("reset")`)
	p.sees("alice", "ticket 4711", "shop.plan_free.user")
	p.shot("audit")
}

func TestWhyNothingMatches(t *testing.T) {
	p := serve(t).signedIn("#why?domain=shop&descriptor=plan%3Dfree")
	p.sees("one entry too few")
	p.shot("too-few")
	p.fill("Domain", "shopp")
	p.click(named("button", "Explain"))
	p.sees("no rules for domain shopp")
	p.waits(`!` + named("button", "Reset"))
	p.fill("Descriptor", "=x")
	p.click(named("button", "Explain"))
	p.waits(`document.querySelector("[role=alert]:not([hidden])")?.innerText.includes("empty key")`)
	p.click(named("button", "Add a descriptor"))
	p.fill("Domain", "shop")
	p.fill("Descriptor", "banner=a")
	p.fill("Descriptor 2", `[{"key": "plan", "value": "a,b=c"}, {"key": "user", "value": "x"}]`)
	p.press("\r")
	p.waits(`document.querySelectorAll("[data-testid=limit]").length === 2`)
}

// A token that may only read is not offered changes.
func TestReadToken(t *testing.T) {
	s := serve(t)
	s.hit(1, user("ann"))
	p := open(t, s.url+"/#why?domain=shop&descriptor=plan%3Dfree%2Cuser%3Dann")
	p.signIn(readToken)
	p.sees("remaining", "Your token may read only")
	if !js[bool](p, named("button", "Reset")+".disabled && "+named("button", "Grant")+".disabled") {
		t.Error("Reset or Grant can be pressed")
	}
	p.shot("disabled")
}

// tops is an answer of /v1/top with these users.
func tops(users ...string) *[]byte {
	type row struct {
		Domain  string  `json:"domain"`
		Rule    string  `json:"rule"`
		Entries []entry `json:"entries"`
		Hits    int     `json:"hits"`
		Denied  int     `json:"denied"`
		Cost    int     `json:"cost"`
		Rate    float64 `json:"rate"`
	}
	var rows []row
	for i, name := range users {
		rows = append(rows, row{"shop", "shop.plan_free.user", user(name), 4000 / (i + 1), 1000 / (i + 1), 4000, 66.7})
	}
	text, err := json.Marshal(map[string]any{"by": "denied", "window": "60s", "error": 12, "rows": rows, "total": map[string]int{"hits": 12345, "denied": 3456, "cost": 12345}})
	if err != nil {
		panic(err)
	}
	return &text
}

func TestTop(t *testing.T) {
	s := serve(t)
	s.hit(1, user("ann"))
	s.tops.Store(tops("hottest", "ann"))
	p := s.signedIn("#top")
	p.waits(`document.querySelectorAll("[data-testid=top-row]").length === 2`)
	p.sees("user=hottest", "12,345 hits, 3,456 denied", "at most 12 too high", "66.7/s", "25 %")
	p.shot("rows")
	// The order changes below the pointer, and the focus stays.
	js[bool](p, `document.querySelector("[data-testid=top-row]:nth-child(2) a").focus() || true`)
	s.tops.Store(tops("ann", "hottest"))
	p.waits(`document.querySelector("[data-testid=top-row]").innerText.includes("user=ann")`)
	p.waits(`document.activeElement.innerText.includes("user=ann")`)
	p.press("\r")
	p.waits(labelled("Domain") + `?.value === "shop"`)
	p.waits(labelled("Descriptor") + `.value === "plan=free,user=ann"`)
	p.waits(`document.querySelector("[data-testid=limit]")?.innerText.includes("count 1")`)
}

// The rows are those of the traffic, and Rules leads to those of a rule.
func TestTopOfTraffic(t *testing.T) {
	s := serve(t)
	s.hit(30, user("hottest"))
	s.hit(11, user("ann"))
	s.hit(3, []entry{{"banner", "<i>x"}})
	p := s.signedIn("#top")
	row := `[...document.querySelectorAll("[data-testid=top-row]")].map(r => r.innerText.replaceAll(/\s+/g, " "))`
	p.waits(row + `[0]?.startsWith("plan=free, user=hottest shop.plan_free.user ")`)
	p.waits(row + `[1].includes("user=ann")`)
	p.view("Rules")
	p.click(`document.querySelector("[aria-label='Top of shop.plan_free.user']")`)
	p.waits(row + `.length === 2`)
	p.waits(labelled("Rule") + `.value === "shop.plan_free.user"`)
	js[string](p, `location.hash = "#top?rule=shop.banner"`)
	p.sees("Nobody was denied.") // the rule is in shadow mode
	js[bool](p, `(document.getElementById("by").value = "cost", document.getElementById("by").dispatchEvent(new Event("change")), true)`)
	p.fill("Rule", "")
	p.press("\r")
	p.waits(row + `.length === 3 && location.hash === "#top?by=cost"`)
	p.shot("cost")
}

// Texts of callers are only ever text.
func TestHostileTexts(t *testing.T) {
	s := serve(t)
	script := `<script>document.title = "owned"</script><img src=x onerror='document.title="owned"'>`
	control := "\x00\x1b[31m\x07\r\n\u202egnp,=[{"
	long := strings.Repeat("<b>long", 8<<10/7)
	s.tops.Store(tops(script, control, long, "nice"))
	for _, text := range []string{script, control, long} {
		s.hit(1, user(text))
	}
	p := s.signedIn("#top")
	p.waits(`document.querySelectorAll("[data-testid=top-row]").length === 4`)
	p.shot("top")
	harmless := func() {
		t.Helper()
		if js[bool](p, `document.title.includes("owned") || document.querySelector("main script, main b b, main img") !== null`) {
			t.Fatal("a text became HTML")
		}
		if wide := js[int](p, "document.documentElement.scrollWidth"); wide > 1280 {
			t.Errorf("the page is %d wide", wide)
		}
	}
	harmless()
	p.sees(script, `\u0000\u001b[31m\u0007\u000d\u000a\u202egnp,=[{`, "user=nice")
	for i, text := range []string{script, control, long} {
		p.view("Top")
		p.click(fmt.Sprintf(`document.querySelectorAll("[data-testid=top-row] a")[%d]`, i))
		p.waits(`document.querySelector("[data-testid=limit]")?.innerText.includes("count 1")`)
		if got := js[string](p, labelled("Descriptor")+".value"); !strings.Contains(got, "plan") || len(got) < len(text) {
			t.Errorf("the field has %.100q", got)
		}
		harmless()
		p.fill("Reason", script)
		p.click(named("button", "Reset"))
		p.click(named("[role=dialog] button", "Confirm"))
		p.sees("counters changed")
		harmless()
	}
	p.shot("why")
	p.view("Audit")
	p.waits(`document.querySelectorAll("[data-testid=audit-row]").length === 6`)
	p.sees(script)
	harmless()
	p.shot("audit")
	p.size(400, 800)
	if wide := js[int](p, "document.documentElement.scrollWidth"); wide > 400 {
		t.Errorf("the page is %d wide", wide)
	}
}

// Every view fits on 400 pixels, has one h1, and nothing too small to press.
func TestNarrowAndDark(t *testing.T) {
	s := serve(t)
	s.hit(12, user("ann"))
	s.tops.Store(tops("ann", "bob"))
	p := s.signedIn("#why?domain=shop&descriptor=plan%3Dfree%2Cuser%3Dann")
	p.size(400, 800)
	for _, scheme := range []string{"light", "dark"} {
		p.scheme(scheme)
		for _, view := range []string{"Now", "Rules", "Top", "Why", "Audit"} {
			p.view(view)
			p.waits(`[...document.querySelectorAll("h1")].filter(h => h.checkVisibility()).map(h => h.innerText).join() === ` + quote(view))
			if view == "Rules" || view == "Top" {
				p.waits(`document.querySelector("tbody tr")`)
			}
			if got := js[string](p, `[document.title.includes("rls"), document.querySelectorAll("main").length, document.documentElement.scrollWidth <= 400].join()`); got != "true,1,true" {
				t.Errorf("%s, %s: title, main and width: %s", view, scheme, got)
			}
			if small := js[string](p, `[...document.querySelectorAll("button, nav a, input, select")].filter(b => b.checkVisibility()).filter(b => b.getBoundingClientRect().height < 24).map(b => b.outerHTML).join()`); small != "" {
				t.Errorf("%s: too small: %s", view, small)
			}
			p.shot(view + "-" + scheme)
		}
	}
	dark := js[string](p, "getComputedStyle(document.body).backgroundColor")
	p.scheme("light")
	if light := js[string](p, "getComputedStyle(document.body).backgroundColor"); light == dark {
		t.Errorf("the background is %s in light and dark", light)
	}
}

// Without a mouse: the links, a form and the question.
func TestKeyboard(t *testing.T) {
	s := serve(t)
	p := s.signedIn("#now")
	p.sees("All well")
	js[bool](p, "document.activeElement.blur() || true")
	reach := func(what, element string) {
		t.Helper()
		for range 30 {
			p.press("\t")
			if js[bool](p, "Boolean(document.activeElement && ("+element+")(document.activeElement))") {
				return
			}
		}
		t.Fatalf("the tabulator does not reach %s", what)
	}
	reach("the link Why", `e => e.hash === "#why"`)
	p.press("\r")
	p.waits(labelled("Domain"))
	reach("Explain", `e => e.innerText === "Explain"`)
	p.press("\r")
	p.waits(`document.querySelector("[role=alert]:not([hidden])")?.innerText === "Enter a domain."`)
}

// When the server is away the page shows its state as old, and goes on by itself.
func TestStale(t *testing.T) {
	s := serve(t)
	p := s.signedIn("#now")
	p.sees("All well")
	s.away(true)
	p.sees("No news from the server for")
	p.waits(`document.querySelector(".pill").innerText === "No news" && document.body.hasAttribute("data-stale")`)
	p.shot("stale")
	p.view("Rules")
	p.waits(`document.querySelector("[role=alert]:not([hidden])")?.innerText === "The server does not answer."`)
	s.away(false)
	p.waits(`document.querySelector(".pill").innerText === "All well" && !document.body.hasAttribute("data-stale")`)
}

// A page that nobody sees holds no connection, because a browser opens only six to a
// server.
func TestHiddenPage(t *testing.T) {
	s := serve(t)
	p := s.signedIn("#now")
	p.sees("All well")
	testenv.Eventually(t, patience, func() bool { return s.streams.Load() == 1 }, "the page listens")
	hide := func(is bool) {
		js[bool](p, fmt.Sprintf(`(Object.defineProperty(document, "hidden", {value: %t, configurable: true}), document.dispatchEvent(new Event("visibilitychange")))`, is))
	}
	hide(true)
	testenv.Eventually(t, patience, func() bool { return s.streams.Load() == 0 }, "the hidden page listens no longer")
	hide(false)
	testenv.Eventually(t, patience, func() bool { return s.streams.Load() == 1 }, "the page listens again")
	s.hit(5, user("ann"))
	p.sees("5 since")
}

// Many open pages cost next to nothing, because each second is written once for all.
func TestHundredPages(t *testing.T) {
	s := serve(t)
	s.hit(50, user("ann"))
	events := make(chan int, 100)
	var opened sync.WaitGroup
	for range cap(events) {
		opened.Add(1)
		go func() { events <- s.listen(opened.Done, 5*time.Second) }()
	}
	opened.Wait()
	before, start := s.spent(), time.Now()
	for range cap(events) {
		if got := <-events; got < 4 {
			t.Errorf("a page got %d events in 5 s", got)
		}
	}
	if share := float64(s.spent()-before) / float64(time.Since(start)); share > 0.05 {
		t.Errorf("100 pages take %.1f %% of a processor, want at most 5 %%", 100*share)
	} else {
		t.Logf("100 pages take %.1f %% of a processor", 100*share)
	}
}
