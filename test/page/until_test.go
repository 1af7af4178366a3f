package page_test

import "testing"

// A grant until a time: the dialog says until when, the limit names it, and the list of grants ends it.
func TestGrantUntil(t *testing.T) {
	s := serve(t)
	s.hit(7, user("ann"))
	p := s.signedIn("#why?domain=shop&descriptor=plan%3Dfree%2Cuser%3Dann")
	limits := `[...document.querySelectorAll("[data-testid=limit]")].map(l => l.innerText).join()`
	p.waits(limit(limits, "10 per hour"))
	p.fill("Hits", "20")
	js[bool](p, `(() => {
		const soon = new Date(Date.now() + 7200e3 - new Date().getTimezoneOffset() * 60e3);
		const until = `+labelled("Until")+`;
		until.value = soon.toISOString().slice(0, 16);
		const only = `+labelled("Limit")+`;
		only.value = [...only.options].map(o => o.value).find(v => v && v !== "daily");
		return true;
	})()`)
	p.click(named("button", "Grant"))
	p.waits(`/20 hits more in each window[^]*3 → 23[^]*The grant ends .*, in [12] h/.test(document.querySelector("[role=dialog]")?.innerText)`)
	p.click(named("[role=dialog] button", "Confirm"))
	p.sees("Granted: 1 counter changed.")
	p.waits(limit(limits, "30 per hour"))
	p.waits(limit(limits, "in place of 10 per hour"))
	p.shot("granted-until")

	p.fill("Find", "ann")
	p.press("\r")
	p.waits(`/ granted 20 per window to plan=free,user=ann, until /.test(document.body.innerText)`)

	p.view("Audit")
	p.waits(`document.querySelector("[data-testid=grant]")?.innerText.includes("20 per window")`)
	p.click(named("button", "Revoke"))
	p.click(named("[role=dialog] button", "Confirm"))
	p.waits(`document.querySelectorAll("[data-testid=grant]").length === 0`)
	p.waits(`document.querySelector("[data-testid=audit-row]")?.innerText.includes("revoke")`)
}

// limit is true once some text has a part.
func limit(text, part string) string { return text + `.includes(` + quote(part) + `)` }
