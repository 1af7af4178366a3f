package page_test

import "testing"

// A grant until a time: the dialog says until when, the limit names it, and the list of grants ends it.
func TestGrantUntil(t *testing.T) {
	p := whyAnn(t)
	p.waits(limit(limits, "10 per hour"))
	p.fill("Hits", "20")
	set(p, "Until", inTwoHours)
	set(p, "Limit", `[...field.options].map(o => o.value).find(v => v && v !== "daily")`)
	granted(p, "20 hits more in each window", "3 → 23")
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

// A limit until a time stands in place of the rule's, and is no number of hits.
func TestGrantALimit(t *testing.T) {
	p := whyAnn(t)
	p.waits(limit(limits, "1,000 per day"))
	fault := `[...document.querySelectorAll("[role=alert]:not([hidden])")].map(a => a.innerText).join()`
	p.fill("New limit", "5000/day")
	p.waits(labelled("Hits") + ".disabled")
	set(p, "Limit", `"daily"`)
	p.click(named("button", "Grant"))
	p.waits(limit(fault, "A new limit holds until a time"))
	set(p, "Until", inTwoHours)
	p.fill("New limit", "5000 per day")
	p.click(named("button", "Grant"))
	p.waits(limit(fault, "5000 per day"))
	p.fill("New limit", "5000/day")
	granted(p, "Grant 5000/day in place of the limit", "993 → 4,993")
	p.waits(limit(limits, "5,000 per day"))
	p.waits(limit(limits, "in place of 1"))
	p.shot("granted")
	p.view("Audit")
	p.waits(`document.querySelector("[data-testid=grant]")?.innerText.includes("5,000 per day")`)
}

// limits is the text of all limits of Why.
const limits = `[...document.querySelectorAll("[data-testid=limit]")].map(l => l.innerText).join()`

// whyAnn is the view Why of a user with 7 requests.
func whyAnn(t *testing.T) *tab {
	s := serve(t)
	s.hit(7, user("ann"))
	return s.signedIn("#why?domain=shop&descriptor=plan%3Dfree%2Cuser%3Dann")
}

// granted presses Grant and confirms a question with these parts, which says until when, as does the page after it.
func granted(p *tab, parts ...string) {
	p.t.Helper()
	const until = `/The grant ends .*, in [12] h/.test(`
	dialog := `document.querySelector("[role=dialog]")?.innerText`
	p.click(named("button", "Grant"))
	p.waits(until + dialog + `)`)
	for _, part := range parts {
		p.waits(limit(dialog, part))
	}
	p.shot("question")
	p.click(named("[role=dialog] button", "Confirm"))
	p.waits(`!document.querySelector("[role=dialog]") && ` + until + `document.querySelector("main").innerText)`)
	p.sees("Granted: 1 counter changed.")
}

// inTwoHours is a value of a field for a time, in JavaScript.
const inTwoHours = `new Date(Date.now() + 7200e3 - new Date().getTimezoneOffset() * 60e3).toISOString().slice(0, 16)`

// set gives the field with a label a value in JavaScript.
func set(p *tab, label, value string) {
	p.t.Helper()
	js[bool](p, `(field => { field.value = `+value+`; return true })(`+labelled(label)+`)`)
}

// limit is true once some text has a part.
func limit(text, part string) string { return text + `.includes(` + quote(part) + `)` }
