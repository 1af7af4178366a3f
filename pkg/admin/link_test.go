package admin_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/rls/pkg/admin"
)

const signIn = "/v1/sign-in"

// The secret of a link signs in once, for this host and this origin only, and is not a token itself.
func TestLinkSignsInOnce(t *testing.T) {
	var secret string
	r := start(t, listening{change: func(o *admin.Options) { o.Link, secret = admin.NewLink() }})
	if len(secret) < 26 { // of 5 bits each
		t.Errorf("the secret %q is too short", secret)
	}
	refused := func(want int, method string, headers ...header) {
		t.Helper()
		if got := r.ask(method, signIn, "", headers...); got.code != want || strings.Contains(got.text, "token\":") {
			t.Errorf("%d %s, want %d", got.code, got.text, want)
		}
	}
	refused(http.StatusUnauthorized, "POST")
	refused(http.StatusUnauthorized, "POST", bearer(writeToken))
	refused(http.StatusMethodNotAllowed, "GET", bearer(secret))
	refused(http.StatusMisdirectedRequest, "POST", bearer(secret), host("rebound.example"))
	refused(http.StatusForbidden, "POST", bearer(secret), with("Origin", "http://elsewhere.example"))
	if got := r.ask("GET", "/v1/status", "", bearer(secret)); got.code != http.StatusUnauthorized {
		t.Errorf("the secret is a token: %d", got.code)
	}

	got := r.ask("POST", signIn, "{}", bearer(secret))
	var answer struct{ Token string }
	if err := json.Unmarshal([]byte(got.text), &answer); err != nil || got.code != http.StatusOK || answer.Token == "" || answer.Token == secret {
		t.Fatalf("%d %s, %v", got.code, got.text, err)
	}
	resp := r.send(context.Background(), "GET", "/v1/status", "", bearer(answer.Token))
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Rls-Role") != "write" {
		t.Errorf("%d, role %s", resp.StatusCode, resp.Header.Get("Rls-Role"))
	}
	refused(http.StatusUnauthorized, "POST", bearer(secret))
	refused(http.StatusUnauthorized, "POST", bearer(answer.Token))
	if got := r.ask("GET", "/v1/status", "", bearer(readToken)); got.code != http.StatusOK {
		t.Errorf("beside a link a token of the file is answered %d", got.code)
	}
	if log := r.log.String(); strings.Contains(log, secret) || strings.Contains(log, answer.Token) {
		t.Error("the log has a secret")
	}
}

// A link ends after 10 minutes. Without a link and without tokens nobody signs in.
func TestLinkEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for wait, want := range map[time.Duration]int{admin.LinkFor - time.Nanosecond: http.StatusOK, admin.LinkFor: http.StatusUnauthorized} {
			link, secret := admin.NewLink()
			for _, link := range []*admin.Link{nil, link} {
				api := admin.New(admin.Options{Link: link, Ending: t.Context()}).Handler()
				code := func(method, path string) int {
					w, r := httptest.NewRecorder(), httptest.NewRequest(method, "http://localhost"+path, nil)
					r.Header.Set("Authorization", "Bearer "+secret)
					api.ServeHTTP(w, r)
					return w.Code
				}
				if got := code("GET", "/v1/status"); got != http.StatusUnauthorized {
					t.Errorf("without tokens: %d", got)
				}
				if link == nil {
					if got := code("POST", signIn); got != http.StatusUnauthorized {
						t.Errorf("without a link: %d", got)
					}
					continue
				}
				<-time.After(wait)
				if got := code("POST", signIn); got != want {
					t.Errorf("after %v: %d, want %d", wait, got, want)
				}
			}
		}
	})
}
