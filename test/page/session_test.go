package page_test

import (
	"fmt"
	"net/http"
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
	p.reload()
	p.sees("Requests a second")
	p.click(named("button", "Sign out"))
	p.waits(labelled("Token"))
	if kept := js[int](p, "sessionStorage.length"); kept != 0 {
		t.Errorf("%d values are kept after the sign-out", kept)
	}
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

// A token that is bound to a user has Find and Why alone, about this user.
func TestBoundToken(t *testing.T) {
	const boundToken = "bound-token-0123456789"
	s := serve(t)
	s.writeTokens("bob read " + readToken + "\nann read " + boundToken + " domain:shop user=ann\n")
	testenv.Eventually(t, patience, func() bool {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.admin+"/v1/status", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+boundToken)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusForbidden
	}, "the token counts")
	s.hit(3, user("ann"))
	s.hit(2, user("joanna"))
	p := open(t, s.url+"/")
	p.signIn(boundToken)
	p.sees("domain:shop user=ann", "Enter the name of a customer")
	shown := `JSON.stringify([...document.querySelectorAll("nav a")].filter((a) => a.checkVisibility()).map((a) => a.hash))`
	if got := js[string](p, shown); got != `["#why"]` {
		t.Errorf("the views are %s", got)
	}
	p.fill("Find", "ann")
	p.press("\r")
	p.waits(`document.querySelectorAll("[data-testid=found-key]").length === 1`)
	if text := js[string](p, "document.body.innerText"); strings.Contains(text, "joanna") || strings.Contains(text, "Rules in which") {
		t.Errorf("the page shows others: %s", text)
	}
	p.click(`document.querySelector("[data-testid=found-key] a")`)
	p.waits(`document.querySelector("[data-testid=limit]")?.innerText.includes("remaining 7")`)
	p.shot("why")
	p.reload()
	p.waits(`document.querySelector("[data-testid=limit]")?.innerText.includes("remaining 7")`)
	js[string](p, `location.hash = "#why?domain=shop&descriptor=plan%3Dfree%2Cuser%3Djoanna"`)
	p.waits(`document.querySelector("[role=alert]")?.innerText.includes("bound to domain:shop user=ann")`)
	js[string](p, `location.hash = "#audit"`)
	p.waits(`document.querySelector("h1")?.innerText.startsWith("Find")`)
}

// A token that is taken out of the file ends every view of the page, also a question that is
// open, and a stream that asks for nothing.
func TestTokenTakenAway(t *testing.T) {
	s := serve(t)
	s.hit(1, user("ann"))
	now := s.signedIn("#now")
	now.sees("All well")
	why := s.signedIn("#why?domain=shop&descriptor=plan%3Dfree%2Cuser%3Dann")
	why.click(named("button", "Reset"))
	why.waits(`document.querySelector("[role=dialog]")`)
	s.writeTokens("bob read " + readToken + "\n")
	for _, p := range []*tab{now, why} {
		p.waits(`document.querySelector("[role=alert]")?.innerText === "The server no longer takes this token. Sign in again."`)
		p.waits(`!document.querySelector("[role=dialog]") && sessionStorage.length === 0`)
	}
	now.signIn(readToken)
	now.sees("All well", "read only")
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
		go func() { events <- s.listen(opened.Done, 5) }()
	}
	opened.Wait()
	before, start := s.spent(), time.Now()
	testenv.Within(t, 6*time.Second, func() bool {
		for range cap(events) {
			if got := <-events; got < 5 {
				t.Errorf("a page got only %d events", got)
			}
		}
		return true
	}, "each page gets an event a second", s.pid)
	if share := float64(s.spent()-before) / float64(time.Since(start)); share > 0.05 {
		t.Errorf("100 pages take %.1f %% of a processor, want at most 5 %%", 100*share)
	} else {
		t.Logf("100 pages take %.1f %% of a processor", 100*share)
	}
}
