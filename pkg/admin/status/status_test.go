package status_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/pkg/admin/status"
	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/yaml"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/service"
)

const shop = `domain: shop
descriptors:
  - key: plan
    value: free
    descriptors:
      - key: user
        rate_limit: {unit: minute, requests_per_unit: 10, strategy: sliding_window}
      - key: route
        value: /checkout/*
        rate_limits:
          - {unit: minute, unit_multiplier: 5, requests_per_unit: 100, strategy: token_bucket, burst: 20}
          - {unit: day, requests_per_unit: 1000, name: daily}
  - key: banner
    rate_limit: {unlimited: true}
  - key: tenant
    value: t*
    share_threshold: true
    shadow_mode: true
    rate_limit: {unit: second, requests_per_unit: 3}
`

func load(t testing.TB, text string) *descriptors.Tree {
	t.Helper()
	tree, _, err := yaml.Load([]yaml.Text{{Name: "shop.yaml", Content: []byte(text)}}, yaml.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// asked is a request with one descriptor, of which each limit decided the same.
func asked(t testing.TB, tree *descriptors.Tree, ok bool, entries ...descriptors.Entry) *service.Observation {
	t.Helper()
	rule := tree.Domain("shop").Match(entries)
	if rule == nil {
		t.Fatalf("no rule for %v", entries)
	}
	o := &service.Observation{Domain: "shop", Descriptors: 1, Took: 300 * time.Microsecond, Result: service.Passed}
	for i := range rule.Limits {
		o.Verdicts = append(o.Verdicts, service.Verdict{
			Rule: rule, Limit: &rule.Limits[i], Entries: entries, Hits: 1, Decided: true, Counted: true,
			Is: algorithms.Decision{Allowed: ok},
		})
	}
	if !ok {
		o.Result = service.Limited
	}
	return o
}

func document(t testing.TB, text []byte) (d status.Document) {
	t.Helper()
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return d
}

func rules(t testing.TB, s *process) map[string]map[string]any {
	t.Helper()
	var l struct{ Rules []map[string]any }
	if err := json.Unmarshal(s.RulesJSON("", 1000, 0), &l); err != nil {
		t.Fatal(err)
	}
	found := map[string]map[string]any{}
	for _, r := range l.Rules {
		found[r["rule"].(string)] = r
	}
	return found
}

// process is a Status and the counts that it reads.
type process struct {
	*status.Status
	service.Observer
	inForce func(*descriptors.Tree)
}

func open(t testing.TB, o status.Options) *process {
	t.Helper()
	m, err := metrics.New(metrics.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o.Counts = m
	return &process{status.New(o), m.Observer(), m.InForce}
}

func (p *process) Loaded(tree *descriptors.Tree, warnings []string, err error) {
	if tree != nil {
		p.inForce(tree)
	}
	p.Status.Loaded(tree, warnings, err)
}

// running runs a Status in a bubble of synctest until do returns.
func running(t *testing.T, o status.Options, do func(*testing.T, *process)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		s := open(t, o)
		go func() { _ = s.Run(ctx) }()
		do(t, s)
		stop()
		synctest.Wait()
	})
}

// serversNow are servers that a test changes while a Status asks for them.
type serversNow struct{ atomic.Value }

func (s *serversNow) set(servers []status.Server) { s.Store(servers) }

func (s *serversNow) get() []status.Server {
	servers, _ := s.Load().([]status.Server)
	return servers
}

func pass(d time.Duration) { <-time.After(d); synctest.Wait() }

var (
	ann     = []descriptors.Entry{{Key: "plan", Value: "free"}, {Key: "user", Value: "ann"}}
	pay     = []descriptors.Entry{{Key: "plan", Value: "free"}, {Key: "route", Value: "/checkout/pay"}}
	tenant7 = []descriptors.Entry{{Key: "tenant", Value: "t7"}}
)

func TestRates(t *testing.T) {
	running(t, status.Options{Facts: status.Document{Store: status.Store{Backend: "memory"}}}, func(t *testing.T, s *process) {
		tree := load(t, shop)
		s.Loaded(tree, nil, nil)
		pass(time.Minute)
		for range 10 {
			for i := range 10 {
				s.Observe(asked(t, tree, i > 2, ann...))
			}
			s.Observe(asked(t, tree, true, pay...)) // two limits, one descriptor
			s.Observe(&service.Observation{Result: service.NoStore, Took: time.Second})
			pass(time.Second)
		}
		d := document(t, s.JSON(0))
		if d.Traffic.Requests != 12 || d.Traffic.Denied != 3 || d.Traffic.Errors != 1 {
			t.Errorf("traffic %+v, want 12 requests, 3 denied and 1 error a second", d.Traffic)
		}
		if d.Traffic.Total != (status.Counts[uint64]{Requests: 120, Denied: 30, Errors: 10}) {
			t.Errorf("total %+v", d.Traffic.Total)
		}
		if p50 := time.Duration(d.Latency.P50); p50 < 280*time.Microsecond || p50 > 320*time.Microsecond {
			t.Errorf("p50 %v, want about 300µs", p50)
		}
		if p99 := time.Duration(d.Latency.P99); p99 < 940*time.Millisecond || p99 > 1060*time.Millisecond {
			t.Errorf("p99 %v, want about 1s", p99)
		}
		all := rules(t, s)
		if r := all["shop.plan_free.user"]; r["rate"] != 10.0 || r["denied_rate"] != 3.0 || r["requests"] != 100.0 || r["denied"] != 30.0 {
			t.Errorf("user: %v", r)
		}
		if r := all["shop.plan_free.route_/checkout/*"]; r["rate"] != 1.0 || r["requests"] != 10.0 {
			t.Errorf("route: %v", r)
		}
		if got, want := d.Traffic.ErrorsByKind, (map[string]status.ErrorsOfKind{
			"invalid_request": {}, "no_rules": {}, "store_unavailable": {Rate: 1, Total: 10}, "caller_gone": {},
		}); !maps.Equal(got, want) {
			t.Errorf("errors %+v, want %+v", got, want)
		}
		for _, result := range []service.Result{service.Invalid, service.Invalid, service.NoRules, service.CallGone} {
			s.Observe(&service.Observation{Result: result})
		}
		pass(5 * time.Second)
		if got, want := document(t, s.JSON(0)).Traffic.ErrorsByKind, (map[string]status.ErrorsOfKind{
			"invalid_request": {Rate: .2, Total: 2}, "no_rules": {Rate: .1, Total: 1}, "store_unavailable": {Rate: .5, Total: 10}, "caller_gone": {Rate: .1, Total: 1},
		}); !maps.Equal(got, want) {
			t.Errorf("errors %+v, want %+v", got, want)
		}
		pass(time.Minute)
		if d := document(t, s.JSON(0)); d.Traffic.Requests != 0 {
			t.Errorf("%v requests a second after a quiet minute", d.Traffic.Requests)
		}
		if r := rules(t, s)["shop.plan_free.user"]; r["rate"] != 0.0 || r["requests"] != 100.0 {
			t.Errorf("user after a quiet minute: %v", r)
		}
		pass(15 * time.Minute)
		if r := rules(t, s)["shop.plan_free.user"]; r["requests"] != 0.0 {
			t.Errorf("user after 15 quiet minutes: %v", r)
		}
	})
}

func TestHistory(t *testing.T) {
	running(t, status.Options{}, func(t *testing.T, s *process) {
		tree := load(t, shop)
		s.Loaded(tree, nil, nil)
		for n := range 3 {
			for range n + 1 {
				s.Observe(asked(t, tree, false, ann...))
			}
			pass(time.Second)
		}
		for text := range s.Watch(t.Context()) {
			h := document(t, text).History
			if h == nil || len(h.Requests) != 900 || len(h.P99) != 900 {
				t.Fatalf("no history of 900 seconds")
			}
			if got := h.Requests[896:]; !slices.Equal(got, []uint32{0, 1, 2, 3}) || !slices.Equal(h.Denied[896:], got) {
				t.Errorf("requests %v, denied %v, want 1, 2 and 3 in the last seconds", got, h.Denied[896:])
			}
			return
		}
		t.Error("no event")
	})
}

// A longer range has values of more seconds, at the same times in all columns, and ends with a whole one.
func TestRanges(t *testing.T) {
	running(t, status.Options{}, func(t *testing.T, s *process) {
		tree := load(t, shop)
		s.Loaded(tree, nil, nil)
		pass(7 * time.Second)
		begin := time.Now()
		for range 61 {
			s.Observe(asked(t, tree, false, ann...))
			pass(time.Second)
		}
		for _, later := range []time.Duration{30 * time.Second, 20 * time.Minute, 2 * time.Hour, 5 * time.Hour} {
			pass(later)
			for name, length := range status.Ranges {
				h := document(t, s.JSON(length)).History
				step := time.Duration(h.Step)
				if step != length/900 || len(h.Requests) != 900 || len(h.P50) != 900 || time.Since(h.Until) >= 2*step+time.Second {
					t.Fatalf("%s: a value each %v, %d and %d of them, until %v at %v", name, step, len(h.Requests), len(h.P50), h.Until, time.Now())
				}
				var sum uint32
				for i, n := range h.Requests {
					sum += n
					ends := h.Until.Add(time.Duration(i-899) * step)
					if !ends.Add(time.Second).Truncate(step).Equal(ends.Add(time.Second)) {
						t.Fatalf("%s: the value %d ends at %v", name, i, ends)
					}
					if n != h.Denied[i] || n > 0 != (h.P99[i] > 0) || n > uint32(step/time.Second) || n > 0 && ends.Before(begin) {
						t.Errorf("%s: %d requests, %d denied and p99 %d µs until %v", name, n, h.Denied[i], h.P99[i], ends)
					}
				}
				if want := map[bool]uint32{true: 61}[time.Since(begin) < length]; sum != want {
					t.Errorf("%s: %d requests %v after the first, want %d", name, sum, time.Since(begin), want)
				}
			}
		}
	})
}

func TestEvents(t *testing.T) {
	running(t, status.Options{}, func(t *testing.T, s *process) {
		tree := load(t, shop)
		s.Loaded(tree, nil, nil)
		var got [2][][]byte
		for i := range got {
			go func() {
				for text := range s.Watch(t.Context()) {
					got[i] = append(got[i], text)
				}
			}()
		}
		pass(time.Second)
		s.Observe(asked(t, tree, true, ann...))
		pass(time.Second)
		last := document(t, got[0][len(got[0])-1])
		if last.Second == nil || last.Second.Requests != 1 || last.History != nil ||
			len(last.Rates) != 1 || last.Rates[0].Rule != "shop.plan_free.user" {
			t.Errorf("last event %+v", last)
		}
		if n := len(got[0]); n < 3 || len(got[1]) != n || &got[0][n-1][0] != &got[1][n-1][0] {
			t.Errorf("%d and %d events, want at least 3, which all listeners share", n, len(got[1]))
		}
	}) // synctest fails if a listener is left after Run
}

// A listener that comes after the end of Run does not wait.
func TestEventsAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, status.Options{})
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if err := s.Run(ctx); err != nil {
			t.Fatal(err)
		}
		events := 0
		for range s.Watch(t.Context()) {
			events++
		}
		if events != 1 {
			t.Errorf("%d events, want the first one only", events)
		}
	})
}

// The status has the number of processes that share the store, if somebody knows it.
func TestReplicaCount(t *testing.T) {
	for want, o := range map[int]status.Options{0: {}, 3: {Replicas: func() int { return 3 }}} {
		if got := document(t, open(t, o).JSON(0)).ReplicaCount; got != want {
			t.Errorf("got %d, want %d", got, want)
		}
	}
}

func TestHealth(t *testing.T) {
	var servers serversNow
	second := func(role, breaker string) {
		servers.set([]status.Server{{Address: "a:1", Role: "main", Breaker: "closed"}, {Address: "b:1", Role: role, Breaker: breaker}})
	}
	second("main", "closed")
	o := status.Options{Facts: status.Document{Store: status.Store{Backend: "redis"}}, Servers: servers.get}
	running(t, o, func(t *testing.T, s *process) {
		want := func(state string, reasons ...string) {
			t.Helper()
			pass(time.Second)
			h := document(t, s.JSON(0)).Health
			if h.State != state || len(h.Reasons) != len(reasons) {
				t.Fatalf("health %+v, want %s %q", h, state, reasons)
			}
			for i, reason := range reasons {
				if !strings.Contains(h.Reasons[i], reason) {
					t.Errorf("health %+v, want %s %q", h, state, reasons)
				}
			}
		}
		want("critical", "No rules are in force")
		pass(2 * time.Second)
		s.Loaded(load(t, shop), nil, nil)
		want("ok")
		was := document(t, s.JSON(0)).Health.Was
		if len(was) != 1 || was[0].State != "critical" || was[0].Until.Sub(was[0].From) != 3*time.Second || !strings.Contains(was[0].Reasons[0], "No rules") {
			t.Errorf("the state was %+v, want critical for 3 s", was)
		}
		pass(10 * time.Minute)
		if was := document(t, s.JSON(0)).Health.Was; was != nil {
			t.Errorf("10 minutes later the state was %+v", was)
		}
		second("main", "open")
		want("warning", "1 of 2 servers of the store are away")
		second("per-second", "open")
		want("critical", "The store is away")
		second("per-second", "closed")
		s.Loaded(nil, nil, errors.New("shop.yaml:3:1: unknown key"))
		want("warning", "The newest rules were refused")
		if d := document(t, s.JSON(0)); d.Rules.Refused != "shop.yaml:3:1: unknown key" || d.Rules.Rules != 4 {
			t.Errorf("rules %+v", d.Rules)
		}
		s.Loaded(load(t, shop), nil, nil)
		s.Observe(&service.Observation{Result: service.NoStore})
		want("warning", "requests a second end with an error")
		pass(11 * time.Second)
		want("ok")
	})
}

// While servers are away, the rules say where the policy decides: only limits per second
// are on servers of the role per-second.
func TestPoliciesThatDecide(t *testing.T) {
	var now serversNow
	o := status.Options{Facts: status.Document{Store: status.Store{Backend: "redis"}}, Servers: now.get}
	running(t, o, func(t *testing.T, s *process) {
		s.Loaded(load(t, shop), nil, nil)
		for _, test := range []struct{ servers, store, minute, second string }{
			{"main closed", "", "", ""},
			{"main open", "all", "all", "all"},
			{"main half-open, main closed", "some", "some", "some"},
			{"main open, per-second closed", "some", "all", ""},
			{"main closed, per-second open", "some", "", "all"},
			{"main open, per-second half-open", "all", "all", "all"},
			{"", "", "", ""},
		} {
			var servers []status.Server
			for i, text := range strings.Split(test.servers, ", ") {
				if role, breaker, is := strings.Cut(text, " "); is {
					servers = append(servers, status.Server{Address: fmt.Sprint(i), Role: role, Breaker: breaker})
				}
			}
			now.set(servers)
			pass(time.Second)
			of := func(rule string) map[string]any { return rules(t, s)[rule]["limits"].([]any)[0].(map[string]any) }
			minute, second := of("shop.plan_free.user"), of("shop.tenant_t*")
			absent := func(text string) any {
				if text == "" {
					return nil
				}
				return text
			}
			if got := document(t, s.JSON(0)).Store.PolicyDecides; got != test.store || minute["policy_decides"] != absent(test.minute) || second["policy_decides"] != absent(test.second) || minute["on_error"] != "error" {
				t.Errorf("%s: store %q, per minute %v, per second %v; want %+v", test.servers, got, minute, second, test)
			}
		}
	})
}

func TestTriedLimitsInWords(t *testing.T) {
	s := open(t, status.Options{Facts: status.Document{Rules: status.InForce{Source: "file", Path: "/rules"}}})
	s.Loaded(load(t, `domain: shop
descriptors:
- key: user
  rate_limits:
  - {unit: minute, requests_per_unit: 9, shadow_mode: true}
  - {unit: hour, requests_per_unit: 90, rollout: 0.5%}
`), nil, nil)
	for i, want := range []string{"9 per minute, fixed_window, shadow, per user", "90 per hour, fixed_window, rollout 0.5 %, per user"} {
		if got := rules(t, s)["shop.user"]["limits"].([]any)[i].(map[string]any)["words"]; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Every field that changes what a limit admits is in its words, and pools are listed as rules are.
func TestFurtherFieldsInWords(t *testing.T) {
	running(t, status.Options{}, func(t *testing.T, s *process) {
		tree := load(t, `domain: shop
pools: {spare: {unit: minute, requests_per_unit: 1000, strategy: token_bucket, burst: 50}, idle: {unit: day, requests_per_unit: 9}}
descriptors:
- key: user
  rate_limits:
  - {unit: month, requests_per_unit: 9, window: calendar, timezone: Europe/Berlin, overdraft: 5}
  - {unit: day, requests_per_unit: 9, window: calendar, thresholds: [{at: 80%}, {at: 90%}]}
  - {unit: minute, requests_per_unit: 9, strategy: sliding_window, precision: 6}
  - {unit: hour, requests_per_unit: 9, borrow_from: spare, max_borrow: 20%}
  descriptors: [{key: id, rate_limit: {unit: minute, requests_per_unit: 9, reserve: {ttl: 1m}}}]
`)
		s.Loaded(tree, nil, nil)
		o, pool := asked(t, tree, true, ann[1]), tree.Domain("shop").Pools["spare"]
		lent := o.Verdicts[3]
		lent.Rule, lent.Limit = pool, &pool.Limits[0]
		o.Verdicts[3].Pool = &lent
		s.Observe(o)
		pass(2 * time.Second)
		var got []string
		var list status.Listing
		if err := json.Unmarshal(s.RulesJSON("", 9, 0), &list); err != nil {
			t.Fatal(err)
		}
		for _, r := range list.Rules {
			for _, l := range r.Limits {
				got = append(got, fmt.Sprintf("%s %v %d: %s", r.Rule, r.Pool, r.Requests, l.Words))
			}
		}
		want := []string{
			"shop.pool_idle true 0: 9 per day, fixed_window, for all together",
			"shop.pool_spare true 1: 1000 per minute, token_bucket, burst 50, for all together",
			"shop.user false 1: 9 per calendar month, fixed_window, in Europe/Berlin, overdraft 5, per user",
			"shop.user false 1: 9 per calendar day, fixed_window, in UTC, thresholds 80 %, 90 %, per user",
			"shop.user false 1: 9 per minute, sliding_window, precision 6, per user",
			"shop.user false 1: 9 per hour, fixed_window, borrows up to 20 % of spare, per user",
			"shop.user.id false 0: 9 per minute, fixed_window, reserve 1m0s, per user",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRulesInWords(t *testing.T) {
	s := open(t, status.Options{Facts: status.Document{Rules: status.InForce{Source: "file", Path: "/rules"}}})
	s.Loaded(load(t, shop), []string{"shop.yaml:1:1: odd"}, nil)
	all := rules(t, s)
	for rule, want := range map[string][]string{
		"shop.plan_free.user":              {"10 per minute, sliding_window, per user"},
		"shop.plan_free.route_/checkout/*": {"100 per 5 minutes, token_bucket, burst 20, per route", "1000 per day, fixed_window, per route"},
		"shop.tenant_t*":                   {"3 per second, fixed_window, for all together"},
		"shop.banner":                      {},
	} {
		r := all[rule]
		if r == nil {
			t.Errorf("no rule %s", rule)
			continue
		}
		var got []string
		for _, l := range r["limits"].([]any) {
			got = append(got, l.(map[string]any)["words"].(string))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", rule, got, want)
		}
	}
	if r := all["shop.plan_free.user"]; r["file"] != "shop.yaml" || r["line"] != 6.0 {
		t.Errorf("place %v:%v", r["file"], r["line"])
	}
	if all["shop.banner"]["unlimited"] != true || all["shop.tenant_t*"]["shadow"] != true {
		t.Errorf("unlimited and shadow: %v, %v", all["shop.banner"], all["shop.tenant_t*"])
	}
	for asked, want := range map[struct {
		q         string
		n, offset int
	}]string{
		{"", 2, 1}:                 "4 of 4: [shop.plan_free.route_/checkout/* shop.banner]",
		{"", 5, 4}:                 "4 of 4: []",
		{"PLAN=free per", 1, 1}:    "2 of 4: [shop.plan_free.route_/checkout/*]",
		{"daily", 5, 0}:            "1 of 4: [shop.plan_free.route_/checkout/*]",
		{"shop.yaml:6", 5, 0}:      "1 of 4: [shop.plan_free.user]",
		{"unlimited", 5, 0}:        "1 of 4: [shop.banner]",
		{"shadow tenant=t*", 5, 0}: "1 of 4: [shop.tenant_t*]",
		{"shadow banner", 5, 0}:    "0 of 4: []",
	} {
		var l status.Listing
		if err := json.Unmarshal(s.RulesJSON(asked.q, asked.n, asked.offset), &l); err != nil {
			t.Fatal(err)
		}
		names := []string{}
		for i := range l.Rules {
			names = append(names, l.Rules[i].Rule)
		}
		if got := fmt.Sprintf("%d of %d: %v", l.Matched, l.Total, names); got != want {
			t.Errorf("%+v: %s, want %s", asked, got, want)
		}
	}
	in := s.InForce()
	if in.Source != "file" || in.Path != "/rules" || len(in.Hash) != 16 || in.Loaded == nil || in.Rules != 4 || in.Domains != 1 || len(in.Warnings) != 1 {
		t.Errorf("in force %+v", in)
	}
}

// A reload keeps the counts of the rules that stay, and forgets the others.
func TestReload(t *testing.T) {
	running(t, status.Options{}, func(t *testing.T, s *process) {
		tree := load(t, shop)
		s.Loaded(tree, nil, nil)
		s.Observe(asked(t, tree, true, ann...))
		s.Observe(asked(t, tree, true, tenant7...))
		pass(2 * time.Second)
		without, _, _ := strings.Cut(shop, "  - key: tenant")
		smaller := load(t, without)
		s.Loaded(smaller, nil, nil)
		s.Observe(asked(t, smaller, true, ann...))
		pass(2 * time.Second)
		all := rules(t, s)
		if all["shop.plan_free.user"]["requests"] != 2.0 || all["shop.tenant_t*"] != nil {
			t.Errorf("rules %v", all)
		}
		s.Loaded(tree, nil, nil)
		pass(time.Second)
		if r := rules(t, s)["shop.tenant_t*"]; r["requests"] != 0.0 {
			t.Errorf("a rule that came back: %v", r)
		}
	})
}

// The past of ten thousand busy rules takes a few MiB.
func TestMemoryIsBounded(t *testing.T) {
	var text strings.Builder
	text.WriteString("domain: shop\ndescriptors:\n")
	const many = 10_000
	for i := range many {
		fmt.Fprintf(&text, "  - {key: k, value: v%d, rate_limit: {unit: minute, requests_per_unit: 10}}\n", i)
	}
	tree := load(t, text.String())
	running(t, status.Options{}, func(t *testing.T, s *process) {
		s.Loaded(tree, nil, nil)
		for i := range many {
			s.Observe(asked(t, tree, true, descriptors.Entry{Key: "k", Value: fmt.Sprint("v", i)}))
		}
		heap := func() uint64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		before := heap()
		pass(2 * time.Second)
		if after := heap(); after < before+1<<20 || after > before+8<<20 {
			t.Errorf("%d bytes before and %d after the first seconds", before, after)
		}
	})
}

// BenchmarkObserve is the cost of the counts that metrics and the status read. With an
// observer for each of them it was 105 ns, and is 65 ns.
func BenchmarkObserve(b *testing.B) {
	tree := load(b, shop)
	s := open(b, status.Options{})
	s.Loaded(tree, nil, nil)
	o := asked(b, tree, true, ann...)
	for b.Loop() {
		s.Observe(o)
	}
}
