package admin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/service/operate"
)

// pages reads all pages of a usage.
func (r *rig) pages(query string) (all admin.Usage, pages int) {
	r.t.Helper()
	for cursor := ""; ; {
		got := r.ask("GET", "/v1/usage?"+query+"&cursor="+cursor, "", bearer(readToken))
		var page admin.Usage
		if err := json.Unmarshal([]byte(got.text), &page); err != nil || got.code != 200 {
			r.t.Fatalf("%s: got %d %s, %v", query, got.code, got.text, err)
		}
		all.Rows, all.Replicas = append(all.Rows, page.Rows...), page.Replicas
		if pages++; page.Cursor == "" {
			return all, pages
		}
		cursor = page.Cursor
	}
}

// Each replica tells its own counters; a replica that does not answer is named, and n is of all.
func TestUsageOfAFleet(t *testing.T) {
	dead := fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t))
	b := start(t, listening{})
	a := inFleet(t, listening{}, b.addr(), "127.0.0.1:OWN", "localhost:OWN", dead)
	for i := range 20 {
		a.charge(fmt.Sprint("a", i), 3)
		b.charge(fmt.Sprint("b", i), 9)
	}
	a.charge("both", 1)
	b.charge("both", 2)
	if all, _ := a.pages("rule=shop.user"); len(all.Rows) != 21 || all.Rows[0].Replica != "" {
		t.Errorf("one replica: got %+v", all.Rows)
	}
	for n, least := range map[int]int{1000: 1, 8: 6} {
		all, pages := a.pages(fmt.Sprintf("rule=shop.user&fleet=true&n=%d", n))
		seen := map[string]bool{}
		for _, row := range all.Rows {
			seen[row.Entries[0].Value+" "+row.Replica] = true
		}
		if len(all.Rows) != 42 || len(seen) != 42 || pages < least || !seen["both "+b.addr()] {
			t.Errorf("pages of %d: got %d rows in %d pages: %v", n, len(all.Rows), pages, seen)
		}
		if n == 1000 && (len(all.Replicas) != 3 || all.Replicas[2].OK || all.Replicas[2].Address != dead) {
			t.Errorf("replicas %+v", all.Replicas)
		}
	}
	if all, _ := a.pages("rule=shop.user&fleet=true&above=0.9"); len(all.Rows) != 20 || all.Rows[0].Share != 0.9 || all.Rows[0].Replica != b.addr() {
		t.Errorf("those that are used most: %+v", all.Rows)
	}
	got := a.ask("GET", "/v1/usage?rule=shop.user&fleet=true&n=2", "", bearer(readToken))
	if got.code != 400 || !strings.Contains(got.text, "one for each replica") {
		t.Errorf("fewer rows than replicas: got %d %s", got.code, got.text)
	}
	got = a.ask("GET", "/v1/usage?rule=shop.user&fleet=true&n=8", "", bearer(readToken))
	b.end()
	if err := <-b.stopped; err != nil {
		t.Fatal(err)
	}
	if got = a.ask("GET", "/v1/usage?rule=shop.user&fleet=true&n=8&cursor="+got.json["cursor"].(string), "", bearer(readToken)); got.code != 503 || !strings.Contains(got.text, b.addr()) {
		t.Errorf("a replica that has gone: got %d %s", got.code, got.text)
	}
}

// A cursor holds for its rule, for the rules in force, and for the store.
func TestCursors(t *testing.T) {
	var hash atomic.Value
	hash.Store("one")
	r := start(t, listening{change: func(o *admin.Options) {
		o.Rules = func() *explain.Rules { return &explain.Rules{Hash: hash.Load().(string)} }
	}})
	for i := range 20 {
		r.charge(fmt.Sprint(i), 1)
	}
	first := r.ask("GET", "/v1/usage?rule=shop.user&n=5", "", bearer(readToken))
	cursor, _ := first.json["cursor"].(string)
	if first.code != 200 || cursor == "" || len(first.json["rows"].([]any)) > 5 {
		t.Fatalf("got %d %s", first.code, first.text)
	}
	for query, want := range map[string]string{
		"rule=shop.user&n=5&cursor=" + cursor:        "200",
		"rule=shop.route&cursor=" + cursor:           "400 the cursor is of the rule shop.user and not of shop.route",
		"rule=shop.user&cursor=" + cursor[1:]:        "400 the cursor is none of an earlier answer",
		"rule=shop.user&cursor=x":                    "400 the cursor is none of an earlier answer",
		"rule=shop.user&fleet=true&cursor=" + cursor: "400 want the same fleet as before",
		"rule=shop.usr":                              `404 did you mean \"shop.user\"`,
		"rule=shop.vip":                              "400 unlimited",
		"":                                           "400 rule is empty",
		"rule=shop.user&above=x":                     `400 above is \"x\": want the part of a limit`,
		"rule=shop.user&above=-1":                    "400 above is",
		"rule=shop.user&above=NaN":                   "400 above is",
		"rule=shop.user&n=1001":                      "400 n is 1001: want 1 to 1000",
		"rule=shop.user&nonsense=1":                  "400 unknown name",
	} {
		code, text, _ := strings.Cut(want, " ")
		if got := r.ask("GET", "/v1/usage?"+query, "", bearer(readToken)); fmt.Sprint(got.code) != code || !strings.Contains(got.text, text) {
			t.Errorf("%s: got %d %s, want %s", query, got.code, got.text, want)
		}
	}
	hash.Store("another")
	if got := r.ask("GET", "/v1/usage?rule=shop.user&cursor="+cursor, "", bearer(readToken)); got.code != 409 || !strings.Contains(got.text, "the rules have changed") {
		t.Errorf("after a reload: got %d %s", got.code, got.text)
	}
	hash.Store("one")
	r.limits = nil
	other := start(t, listening{change: func(o *admin.Options) {
		o.Rules = func() *explain.Rules { return &explain.Rules{Hash: "one"} }
	}})
	if got := other.ask("GET", "/v1/usage?rule=shop.user&cursor="+cursor, "", bearer(readToken)); got.code != 409 || !strings.Contains(got.text, "started anew") {
		t.Errorf("in another process: got %d %s", got.code, got.text)
	}
}

// slow is a scan that lasts until it is let go.
type slow struct {
	admin.Limits
	begun, end chan struct{}
}

func (s slow) Usage(context.Context, string, float64, int, string) (operate.UsagePage, error) {
	s.begun <- struct{}{}
	<-s.end
	return operate.UsagePage{}, nil
}

// One scan at a time: a second one waits for a moment, and is then told so.
func TestOneUsageAtATime(t *testing.T) {
	wait := slow{begun: make(chan struct{}, 2), end: make(chan struct{})}
	r := start(t, listening{change: func(o *admin.Options) { wait.Limits, o.Limits = o.Limits, wait }})
	done := make(chan answered, 1)
	go func() { done <- r.ask("GET", "/v1/usage?rule=shop.user", "", bearer(readToken)) }()
	<-wait.begun
	for _, ask := range []func() answered{
		func() answered { return r.ask("GET", "/v1/usage?rule=shop.user", "", bearer(readToken)) },
		func() answered {
			return r.ask("POST", "/v1/reset", `{"domain":"shop","rule":"shop.user","all_matching":true}`, bearer(writeToken))
		},
	} {
		if got := ask(); got.code != 429 || !strings.Contains(got.text, "lists the keys of the store") {
			t.Errorf("got %d %s", got.code, got.text)
		}
	}
	close(wait.end)
	if got := <-done; got.code != 200 {
		t.Errorf("the first: got %d %s", got.code, got.text)
	}
	testenv.Eventually(t, 20*time.Second, func() bool {
		return r.ask("GET", "/v1/usage?rule=shop.user", "", bearer(readToken)).code == 200
	}, "the next one may")
}
