package page_test

import (
	"testing"

	"github.com/chromedp/cdproto/input"
)

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
	p.waits(`/count 7\s+remaining 3\s+reset in 59 min \d+ s\s+next hit now/.test(` + limit + `)`)
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
	js[bool](p, named("button", "Grant")+".click() || "+named("button", "Grant")+".click() || true") // a double click
	p.waits(`document.querySelector("[role=dialog]")`)
	p.click(named("[role=dialog] button", "Cancel"))
	p.waits(`!document.querySelector("[role=dialog]")`)
	p.waits(limit + `.includes("remaining 2")`)
	p.click(named("button", "Grant"))
	p.click(named("[role=dialog] button", "Confirm"))
	p.sees("Granted: 2 counters changed.")
	p.waits(`/count 8\s+granted 5\s+remaining 7/.test(` + limit + `)`)

	p.click(named("button", "Reset"))
	p.waits(`document.querySelector("[role=dialog]")?.innerText.includes("8 → 0") && document.querySelector("[role=dialog] .danger")`)
	p.click(named("[role=dialog] button", "Confirm"))
	p.sees("Reset: 2 counters changed.")
	p.waits(`/count 0\s+remaining 10/.test(` + limit + `)`)

	// A grant that is too large is refused before the question; one of the limits has room for it.
	p.fill("Hits", "500")
	p.click(named("button", "Grant"))
	p.waits(`[...document.querySelectorAll("[role=alert]")].some(a => a.innerText.includes("at most"))`)

	p.waits(`!document.querySelector("[role=dialog]")`)
	js[bool](p, `(() => { const e = `+labelled("Limit")+`; e.value = "daily"; return true })()`)
	p.click(named("button", "Grant"))
	p.waits(`/1,000 → 1,500/.test(document.querySelector("[role=dialog]")?.innerText) && !document.querySelector("[role=dialog] .danger")`)
	p.click(named("[role=dialog] button", "Confirm"))
	p.sees("Granted: 1 counter changed.")

	p.view("Audit")
	p.waits(`document.querySelectorAll("[data-testid=audit-row]").length === 5`)
	p.waits(`document.querySelectorAll("[data-testid=grant]").length === 1`)
	p.sees("alice", "ticket 4711", "shop.plan_free.user", "8, granted 5")
	p.shot("audit")
}

func TestWhyNothingMatches(t *testing.T) {
	p := serve(t).signedIn("#why?domain=shop&descriptor=plan%3Dfree")
	p.sees("one entry too few")
	p.shot("too-few")
	p.click(named("[data-testid=suggestions] button", "plan=free,user=…"))
	p.waits(`getSelection().toString() === "…" || document.activeElement.id === "descriptor-1"`)
	p.do(command(input.InsertText, input.InsertTextParams{Text: "ann"}))
	p.press("\r")
	p.waits(`document.querySelectorAll("[data-testid=limit]").length === 2`)
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

// The page shows the answer to the last question, also if an earlier one is answered later.
func TestWhyLateAnswer(t *testing.T) {
	s := serve(t)
	s.hit(3, user("ann"))
	p := s.signedIn("#why")
	js[bool](p, `(() => {
		const plain = fetch;
		let release;
		const held = new Promise(done => { release = done; });
		window.fetch = async (...asked) => {
			const answer = await plain(...asked);
			if (asked[1]?.body?.includes("slow")) await held;
			return answer;
		};
		window.release = release;
		return true;
	})()`)
	p.fill("Domain", "shop")
	p.fill("Descriptor", "plan=free,user=slow")
	p.press("\r")
	p.fill("Descriptor", "plan=free,user=ann")
	p.press("\r")
	p.waits(`document.querySelector("[data-testid=limit]")?.innerText.includes("count 3")`)
	js[bool](p, "release() || true")
	p.click(named("button", "Reset"))
	p.waits(`document.querySelector("[role=dialog]")?.innerText.includes("user=ann")`)
}

// A question does not outlive its view.
func TestWhyLeftWithAQuestion(t *testing.T) {
	s := serve(t)
	s.hit(1, user("ann"))
	p := s.signedIn("#why?domain=shop&descriptor=plan%3Dfree%2Cuser%3Dann")
	p.click(named("button", "Reset"))
	p.waits(`document.querySelector("[role=dialog]")`)
	js[string](p, `location.hash = "#audit"`)
	p.waits(`document.querySelector("h1").innerText === "Audit" && !document.querySelector("dialog")`)
}
