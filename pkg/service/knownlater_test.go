package service_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"

	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/service/envoy"
	"example.org/rls/pkg/service/operate"
)

const knownLaterRules = `domain: d
CHARGE
descriptors:
- {key: window, rate_limit: {unit: minute, requests_per_unit: 10, overdraft: 40}}
- {key: bucket, rate_limit: {unit: second, requests_per_unit: 10, strategy: token_bucket, overdraft: true}}
- {key: none, rate_limit: {unit: minute, requests_per_unit: 0}}
- key: both
  rate_limits:
  - {unit: minute, requests_per_unit: 10, overdraft: true}
  - {unit: hour, requests_per_unit: 1}
- key: user
  descriptors:
  - {key: request, rate_limit: {unit: minute, requests_per_unit: 100, reserve: true}}
- key: debtor
  descriptors:
  - {key: request, rate_limit: {unit: minute, requests_per_unit: 100, reserve: true, overdraft: true}}
- key: set
  descriptors:
  - key: request
    rate_limits:
    - {unit: minute, requests_per_unit: 100, reserve: true}
    - {unit: hour, requests_per_unit: 150, reserve: true}
- key: mixed
  descriptors:
  - key: request
    rate_limits:
    - {unit: minute, requests_per_unit: 100, reserve: true}
    - {unit: hour, requests_per_unit: 10}
- key: slots
  descriptors:
  - {key: request, rate_limit: {unit: hour, requests_per_unit: 3, strategy: concurrency, reserve: true}}
`

func knownLater(t *testing.T, charge string) *rig {
	return start(t, strings.Replace(knownLaterRules, "CHARGE", charge, 1), func(c *config) { c.Reply = envoy.Reply{Metadata: true} })
}

// TestAnOverdraftIsChargedWhateverDenies: beside a denial by another descriptor, in every
// mode of charging, and by another limit of its own.
func TestAnOverdraftIsChargedWhateverDenies(t *testing.T) {
	for _, charge := range []string{"charge: always", "charge: admitted"} {
		r := knownLater(t, charge)
		for _, key := range []string{"window", "bucket"} {
			d := desc(key, "ann")
			if resp := r.call(request(withHits(4, d), desc("none", ""))); resp.OverallCode != over || resp.Statuses[0].Code != ok {
				t.Errorf("%s: %v", charge, resp)
			}
			if used := r.used(desc(key, "ann")); used[0] != 4 {
				t.Errorf("%s: %s has %d hits after a denial by another descriptor, want 4", charge, key, used[0])
			}
		}
		r.want(withHits(1, desc("both", "ann")), ok, 0)
		r.want(withHits(5, desc("both", "ann")), over, 0)
		if used := r.used(desc("both", "ann")); used[0] != 6 {
			t.Errorf("%s: %d hits in use, want 6", charge, used)
		}
	}
}

// TestALimitOf0WithAnOverdraftDeniesChecks: nothing ever remains of it, whether the rule or the
// request says 0. Without an overdraft a check passes.
func TestALimitOf0WithAnOverdraftDeniesChecks(t *testing.T) {
	const rules = `domain: d
descriptors:
- {key: window, value: blocked, rate_limit: {unit: minute, requests_per_unit: 0, overdraft: true}}
- {key: bucket, value: blocked, rate_limit: {unit: minute, requests_per_unit: 0, strategy: token_bucket, overdraft: 5}}
- {key: window, rate_limit: {unit: minute, requests_per_unit: 10, overdraft: true}}
- {key: bucket, rate_limit: {unit: minute, requests_per_unit: 10, strategy: token_bucket, overdraft: 5}}
- {key: none, value: blocked, rate_limit: {unit: minute, requests_per_unit: 0, strategy: token_bucket}}
`
	r := start(t, rules)
	for _, key := range []string{"window", "bucket"} {
		r.want(withHits(0, desc(key, "blocked")), over, 0)
		r.want(refund(1, desc(key, "blocked")), ok, 0)
		r.want(withHits(0, withLimit(0, 2, nil, desc(key, "ann"))), over, 0)
		r.want(withHits(0, desc(key, "ann")), ok, 10)
	}
	r.want(withHits(0, desc("none", "blocked")), ok, 0)
}

// TestALimitBesideOneWithReserveCountsEachCall: also where callers can hold hits on demand.
func TestALimitBesideOneWithReserveCountsEachCall(t *testing.T) {
	for _, hold := range []time.Duration{0, 10 * time.Minute} {
		r := start(t, strings.Replace(knownLaterRules, "CHARGE", "", 1), func(c *config) { c.MaxHold = hold })
		d := desc("mixed", "ann", "request", "a")
		for _, want := range []pb.RateLimitResponse_Code{ok, ok, over} {
			if resp := r.call(request(withHits(4, d))); resp.OverallCode != want {
				t.Errorf("MaxHold %v: %v, want %v", hold, resp, want)
			}
		}
		if used := r.used(d); used[0] != 4 || used[1] != 12 {
			t.Errorf("MaxHold %v: %v hits in use, want 4 of the reservation and 12 of the calls", hold, used)
		}
	}
}

// TestALookAtTheLastHitBeforeDebt: with one hit left, the next one passes.
func TestALookAtTheLastHitBeforeDebt(t *testing.T) {
	r := knownLater(t, "")
	for _, key := range []string{"window", "bucket"} {
		r.want(withHits(9, desc(key, "ann")), ok, 1)
		for _, hits := range []uint64{1, 5} {
			if l := r.inspect(operate.Look, request(withHits(hits, desc(key, "ann"))))[0].Limits[0]; *l.Next != 0 {
				t.Errorf("%s: %d hits pass in %v, want now", key, hits, *l.Next)
			}
		}
		r.want(withHits(1, desc(key, "ann")), ok, 0)
		if l := r.inspect(operate.Look, request(desc(key, "ann")))[0].Limits[0]; *l.Next == 0 {
			t.Errorf("%s: a hit passes now, want a wait", key)
		}
	}
}

// TestDebt: what is cut off, checks, refunds, resets and grants.
func TestDebt(t *testing.T) {
	r := knownLater(t, "")
	window := func() []int64 { return r.used(desc("window", "ann")) }
	r.want(withHits(1000, desc("window", "ann")), ok, 0)
	if used := window(); used[0] != 50 {
		t.Errorf("%d hits in use, want the limit and a debt of 40", used)
	}
	r.want(withHits(1, desc("window", "ann")), over, 0)
	r.want(refund(15, desc("window", "ann")), ok, 0)
	if used := window(); used[0] != 35 {
		t.Errorf("%d hits in use after a refund of 15, want 35", used)
	}
	after := r.change(operate.Grant(operate.Granting{Hits: 20}), request(desc("window", "ann")))[0].After
	if after.Remaining != 0 || after.Count-after.Granted != 15 {
		t.Errorf("a grant of 20 leaves %v; want 15 in use", after)
	}
	r.pass(50 * time.Second) // the next window begins with 5
	r.want(withHits(0, desc("window", "ann")), ok, 5)
	r.change(operate.Reset, request(desc("window", "ann")))
	r.want(withHits(0, desc("window", "ann")), ok, 10)

	r.want(withHits(35, desc("bucket", "ann")), ok, 0)
	if used := r.used(desc("bucket", "ann")); used[0] != 35 {
		t.Errorf("the bucket has %d hits, want 35", used)
	}
	r.load(strings.Replace(strings.Replace(knownLaterRules, "CHARGE", "", 1), "requests_per_unit: 10, strategy: token_bucket", "requests_per_unit: 20, burst: 10, strategy: token_bucket", 1))
	if s := r.hit(withHits(0, desc("bucket", "ann"))); s.Code != over || s.DurationUntilReset.AsDuration() > 3*time.Second {
		t.Errorf("after a raise %v; want the debt, and a wait of at most 2.6s", s)
	}
}

// reservation sends one descriptor and returns what became of its reservation.
func (r *rig) reservation(hits int64, pairs ...string) string {
	r.t.Helper()
	d := withHits(uint64(max(hits, -hits)), desc(pairs...))
	d.IsNegativeHits = hits < 0
	resp := r.call(request(d))
	return resp.OverallCode.String() + " " + resp.DynamicMetadata.GetFields()["reservation"].GetStringValue()
}

func TestReservations(t *testing.T) {
	type call struct {
		id        string
		hits      int64
		want      string
		remaining int64
	}
	for name, tt := range map[string]struct {
		parent string
		calls  []call
	}{
		"settled below, then unchanged": {"user", []call{{"a", 40, "OK held", 60}, {"a", 10, "OK settled", 90}, {"a", 10, "OK unchanged", 90}}},
		"settled above":                 {"user", []call{{"a", 40, "OK held", 60}, {"a", 70, "OK settled", 30}}},
		"as far as there is room":       {"user", []call{{"a", 40, "OK held", 60}, {"b", 50, "OK held", 10}, {"a", 70, "OK settled", 0}}},
		"into debt":                     {"debtor", []call{{"a", 40, "OK held", 60}, {"b", 50, "OK held", 10}, {"a", 70, "OK settled", -20}}},
		"at no cost":                    {"user", []call{{"a", 40, "OK held", 60}, {"a", 0, "OK settled", 100}, {"a", 5, "OK unchanged", 100}}},
		"cancelled":                     {"user", []call{{"a", 40, "OK held", 60}, {"a", -1, "OK settled", 100}, {"a", -1, "OK unchanged", 100}}},
		"denied":                        {"user", []call{{"a", 101, "OVER_LIMIT ", 100}, {"a", 100, "OK held", 0}}},
		"denied with an overdraft":      {"debtor", []call{{"a", 120, "OK held", -20}, {"b", 5, "OVER_LIMIT ", -20}}},
		"checked":                       {"user", []call{{"a", 0, "OK ", 100}, {"a", 1, "OK held", 99}}},
		"unknown ids":                   {"user", []call{{"a", -5, "OK ", 100}}},
		"a set":                         {"set", []call{{"a", 100, "OK held", 0}, {"b", 1, "OVER_LIMIT ", 0}, {"a", 30, "OK settled", 70}}},
		"slots":                         {"slots", []call{{"a", 1, "OK held", 2}, {"b", 2, "OK held", 0}, {"a", -1, "OK settled", 1}, {"b", 0, "OK settled", 3}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := knownLater(t, "")
			for i, c := range tt.calls {
				if got := r.reservation(c.hits, tt.parent, "ann", "request", c.id); got != c.want {
					t.Errorf("call %d: %q, want %q", i+1, got, c.want)
				}
				capacity := int64(100)
				if tt.parent == "slots" {
					capacity = 3
				}
				if used := r.used(desc(tt.parent, "ann", "request", "")); capacity-used[0] != c.remaining {
					t.Errorf("call %d: %d hits are in use, want %d", i+1, used[0], capacity-c.remaining)
				}
			}
		})
	}
}

// TestTwoDescriptorsWithOneID: of one request, on one counter. Each has its own hits, and gives
// them back.
func TestTwoDescriptorsWithOneID(t *testing.T) {
	for _, parent := range []string{"user", "slots"} {
		r := knownLater(t, "")
		for i, want := range []int64{3, 0} {
			resp := r.call(request(withHits(uint64(want/3), desc(parent, "ann", "request", "a")), withHits(uint64(2*want/3), desc(parent, "ann", "request", "a"))))
			if used := r.used(desc(parent, "ann", "request", "")); resp.OverallCode != ok || used[0] != want {
				t.Errorf("%s, call %d: %v, %d hits are in use, want %d", parent, i+1, resp, used[0], want)
			}
		}
	}
}

// TestReservationsEnd: a reservation that nobody settles stays charged, and its id is new
// afterwards; in a window that is over nothing is given back, and the rest is charged.
func TestReservationsEnd(t *testing.T) {
	r := knownLater(t, "")
	id := []string{"user", "ann", "request", "a"}
	steps := []struct {
		pass      time.Duration
		hits      int64
		want      string
		remaining uint32
	}{
		{0, 40, "OK held", 60},
		{time.Minute, 10, "OK settled", 100},
		{0, 10, "OK unchanged", 100},
		{10 * time.Minute, 40, "OK held", 60},
		{time.Minute, 70, "OK settled", 70},
		{10*time.Minute + time.Second, 30, "OK held", 70},
		{10*time.Minute + time.Second, 20, "OK held", 80},
	}
	for i, s := range steps {
		r.pass(s.pass)
		if got := r.reservation(s.hits, id...); got != s.want {
			t.Errorf("step %d: %q, want %q", i+1, got, s.want)
		}
		r.want(withHits(0, desc("user", "ann", "request", "other")), ok, s.remaining)
	}
}

// TestTheIDIsInNoKey: all ids of a parent share the counter.
func TestTheIDIsInNoKey(t *testing.T) {
	r := knownLater(t, "")
	var keys []string
	for _, id := range []string{"a", "b"} {
		keys = append(keys, r.inspect(operate.Look, request(desc("user", "ann", "request", id)))[0].Limits[0].Key)
	}
	if keys = slices.Compact(keys); len(keys) != 1 || !strings.Contains(keys[0], "d|user=ann|request}") {
		t.Errorf("the keys are %q", keys)
	}
}

// A grant pays the debt of an overdraft, then the other hits in use, and what is left lets
// more hits pass. A dry run foresees it.
func TestAGrantPaysDebtFirst(t *testing.T) {
	for _, key := range []string{"window", "bucket"} {
		r := knownLater(t, "")
		a := request(desc(key, "ann"))
		r.hit(withHits(35, desc(key, "ann")))
		for _, tt := range []struct {
			hits int64
			want explain.Usage
		}{{20, explain.Usage{Count: 15}}, {12, explain.Usage{Count: 3, Remaining: 7}}, {5, explain.Usage{Granted: 2, Remaining: 12}}} {
			give := operate.Grant(operate.Granting{Hits: tt.hits})
			foreseen, done := r.change(give.DryRun(), a)[0], r.change(give, a)[0]
			if *foreseen.After != tt.want || *done.After != tt.want {
				t.Errorf("%s: a grant of %d leaves %v, foreseen %v, want %v", key, tt.hits, done.After, foreseen.After, tt.want)
			}
		}
		if after := r.change(operate.Reset, a)[0].After; after.Count != 0 || after.Remaining != 10 {
			t.Errorf("%s: a reset leaves %v", key, after)
		}
	}
}

// On every store and strategy the hits beyond a debt are counted, also those of a cost that is
// far above it, and of a settlement.
func TestHitsBeyondADebtAreCounted(t *testing.T) {
	const text = `domain: d
descriptors:
- {key: fixed_window, rate_limit: &l {unit: year, requests_per_unit: 10, overdraft: 40}}
- {key: calendar, rate_limit: {<<: *l, window: calendar}}
- {key: token_bucket, rate_limit: {<<: *l, strategy: token_bucket}}
- {key: gcra, rate_limit: {<<: *l, strategy: gcra, burst: 10}}
- {key: leaky_bucket, rate_limit: {<<: *l, strategy: leaky_bucket, burst: 10}}
- {key: window_id, rate_limit: {<<: *l, reserve: true}}
- {key: bucket_id, rate_limit: {<<: *l, strategy: token_bucket, reserve: true}}
`
	for name, store := range stores(t) {
		t.Run(name, func(t *testing.T) {
			var m *metrics.Metrics
			r := start(t, text, measure(t, &m), func(c *config) { c.Store, c.KeyPrefix = store, name+"cut" })
			var want []string
			for key, cut := range map[string]int{
				"fixed_window": 1000 + 5 - 50, "calendar": 1000 + 5 - 50, "token_bucket": 1000 + 5 - 50, "gcra": 1000 + 5 - 50, "leaky_bucket": 1000 + 5 - 50,
				"window_id": 1000 - 50, "bucket_id": 1000 - 50, // the second call settles
			} {
				for _, hits := range []uint64{5, 1000} {
					r.hit(withHits(hits, desc(key, "a")))
				}
				want = append(want, fmt.Sprintf(`rls_overdraft_cut_hits_total{domain="d",rule="d.%s"} %d`, key, cut))
			}
			slices.Sort(want)
			if diff := cmp.Diff(want, counted(t, m, "rls_overdraft_cut_hits_total{")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A meter keeps its debt as time: after a raise it stands for more hits, and nobody waits
// longer. A window keeps its debt in hits.
func TestAChangedLimitKeepsTheDebt(t *testing.T) {
	const text = "domain: d\ndescriptors: [{key: k, rate_limit: {overdraft: 100, LIMIT}}]\n"
	for name, store := range stores(t) {
		for _, tt := range []struct {
			before, after string
			count         int64
			wait          time.Duration // until 1 hit remains; not of windows
		}{
			{"unit: year, requests_per_unit: 10", "unit: year, requests_per_unit: 20", 35, 0},
			{"unit: year, requests_per_unit: 20", "unit: year, requests_per_unit: 10", 35, 0},
			{"unit: hour, strategy: gcra, requests_per_unit: 10, burst: 10", "unit: hour, strategy: gcra, requests_per_unit: 20, burst: 10", 60, 150*time.Minute + 3*time.Minute},
			{"unit: hour, strategy: token_bucket, requests_per_unit: 10", "unit: hour, strategy: token_bucket, requests_per_unit: 20", 70, 150*time.Minute + 3*time.Minute},
			{"unit: hour, strategy: token_bucket, requests_per_unit: 20, burst: 10", "unit: hour, strategy: token_bucket, requests_per_unit: 10, burst: 10", 23, 75*time.Minute + 6*time.Minute},
		} {
			t.Run(name+"/"+tt.after, func(t *testing.T) {
				r := start(t, strings.Replace(text, "LIMIT", tt.before, 1), func(c *config) { c.Store, c.KeyPrefix = store, name+tt.before })
				r.hit(withHits(35, desc("k", "a")))
				r.load(strings.Replace(text, "LIMIT", tt.after, 1))
				l := r.inspect(operate.Look, request(desc("k", "a")))[0].Limits[0]
				if next := time.Duration(*l.Next); l.Count != tt.count || l.Remaining != 0 || tt.wait > 0 && (next > tt.wait || next < tt.wait-time.Minute) {
					t.Errorf("count %d, remaining %d, next in %v; want count %d, next in %v", l.Count, l.Remaining, next, tt.count, tt.wait)
				}
			})
		}
	}
}
