package page_test

import (
	"fmt"
	"strings"
	"testing"

	"example.org/rls/internal/testenv"
)

// With ADMIN_FLEET the page is of all replicas, with a switch to one of them.
func TestFleet(t *testing.T) {
	second := serve(t)
	other := strings.TrimPrefix(second.admin, "http://")
	dead := fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t))
	s := serve(t, "ADMIN_FLEET="+other+","+dead)
	s.hit(12, user("ann"))
	second.hit(3, user("bob"))
	second.hit(11, user("ann"))
	p := s.signedIn("")
	replica := labelled("Replica")
	p.waits(replica + `.checkVisibility()`)
	p.waits(replica + `.options[0].text === "All" && ` + replica + `.options.length === 4`)
	p.sees("26 since", "of 3", "1 of 3 replicas do not answer.")
	// The start and the load of the rules, each once for both.
	own := strings.TrimPrefix(s.admin, "http://")
	p.waits(fmt.Sprintf(`[...document.querySelectorAll("[data-testid=event]")].filter(e => e.innerText.includes(%q) && e.innerText.includes(%q)).length === 2`, own, other))
	p.shot("now")
	p.view("Denials")
	p.waits(`document.querySelectorAll("[data-testid=denial]").length === 1`)
	js[bool](p, `location.hash = "#denials?all=", true`)
	p.waits(`document.querySelectorAll("[data-testid=denial]").length === 3`)
	p.sees(other)
	p.shot("denials")
	p.view("Top")
	p.sees("In the last 1 min: 26 hits, 3 denied.")

	choose := func(address string) {
		js[bool](p, fmt.Sprintf(`(() => { const e = %s; e.value = %q; return e.dispatchEvent(new Event("change")) })()`, replica, address))
	}
	choose(other)
	p.view("Now")
	p.sees("14 since")
	js[bool](p, `location.hash = "#denials?all=", true`)
	p.waits(`document.querySelectorAll("[data-testid=denial]").length === 1`)
	choose("")
	p.waits(`document.querySelectorAll("[data-testid=denial]").length === 3`)
	p.view("Now")
	p.sees("26 since")
	second.write(strings.Replace(rules, "1000, name: daily", "2000, name: daily", 1))
	p.sees("Replicas have different rules in force.")
	p.view("Rules")
	p.waits(`document.querySelector("[data-testid=differ]")`)
	p.shot("rules")
	p.size(320, 700)
	for _, view := range []string{"Now", "Rules", "Top", "Denials", "Why", "Audit"} {
		p.view(view)
		if wide := js[int](p, "document.documentElement.scrollWidth"); wide > 320 {
			t.Errorf("%s is %d wide", view, wide)
		}
		p.shot("narrow-" + view)
	}
}
