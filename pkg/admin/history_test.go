package admin_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/admin/events"
)

// history reads GET /v1/history.
func (r *rig) history(query string) (kinds string, h admin.History) {
	r.t.Helper()
	got := r.ask("GET", "/v1/history"+query, "", bearer(readToken))
	if err := json.Unmarshal([]byte(got.text), &h); err != nil || got.code != 200 {
		r.t.Fatalf("got %d %s", got.code, got.text)
	}
	var all []string
	for _, e := range h.Events {
		all = append(all, e.Kind)
	}
	return strings.Join(all, " "), h
}

// Changes of counters stand between the other events, and are in the audit only.
func TestHistory(t *testing.T) {
	r := start(t, listening{})
	if got := r.ask("GET", "/v1/history", "", bearer(readToken)); got.text != `{"events":[]}`+"\n" {
		t.Errorf("nothing happened: %s", got.text)
	}
	r.happens.Loaded(events.InForce{Hash: "abc"}, nil)
	r.ask("POST", "/v1/grant", annsRequest+`,"hits":5,"reason":"ticket 4711"}`, bearer(writeToken))
	r.happens.Refused([]string{"rules.yaml:1:1: wrong", "rules.yaml:2:1: wrong"})
	r.ask("POST", "/v1/reset", annsRequest+"}", bearer(writeToken))
	r.ask("POST", "/v1/reset", `{"domain":"shop","rule":"shop.user","all_matching":true}`, bearer(writeToken))
	r.happens.Drains()
	kinds, h := r.history("")
	if kinds != "drain reset rules-refused grant rules-loaded" && kinds != "drain reset reset rules-refused grant rules-loaded" {
		t.Fatalf("got %s", kinds)
	}
	grant := h.Events[len(h.Events)-2]
	if !strings.HasPrefix(grant.Text, "alice granted 5 hits to shop.user (user=ann)") ||
		!strings.Contains(grant.Text, `: count 0, remaining 10 → count 0, granted 5, remaining 15, because of "ticket 4711". The grant ends at 2`) {
		t.Errorf("got %s", grant.Text)
	}
	if text := r.ask("GET", "/v1/history", "", bearer(readToken)).text; !strings.Contains(text, `"hash":"abc","domains":0,"rules":0}`) ||
		!strings.Contains(text, `"problems":["rules.yaml:1:1: wrong","rules.yaml:2:1: wrong"]}`) || strings.Contains(text, "seconds") {
		t.Errorf("got %s", text)
	}
	if kinds, _ := r.history("?n=2&since=1h"); kinds != "drain reset" {
		t.Errorf("the newest two: %s", kinds)
	}
	if kinds, _ := r.history("?since=0s"); kinds != "" {
		t.Errorf("since now: %s", kinds)
	}
	for query, want := range map[string]string{
		"?since=yesterday": "want a duration", "?since=-1h": "want a duration",
		"?n=1001": "want 1 to 1000", "?n=-1": "want 1 to 1000",
	} {
		if got := r.ask("GET", "/v1/history"+query, "", bearer(readToken)); got.code != 400 || !strings.Contains(got.text, want) {
			t.Errorf("%s: got %d %s", query, got.code, got.text)
		}
	}
}

func TestFleetsHistory(t *testing.T) {
	b := start(t, listening{})
	a := inFleet(t, listening{}, b.addr(), "127.0.0.1:OWN")
	a.happens.Loaded(events.InForce{}, nil)
	b.ask("POST", "/v1/reset", annsRequest+"}", bearer(writeToken))
	a.happens.Drains()
	kinds, h := a.history("?fleet=true&n=2&since=1h")
	if kinds != "drain reset" || h.Events[0].Replica != a.addr() || h.Events[1].Replica != b.addr() || len(h.Replicas) != 2 {
		t.Errorf("got %s %+v", kinds, h)
	}
	b.happens.Loaded(events.InForce{}, nil)
	b.happens.Refused([]string{"rules.yaml:1:1: wrong"})
	a.happens.Refused([]string{"rules.yaml:2:2: wrong"})
	if kinds, h := a.history("?fleet=true"); kinds != "rules-refused rules-refused rules-loaded drain reset" ||
		h.Events[2].Replica != "" || strings.Join(h.Events[2].Replicas, " ") != strings.Join(slices.Sorted(slices.Values([]string{a.addr(), b.addr()})), " ") {
		t.Errorf("an event of both stands once: got %s %+v", kinds, h.Events)
	}
	if kinds, h := a.history("?n=3"); kinds != "rules-refused drain rules-loaded" || h.Replicas != nil || h.Events[0].Replica != "" {
		t.Errorf("without fleet: got %s %+v", kinds, h)
	}
	if got := a.ask("GET", "/v1/history?fleet=true&since=x", "", bearer(readToken)); got.code != 400 {
		t.Errorf("got %d %s", got.code, got.text)
	}
}

// TestFleetsMemory: what replicas and a process before them had, and the store remembers, is told once, with
// the replica that had it as far as it is there.
func TestFleetsMemory(t *testing.T) {
	b, gone := start(t, listening{}), start(t, listening{})
	a := inFleet(t, listening{}, b.addr(), "127.0.0.1:OWN")
	gone.happens.Refused([]string{"rules.yaml:1:1: wrong"})
	b.happens.Drains()
	text := b.happens.Merge(gone.happens.Merge(nil, 100), 100)
	if again := gone.happens.Merge(text, 100); string(again) != string(text) {
		t.Errorf("merged again: got %s, want %s", again, text)
	}
	a.happens.Recall(text)
	b.happens.Loaded(events.InForce{}, nil)
	a.happens.Loaded(events.InForce{}, nil)
	kinds, h := a.history("?fleet=true")
	if kinds != "rules-loaded drain rules-refused" || len(h.Events[0].Replicas) != 2 ||
		h.Events[1].Replica != b.addr() || h.Events[1].Earlier || h.Events[2].Replica != "" || !h.Events[2].Earlier {
		t.Errorf("got %s %+v", kinds, h.Events)
	}
	if text := a.happens.Merge([]byte(`[{"kind":"x"},{"time":"2026-11-26T00:00:00Z","kind":"y","text":""}]`), 1); strings.Count(string(text), `"kind"`) != 1 ||
		!strings.Contains(string(text), "rules-loaded") || strings.Contains(string(text), "earlier") {
		t.Errorf("the newest one: got %s", text)
	}

	gone.charge("ann", 11)
	gone.charge("ann", 11)
	a.denied.Recall(gone.denied.Merge(nil, 100))
	b.denied.Recall(gone.denied.Merge(nil, 100))
	b.charge("ann", 11)
	var l admin.DenialsOfAll
	got := a.ask("GET", "/v1/denials?fleet=true&group=true", "", bearer(readToken))
	if err := json.Unmarshal([]byte(got.text), &l); err != nil || len(l.Groups) != 1 || l.Groups[0].Count != 3 || l.Groups[0].Earlier != 2 {
		t.Errorf("got %s, want 3 denials of which 2 are earlier", got.text)
	}
}
