package page_test

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"example.org/rls/internal/testenv"
)

const denied = `document.querySelectorAll("[data-testid=denial]")`

// Denials come by themselves, can be searched and paused, and lead to Why.
func TestDenials(t *testing.T) {
	s := serve(t)
	s.hit(11, user("ann"))
	s.hit(2, []entry{{"banner", "a"}})
	p := s.signedIn("#denials?all=")
	p.waits(denied + `.length === 2`)
	p.sees("10 per hour", "shadow: answered OK", "plan=free,user=ann", "shop.plan_free.user")
	s.hit(11, user("bob"))
	p.waits(denied + `.length === 3 && ` + denied + `[0].innerText.includes("user=bob")`)
	p.shot("rows")

	p.fill("Search", "bob")
	p.waits(denied + `.length === 1 && location.hash === "#denials?q=bob&all="`)
	s.hit(1, user("ann"))
	s.hit(1, user("bob"))
	p.waits(denied + `.length === 2`)
	p.waits(`![...` + denied + `].some(r => r.innerText.includes("ann"))`)

	p.click(named("button", "Pause"))
	p.sees("Paused.")
	s.hit(1, user("bob"))
	p.click(named("button", "Resume"))
	p.waits(denied + `.length === 3`)
	testenv.Eventually(t, patience, func() bool { // rows that are drawn anew at that moment lose a click
		if !js[bool](p, `location.hash.startsWith("#why")`) {
			p.click(`document.querySelector("[data-testid=denial] a")`)
			return false
		}
		return true
	}, "a denial leads to Why")
	p.waits(`document.querySelector("[data-testid=limit]")?.innerText.includes("10 per hour")`)
}

// Denials are grouped by counter at first; each denial has its row on request.
func TestDenialsGrouped(t *testing.T) {
	s := serve(t)
	s.hit(13, user("ann"))
	s.hit(11, user("bob"))
	p := s.signedIn("#denials")
	p.waits(denied + `.length === 2 && /user=ann[^]*\b3\b/.test(` + denied + `[1].innerText)`)
	p.shot("groups")
	s.hit(1, user("ann"))
	p.waits(denied + `.length === 2 && /user=ann[^]*\b4\b/.test(` + denied + `[0].innerText)`)
	js[bool](p, `(() => { const e = `+labelled("Show")+`; e.value = "all"; return e.dispatchEvent(new Event("change")) })()`)
	p.waits(denied + `.length === 5 && location.hash === "#denials?all="`)
	js[bool](p, `(() => { const e = `+labelled("Show")+`; e.value = ""; return e.dispatchEvent(new Event("change")) })()`)
	p.waits(denied + `.length === 2`)
	p.view("Why")
	p.waits(`document.querySelectorAll("[data-testid=chip]").length === 2`)
	p.shot("chips")
	p.click(`document.querySelector("[data-testid=chip]")`)
	p.waits(`document.querySelector("[data-testid=limit]")?.innerText.includes("10 per hour") && !document.querySelector("[data-testid=chip]")`)
}

// A denial is shown within moments, once, also if it comes while the page begins to follow.
func TestDenialsAsTheyCome(t *testing.T) {
	s := serve(t)
	s.hit(11, user("ann"))
	s.beforeFollowing.Store(new(func() { s.hit(11, user("bob")) }))
	p := s.signedIn("#denials?all=")
	shows := func(users string) {
		t.Helper()
		const soon = 10 * time.Second // the page asks for all of them again after 30 s
		testenv.Eventually(t, soon, func() bool {
			return js[string](p, `[...`+denied+`].map(r => r.innerText.match(/user=(...)/)[1]).join()`) == users
		}, users)
	}
	shows("bob,ann")
	s.hit(11, user("cyd"))
	shows("cyd,bob,ann")
	s.hit(1, user("cyd"))
	shows("cyd,cyd,bob,ann")
}

// Find is on every view: it answers why a value is denied, and shows the rules in which it can stand.
func TestFind(t *testing.T) {
	s := serve(t)
	s.hit(11, user("ann"))
	s.hit(1, user("joanna"))
	p := s.signedIn("")
	searches := map[string]string{"Rules": ",Search rules", "Denials": ",Search denials"}
	for _, view := range []string{"Now", "Rules", "Top", "Denials", "Why", "Audit"} {
		p.view(view)
		p.waits(labelled("Find") + `?.matches("[role=searchbox]")`)
		// A screen reader lists landmarks by their names.
		if names := js[string](p, `[...document.querySelectorAll("search, [role=search]")].map(l => l.ariaLabel).join()`); names != "Find a customer"+searches[view] {
			t.Errorf("%s has the searches %s", view, names)
		}
	}
	p.fill("Find", "ann")
	p.press("\r")
	p.waits(`document.querySelector("[data-testid=found-key]")?.innerText.includes("remaining 0")`)
	p.sees("last denial", "next hit in", "any value", "rls grant --domain=shop --descriptor=plan=free,user=ann --only='10 per hour' --hits=10")
	p.waits(`document.querySelector("[data-testid=chip]")?.innerText.includes("1× 10 per hour")`)
	p.waits(`document.querySelectorAll("[data-testid=found-place]").length === 3`)
	p.shot("ann")
	p.size(320, 700)
	if wide := js[int](p, "document.documentElement.scrollWidth"); wide > 320 {
		t.Errorf("the page is %d wide", wide)
	}
	p.size(1280, 900)
	p.click(`document.querySelector("[data-testid=found-key] a")`)
	p.waits(`document.querySelector("[data-testid=limit]")?.innerText.includes("10 per hour")`)
	p.fill("Find", "nobody")
	p.press("\r")
	p.sees("None of the keys that Top and Denials remember has this text.", "rls find nobody")
	p.fill("Find", "oann")
	p.press("\r")
	p.click(named("[data-testid=candidate]", "joanna"))
	p.waits(`document.querySelector("[data-testid=found-key]")?.innerText.includes("user=joanna")`)
}

// Find tells the change that has made a limit smaller, and the charts have a mark with its words.
func TestAChangedLimit(t *testing.T) {
	s := serve(t)
	p := s.signedIn("#find?q=ann")
	s.hit(9, user("ann"))
	s.write(strings.Replace(rules, "requests_per_unit: 10,", "requests_per_unit: 9, thresholds: [{at: 50%}],", 1))
	p.waits(`/This limit changed at .*: 10 per hour.* → 9 per hour/.test(document.querySelector("[data-testid=changed]")?.innerText)`)
	p.waits(`document.querySelector("[data-testid=limit][data-full=true][data-warns=true] .tick")?.style.left === "50%"`)
	p.shot("changed")
	p.view("Now")
	p.waits(`[...document.querySelectorAll("[data-testid=event]")].some(e => e.innerText.includes("Changed: shop.plan_free.user"))`)
	note := `document.querySelector(".chart .mark-note").innerText`
	testenv.Eventually(t, patience, func() bool { // the chart moves
		at := js[[]float64](p, `(() => { const r = document.querySelector(".chart .u-over").getBoundingClientRect(); return [r.x, r.y + r.height / 2, r.width] })()`)
		for x := 1.0; x < at[2]; x += 6 {
			p.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, at[0]+x, at[1]))
			if strings.Contains(js[string](p, note), "Changed: shop.plan_free.user") {
				return true
			}
		}
		return false
	}, "a mark says the change")
	p.shot("mark")
}

// Why offers what a request may have meant.
func TestSuggestions(t *testing.T) {
	p := serve(t).signedIn("#why?domain=shpo&descriptor=plan%3Dfree%2Cuser%3Dann")
	p.click(named("[data-testid=suggestions] button", "shop"))
	p.waits(`document.querySelector("[data-testid=limit]")?.innerText.includes("10 per hour")`)
	p.fill("Descriptor", "user=ann")
	p.press("\r")
	p.click(`document.querySelector("[data-testid=suggestions] button")`)
	p.waits(`document.querySelectorAll("[data-testid=path-step][data-won=true]").length === 2`)
	p.shot("taken")
}
