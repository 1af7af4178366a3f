package admin_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/admin/events"
	"example.org/rls/pkg/denials"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/top"
)

// why reads GET /v1/why.
func (r *rig) why(query string) (w admin.Why) {
	r.t.Helper()
	got := r.ask("GET", "/v1/why?"+query, "", bearer(readToken))
	if err := json.Unmarshal([]byte(got.text), &w); err != nil || got.code != 200 {
		r.t.Fatalf("%s: got %d %s", query, got.code, got.text)
	}
	return w
}

// whyRig is an API whose process remembers denials and descriptors.
func whyRig(t *testing.T, rules string) *rig {
	seen := denials.New(denials.Options{Keep: 1000})
	limits := newLimits(t, newStore(t), rules, seen)
	return start(t, listening{change: func(o *admin.Options) {
		o.Limits, o.Denials = limits, seen
		o.Memories = []admin.Memory{seen, constant{{Domain: "shop", Entries: user("joanna"), Rule: "shop.user"}}}
	}})
}

// An answer has the limits of the whole value alone, those under one key together, with their denials, the
// last change, the events that concern them and their grants.
func TestWhy(t *testing.T) {
	r := whyRig(t, rules)
	change := func(rule string, from, to string) explain.Change {
		return explain.Change{Rule: rule, From: from, To: to, File: "rules.yaml", Line: 4}
	}
	loaded := func(all ...explain.Change) { r.happens.Loaded(events.InForce{Hash: "abc"}, all) }
	store := func(address string) *events.Outage { return r.happens.Failing(events.Server{Address: address}) }
	loaded(change("shop.user", "50 per minute", "10 per minute"))
	ofOthers := change("shop.user", "99 per minute", "10 per minute")
	ofOthers.Plan = "gold"
	loaded(ofOthers, change("shop.user", "5 per minute", "7 per minute")) // the amount of a row
	loaded(change("shop.route", "6 per hour", "5 per hour"))
	many := make([]explain.Change, 30)
	loaded(many...)
	before := store("10.0.0.1:6379")
	before.Away(time.Now(), errors.New("gone"))
	before.Back(time.Now(), false)
	store("10.0.0.2:6379").Away(time.Now(), errors.New("gone"))
	r.happens.Renewed("gRPC", "CN=rls", time.Now())
	r.charge("ann", 11)
	r.charge("annabel", 11)
	r.chargeEntry("route", "ann", 2)
	r.chargeEntry("vip", "ann", 1)
	r.chargeEntry("route", "ann", 9)
	loaded()
	r.ask("POST", "/v1/grant", annsRequest+`,"hits":5}`, bearer(writeToken))
	r.ask("POST", "/v1/reset", strings.Replace(annsRequest, "ann", "annabel", 1)+"}", bearer(writeToken))
	w := r.why("q=ann")
	var got []string
	for _, l := range w.Limits {
		line := fmt.Sprintf("%s: %s used %v denied %d %v", l.Block("ann"), l.Rule, *l.Used, l.Denied, l.LastDenial.IsZero())
		if l.Changed != nil {
			line += " changed " + l.Changed.Words()
		}
		got = append(got, line)
	}
	const want = `shop user=ann: shop.user used 10 denied 1 false changed 50 → 10 per minute (rules.yaml:4)
shop route=ann: shop.route used 11 denied 1 false changed 6 → 5 per hour (rules.yaml:4)`
	if got := strings.Join(got, "\n"); got != want && got != strings.Join([]string{strings.Split(want, "\n")[1], strings.Split(want, "\n")[0]}, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	var kinds []string
	for _, e := range w.Events {
		kinds = append(kinds, e.Kind)
	}
	// The last load, the outage that went on, and the load whose changes are not all told.
	if got := strings.Join(kinds, " "); got != "grant rules-loaded store-away rules-loaded" {
		t.Errorf("events: got %s", got)
	}
	if len(w.Denials) != 2 || len(w.Grants) != 1 || w.Grants[0].Left != 5 || w.Candidates != nil || w.Remembered.IsZero() {
		t.Errorf("got %+v", w)
	}
	if !strings.HasPrefix(w.Command, "rls grant --domain=shop --descriptor=route=ann --hits=5") {
		t.Errorf("command %s", w.Command)
	}
	if w := r.why("q=ann&since=1ns"); len(w.Denials)+len(w.Events) != 0 || len(w.Limits) != 2 {
		t.Errorf("of the last moment: %+v", w)
	}

	for query, want := range map[string]string{
		"q=anna":  `[annabel joanna] [] rls why annabel`,
		"q=jo":    `[joanna] [] rls why joanna`,
		"q=jonna": `[] [joanna] rls why joanna`,
		"q=b%27c": `[] [] rls find 'b'\''c'`,
	} {
		w := r.why(query)
		if got := fmt.Sprint(w.Candidates, w.Suggestions, " ", w.Command); got != want || w.Known() || len(w.Events) > 0 {
			t.Errorf("%s: got %s", query, got)
		}
	}
	for query, want := range map[string]string{"": "q is empty", "?q=ann&since=soon": "want a duration", "?q=ann&n=1": "unknown name"} {
		if got := r.ask("GET", "/v1/why"+query, "", bearer(readToken)); got.code != 400 || !strings.Contains(got.text, want) {
			t.Errorf("%s: got %d %s", query, got.code, got.text)
		}
	}
}

// A limit that requests bring has the denials of its counter, which go by the rule in whose place it is.
func TestWhyOfALimitThatRequestsBring(t *testing.T) {
	denied, counted := denials.New(denials.Options{Keep: 10}), top.New(top.Options{Keys: 10, StoredKey: strings.Clone})
	r := start(t, listening{change: func(o *admin.Options) {
		o.Limits, o.Top, o.Denials = newLimits(t, newStore(t), manyWindows, denied, counted), counted, denied
		o.Memories = []admin.Memory{denied}
	}})
	for r.asks("user", "ann", "2/hour") {
	}
	if w := r.why("q=ann"); len(w.Limits) != 1 || w.Limits[0].Terms.Limit != 2 || w.Limits[0].Denied != 1 || w.Limits[0].LastDenial.IsZero() {
		t.Errorf("got %+v", w.Limits)
	}
}

// An answer is bounded, however many descriptors have the value.
func TestWhyIsBounded(t *testing.T) {
	r := whyRig(t, `domain: shop
descriptors:
- key: k
  descriptors: [{key: user, rate_limits: [{unit: minute, requests_per_unit: 1}, {unit: hour, requests_per_unit: 1}]}]
- {key: part, rate_limit: {unit: minute, requests_per_unit: 1}}
`)
	w := r.why("q=acme") // before that nothing is known
	if w.Known() {
		t.Errorf("got %+v", w)
	}
	for i := range 150 {
		ask := service.Request{Domain: "shop", Hits: 2, Descriptors: []service.Descriptor{
			{Entries: append(user(fmt.Sprint("k", i)), user("acme")...)}, {Entries: user(fmt.Sprint("ann", i))},
		}}
		ask.Descriptors[0].Entries[0].Key, ask.Descriptors[1].Entries[0].Key = "k", "part"
		if _, err := r.limits.Evaluate(t.Context(), &ask); err != nil {
			t.Fatal(err)
		}
	}
	if w := r.why("q=acme"); len(w.Limits) != 100 || len(w.Denials) != 100 ||
		!strings.Contains(w.Command, " --only='1 per ") {
		t.Errorf("%d limits, %d groups, %s", len(w.Limits), len(w.Denials), w.Command)
	}
	if w := r.why("q=ann"); len(w.Candidates) != 20 || len(w.Suggestions) != 0 {
		t.Errorf("got %+v", w)
	}
	if w := r.why("q=anx1"); len(w.Suggestions) != 3 {
		t.Errorf("got %+v", w)
	}
}

// A replica that knows of the value answers for the others, whose candidates do not count then.
func TestFleetsWhy(t *testing.T) {
	b := whyRig(t, rules)
	a := inFleet(t, listening{change: func(o *admin.Options) {
		o.Memories = []admin.Memory{constant{{Domain: "shop", Entries: user("joanna")}, {Domain: "shop", Entries: user("hannah")}}}
	}}, b.addr(), "127.0.0.1:OWN", "127.0.0.1:1")
	b.charge("ann", 11)
	b.charge("cyd", 11)
	a.charge("cyd", 12)
	w := a.why("q=ann&fleet=true")
	if len(w.Limits) != 1 || len(w.Denials) != 1 || w.Candidates != nil || len(w.Replicas) != 3 || w.Replicas[2].OK {
		t.Errorf("got %+v", w)
	}
	if w := a.why("q=ann"); len(w.Limits) != 0 || strings.Join(w.Candidates, " ") != "hannah joanna" || w.Replicas != nil {
		t.Errorf("alone: got %+v", w)
	}
	if w := a.why("q=nna&fleet=true"); strings.Join(w.Candidates, " ") != "hannah joanna" {
		t.Errorf("candidates: got %+v", w)
	}
	if w := b.why("q=ann&fleet=true"); len(w.Limits) != 1 || w.Replicas != nil {
		t.Errorf("without a fleet: got %+v", w)
	}
	if w := a.why("q=cyd&fleet=true"); len(w.Denials) != 1 || w.Denials[0].Count != 2 {
		t.Errorf("a counter of both: got %+v", w)
	}
}

// TestFleetsWhyOfEarlierDenials: the denials that each replica knows of an earlier process count once.
func TestFleetsWhyOfEarlierDenials(t *testing.T) {
	seen := denials.New(denials.Options{Keep: 1000})
	limits := newLimits(t, newStore(t), rules, seen)
	start(t, listening{change: func(o *admin.Options) { o.Limits, o.Denials = limits, seen }}).charge("ann", 13)
	recall := func(o *admin.Options) {
		o.Denials.Recall(seen.Merge(nil, 10))
		o.Memories = []admin.Memory{o.Denials}
	}
	b := start(t, listening{change: recall})
	a := inFleet(t, listening{change: recall}, b.addr(), "127.0.0.1:OWN")
	w := a.why("q=ann&fleet=true")
	if len(w.Limits) != 1 || len(w.Denials) != 1 || w.Denials[0].Count != 1 || w.Limits[0].Denied != 1 ||
		w.Limits[0].LastDenial.IsZero() {
		t.Errorf("got %+v, %+v", w.Limits, w.Denials)
	}
	b.charge("ann", 14)
	if w := a.why("q=ann&fleet=true"); w.Denials[0].Count != 2 || w.Limits[0].Denied != 2 {
		t.Errorf("another denial: got %+v, %+v", w.Limits, w.Denials)
	}
}

// TestTheNextCommandLasts: a grant that would end with a window of a minute is proposed for an hour.
func TestTheNextCommandLasts(t *testing.T) {
	r := whyRig(t, rules)
	r.charge("ann", 10)
	r.charge("ann", 1)
	if got, want := r.why("q=ann").Command, "rls grant --domain=shop --descriptor=user=ann --hits=10 --for=1h"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestWhyOfAnUnlimitedValue: a rule without a limit has no terms, and is told all the same.
func TestWhyOfAnUnlimitedValue(t *testing.T) {
	r := whyRig(t, `domain: shop
descriptors:
- {key: user, rate_limit: {unit: minute, requests_per_unit: 10}}
- {key: user, value: monitoring, rate_limit: {unlimited: true}}
`)
	r.charge("monitoring", 1)
	if w := r.why("q=monitoring"); len(w.Limits) != 1 || !w.Limits[0].Unlimited || w.Command != "rls denials --follow monitoring" {
		t.Errorf("got %+v", w)
	}
}
