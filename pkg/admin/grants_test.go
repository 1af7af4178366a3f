package admin_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/service/operate"
)

// A grant can be for one of several limits, and tried first. The grants in force are listed
// until they are used up, ended or reset.
func TestGrantsToOneLimit(t *testing.T) {
	eachStore(t, func(r *rig) {
		both := one("both", "x", "")
		grant := func(body string) answered {
			return r.ask("POST", "/v1/grant", both+body+"}", bearer(writeToken))
		}
		inForce := func() []operate.GrantInForce {
			t.Helper()
			got := r.ask("GET", "/v1/grants", "", bearer(readToken))
			var document admin.Grants
			if err := json.Unmarshal([]byte(got.text), &document); err != nil || got.code != 200 || document.Grants == nil {
				t.Fatalf("got %d %s, %v", got.code, got.text, err)
			}
			return document.Grants
		}
		for range 10 {
			r.asks("both", "x", "")
		}
		for body, want := range map[string]string{
			`,"hits":101`:                                    `the limit per-minute: 101 hits are too many: one grant has at most 100 (10 times the limit of 10)`,
			`,"hits":101,"dry_run":true`:                     `at most 100 (`,
			`,"hits":5,"only":"per-hour"`:                    `the request has no limit \"per-hour\": want one of per-minute, 1000 per day`,
			`,"hits":10001,"only":"1000/day","dry_run":true`: `10001 hits are too many: one grant has at most 10000 (`,
		} {
			if got := grant(body); got.code != 400 || got.json["code"] != "INVALID_ARGUMENT" || !strings.Contains(got.text, want) {
				t.Errorf("%s: got %d %s", body, got.code, got.text)
			}
		}
		dry := grant(`,"hits":5000,"only":"1000 per day","dry_run":true`)
		if dry.code != 200 || dry.json["dry_run"] != true || !strings.Contains(dry.text, `"before":{"count":10,"remaining":990},"after":{"count":10,"granted":5000,"remaining":5990},"until":"`) {
			t.Errorf("dry run: got %d %s", dry.code, dry.text)
		}
		if got := inForce(); len(got) != 0 {
			t.Errorf("after refused grants and dry runs: %+v", got)
		}
		for body, after := range map[string]string{
			`,"hits":5000,"only":"1000 per day"`: `"after":{"count":10,"granted":5000,"remaining":5990},"until":"`,
			`,"hits":5,"only":"per-minute"`:      `"after":{"count":10,"granted":5,"remaining":5},"until":"`,
		} {
			if got := grant(body); got.code != 200 || got.json["changed"] != 1.0 || !strings.Contains(got.text, after) {
				t.Errorf("%s: got %d %s", body, got.code, got.text)
			}
		}
		r.asks("both", "x", "")
		left := map[int64]int64{}
		for _, g := range inForce() {
			left[g.Hits] = g.Left
			if g.Who != "alice" || g.Domain != "shop" || g.Rule != "shop.both" || g.Key == "" || time.Since(g.Time) > time.Minute || !g.Ends.After(g.Time) {
				t.Errorf("got %+v", g)
			}
		}
		if len(left) != 2 || left[5000] != 4999 || left[5] != 4 {
			t.Errorf("left is %v", left)
		}
		for range 4 {
			r.asks("both", "x", "")
		}
		if got := inForce(); len(got) != 1 || got[0].Left != 4995 {
			t.Errorf("after 4 hits more: %+v", got)
		}
		r.ask("POST", "/v1/reset", both+"}", bearer(writeToken))
		if got := inForce(); len(got) != 0 {
			t.Errorf("after a reset: %+v", got)
		}
	})
}

// The grants of a fleet have the addresses of the replicas that made them.
func TestGrantsOfAFleet(t *testing.T) {
	b := start(t, listening{})
	a := inFleet(t, listening{}, b.addr(), "127.0.0.1:OWN")
	for _, on := range []*rig{a, b} {
		if got := on.ask("POST", "/v1/grant", annsRequest+`,"hits":3}`, bearer(writeToken)); got.code != 200 {
			t.Fatal(got.text)
		}
	}
	var document admin.Grants
	got := a.ask("GET", "/v1/grants?fleet=true", "", bearer(readToken))
	if err := json.Unmarshal([]byte(got.text), &document); err != nil || len(document.Grants) != 2 || len(document.Replicas) != 2 {
		t.Fatalf("got %s, %v", got.text, err)
	}
	if document.Grants[0].Replica != b.addr() || document.Grants[1].Replica != a.addr() {
		t.Errorf("got %s", got.text)
	}
	// A replica forgets its grants to a counter that another one has reset.
	a.ask("POST", "/v1/reset", annsRequest+"}", bearer(writeToken))
	if got := b.ask("GET", "/v1/grants", "", bearer(readToken)); got.text != `{"grants":[]}`+"\n" {
		t.Errorf("after a reset on another replica: got %s", got.text)
	}
}
