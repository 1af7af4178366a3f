package page_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"example.org/rls/internal/testenv"
)

func TestNow(t *testing.T) {
	s := serve(t)
	p := s.signedIn("")
	s.hit(15, user("ann"))
	p.waits(`document.querySelector("[aria-label=Denied] .value").innerText > "0"`)
	p.sees("15 since", "All well", "Counters are in the memory of this process", "3 rules", "1, which counts alone")
	p.waits(`document.querySelectorAll("[aria-label=Figures] .tile svg[aria-label^='The last 15 minutes: at most ']").length === 4`)
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
	p.sees(redis.Addr + " answers")
	p.waits(`document.querySelector("[aria-label=Replicas] dd").innerText === "2"`)
	redis.Kill()
	testenv.Eventually(t, patience, func() bool {
		s.hit(5, user("ann"))
		return js[string](p, `document.querySelector(".pill").innerText`) == "Critical"
	}, "the page says Critical")
	p.sees("Action needed", "The store is away", redis.Addr+" is away")
	p.waits(`document.querySelector("[aria-label=Errors]").dataset.state === "red"`)
	p.shot("critical")
	p.click(named("a", "Rules"))
	p.sees("policy error decides now")
	p.shot("policies")
	p.click(named("a", "Now"))
	redis.Restart()
	testenv.Eventually(t, patience, func() bool {
		s.hit(1, user("ann"))
		return js[bool](p, `/was critical \d\d:\d\d:\d\d–\d\d:\d\d:\d\d: The store is away/.test(document.querySelector("[data-testid=was]")?.innerText)`)
	}, "the page says that the store is back, and when it was away")
	p.waits(`!document.querySelector("[data-testid=banner]").innerText.startsWith("Action needed")`)
	p.shot("was")
	p.reload()
	p.waits(`document.querySelector("[data-testid=was]")?.innerText.includes("was critical")`) // also for those who come later
	p.sees(redis.Addr + " answers")
	p.click(named("a", "Rules"))
	p.waits(`document.querySelector("[data-testid=rule]") && !document.body.innerText.includes("decides now")`)
}

// The charts have three ranges. An outage does not flatten the ordinary values; its own are said.
func TestRanges(t *testing.T) {
	s := serve(t)
	for name, step := range map[string]int{"1h": 4, "6h": 24} {
		h := map[string]any{"step": fmt.Sprintf("%ds", step), "until": time.Now().Truncate(time.Second)}
		for column, values := range map[string][2]int{"requests": {400 * step, 400 * step}, "denied": {40 * step, 0}, "errors": {0, 400 * step}, "p50_us": {300, 300}, "p99_us": {900, 2_100_000}} {
			all := make([]int, 900)
			for i := range all {
				all[i] = values[0] + values[0]*(i%7)/20
				if i >= 800 && i < 850 {
					all[i] = values[1]
				}
			}
			h[column] = all
		}
		text, err := json.Marshal(map[string]any{"history": h})
		if err != nil {
			t.Fatal(err)
		}
		s.fakes.Store("/v1/status?range="+name, &text)
	}
	p := s.signedIn("#now")
	p.size(1440, 1200)
	p.sees("All well")
	pressed := `document.querySelector("[aria-label='Range of the charts'] [aria-pressed=true]")?.innerText`
	p.waits(pressed + ` === "15 min"`)
	for _, scheme := range []string{"light", "dark"} {
		p.scheme(scheme)
		for name, shown := range map[string]string{"1h": "1 h", "6h": "6 h"} {
			p.click(named("button", shown))
			p.waits(pressed + ` === ` + quote(shown) + ` && location.hash === "#now?range=` + name + `"`)
			p.waits(`[...document.querySelectorAll("[data-testid=cut]")].map(c => c.innerText).join().startsWith(",▲ beyond the scale: p99 was 2.1\u00a0s at ")`)
			p.size(map[string]int64{"light": 1440, "dark": 1920}[scheme], 1200)
			p.waits(`/p99\s*[\d.]+\u00a0ms/.test(document.querySelector("[aria-label='Time to answer']").innerText)`)
			p.shot(name + "-" + scheme)
		}
	}
	// The keys read the values one by one.
	took := `document.querySelector("[aria-label='Time to answer']")`
	js[bool](p, took+`.focus() || true`)
	for range 60 {
		p.press(kb.ArrowLeft)
	}
	p.waits(took + `.innerText.includes("2.1\u00a0s")`)
	p.reload()
	p.sees("All well") // and its line moves the buttons no more
	p.waits(`/ h$/.test(` + pressed + `)`)
	p.click(named("button", "15 min"))
	p.waits(`[...document.querySelectorAll("[data-testid=cut]")].every(c => c.innerText === "") && location.hash === "#now"`)
	ceiling := func(columns string) float64 {
		t.Helper()
		js[bool](p, `window.ceiling = undefined, import("/assets/chart.js").then(m => window.ceiling = m.ceiling(`+columns+`)), true`)
		p.waits("window.ceiling")
		return js[float64](p, "window.ceiling")
	}
	for columns, want := range map[string]float64{
		"[[0, 0, null]]": 1, "[[10, 10, 20]]": 22, "[[1, 1, 1, 1, 100]]": 4, "[[1, 1, 1, 1, 1], [2, 2, 2, 2, 90]]": 8,
		"[[5, 5, 50, 50]]": 55.00000000000001, "[[0, 0, 0, 0, 0, 0, 7]]": 7.700000000000001,
	} {
		if got := ceiling(columns); got != want {
			t.Errorf("the scale of %s ends at %v, want %v", columns, got, want)
		}
	}
}

func TestRules(t *testing.T) {
	s := serve(t)
	s.hit(20, user("ann"))
	p := s.signedIn("#rules")
	rows := `[...document.querySelectorAll("[data-testid=rule]")].map(r => r.innerText.replaceAll(/\s+/g, " "))`
	p.waits(rows + ".length === 3")
	p.sees("10 per hour, fixed_window, from the first hit, per user", "1,000 per day, fixed_window, per user", "100 per second, gcra, burst 1, per plan and user", "shadow: denies nothing", "shop.yaml:6")
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
	s.write("pools: {spare: {unit: day, requests_per_unit: 7}}\n" + strings.Replace(rules, "name: daily", "name: daily, borrow_from: spare", 1))
	p.fill("Search", "spare")
	p.waits(rows + `.length === 2 && ` + rows + `[0].startsWith("pool=spare shop.pool_spare 7 per day, fixed_window, for all together pool ")`)

	many := rules
	for i := range 400 {
		many += fmt.Sprintf("  - {key: many, value: v%d, rate_limit: {unit: day, requests_per_unit: 5}}\n", i)
	}
	s.write(many)
	p.fill("Search", "shop.many_")
	p.waits(rows + `.length === 300 && ` + rows + `[0].includes("many=v0 ")`)
	p.sees("400 of 403 rules, 1 to 300 are shown")
	p.click(named("button", "Next"))
	p.waits(rows + `.length === 100 && ` + rows + `[99].includes("many=v399 ")`)
	p.shot("next")
	p.fill("Search", "many=v39")
	p.waits(rows + ".length === 11")
	p.waits(`!` + named("button", "Next") + `?.checkVisibility()`)
}

// Every view fits on 400 pixels, has one h1, and nothing too small to press.
func TestNarrowAndDark(t *testing.T) {
	s := serve(t)
	s.hit(12, user("ann"))
	s.fakes.Store("/v1/top", tops("ann", "bob"))
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

// TestForAll: each view fits a telephone and wide screens, axe finds nothing that keeps people out, in light
// and in dark colours, and the name of the installation stands in the header, the title and the questions.
func TestForAll(t *testing.T) {
	axe, err := os.ReadFile(testenv.Binary(t, "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, "INSTALLATION_NAME=eu production")
	s.hit(12, user("ann"))
	s.hit(9, user("a-very-long-name-of-a-customer-"+strings.Repeat("x", 60)))
	s.fakes.Store("/v1/top", tops("ann", "bob"))
	p := s.signedIn("#now")
	p.waits(`document.title.includes("eu production") && document.querySelector("#host").textContent.startsWith("eu production · ")`)
	for view, ready := range map[string]string{
		"now": `document.querySelector("[data-testid=event]")`, "rules": `document.querySelector("[data-testid=rule]")`,
		"top": `document.querySelector("[data-testid=top-row]")`, "denials": denied + `.length`, "why": `document.querySelector("[data-testid=chip]")`,
		"why?domain=shop&descriptor=plan%3Dfree%2Cuser%3Dann": `document.querySelector("[data-testid=limit]")`,
		"find?q=ann": `document.querySelector("[data-testid=found-key]") && document.querySelector("[data-testid=found-place]")`,
		"audit":      `document.querySelector("h1")?.innerText === "Audit"`,
	} {
		js[bool](p, `location.hash = `+quote(view)+`, true`)
		p.waits(ready)
		for _, width := range []int64{390, 1440, 1920} {
			p.size(width, 900)
			for _, colours := range []string{"light", "dark"} {
				p.scheme(colours)
				p.waits(fmt.Sprintf("document.documentElement.scrollWidth <= %d", width)) // charts follow the size
				js[bool](p, `window.violations = undefined, `+string(axe)+`; axe.run().then(r => window.violations = r.violations.map(
					v => v.id + ": " + v.nodes.map(n => n.html.slice(0, 120)).slice(0, 3).join(" | "))); true`)
				p.waits("window.violations")
				if found := js[[]string](p, "window.violations"); len(found) > 0 {
					t.Errorf("%s, %s, %d px:\n%s", view, colours, width, strings.Join(found, "\n"))
				}
				p.shot(fmt.Sprint(strings.Map(func(r rune) rune {
					if r == '?' || r == '&' || r == '%' || r == '=' {
						return '-'
					}
					return r
				}, view), "-", width, "-", colours))
			}
		}
	}
	p.size(1280, 900)
	js[bool](p, `location.hash = "#why?domain=shop&descriptor=plan%3Dfree%2Cuser%3Dann", true`)
	testenv.Eventually(t, patience, func() bool { // the form is drawn anew when the answer comes
		if !js[bool](p, `Boolean(document.querySelector("[role=dialog]"))`) {
			p.click(named("button", "Reset"))
			return false
		}
		return js[bool](p, `document.querySelector("[role=dialog]").innerText.includes("Installation eu production")`)
	}, "the question names the installation")
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
	p.view("Rules")
	js[bool](p, `document.querySelector(".skip").focus() || true`)
	p.press("\r")
	p.waits(`document.activeElement === document.querySelector("main") && document.querySelector("h1").innerText === "Rules"`)
	js[bool](p, "document.activeElement.blur() || true")
	reach("the link Why", `e => e.hash === "#why"`)
	p.press("\r")
	p.waits(labelled("Domain"))
	reach("Explain", `e => e.innerText === "Explain"`)
	p.press("\r")
	p.waits(`document.querySelector("[role=alert]:not([hidden])")?.innerText === "Enter a domain."`)
}
