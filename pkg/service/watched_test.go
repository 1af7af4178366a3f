package service_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/envoy"
	"example.org/rls/pkg/service/operate"
)

const watchedRules = `domain: d
descriptors:
- key: user
  rate_limits:
  - {unit: hour, requests_per_unit: 2, name: firm}
  - {unit: hour, requests_per_unit: 1, shadow_mode: true, name: candidate}
- {key: alone, rate_limit: {unit: hour, requests_per_unit: 1, shadow_mode: true, strategy: STRATEGY, on_error: ON_ERROR}}
- {key: enforced, rate_limit: {unit: hour, requests_per_unit: 3}}
- {key: quota, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}
- {key: watched_quota, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 5, shadow_mode: true}}
- {key: shadow, shadow_mode: true, rate_limits: [{unit: hour, requests_per_unit: 0}, {unit: hour, requests_per_unit: 0, shadow_mode: true}]}
- {key: replaced, rate_limit: {unit: hour, requests_per_unit: 1, shadow_mode: true, replaces: [{name: firm}]}}
`

func watching(strategy, onError string) string {
	return strings.NewReplacer("STRATEGY", strategy, "ON_ERROR", onError).Replace(watchedRules)
}

// used is the count of each limit of a descriptor, in the order of the rule.
func (r *rig) used(d *rlcommon.RateLimitDescriptor) (used []int64) {
	r.t.Helper()
	for _, l := range r.inspect(operate.Look, request(d))[0].Limits {
		used = append(used, l.Count)
	}
	return used
}

// withoutWatched are rules without the limits in shadow mode of their own.
func withoutWatched(rules string) string {
	var lines []string
	for line := range strings.Lines(rules) {
		if !strings.HasPrefix(line, "  -") || !strings.Contains(line, "shadow_mode") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// TestAWatchedLimitChangesNoReply: with a candidate beside it every reply is the same,
// byte for byte, in every mode of charging. Metadata alone tells of it.
func TestAWatchedLimitChangesNoReply(t *testing.T) {

	reply := func(c *config) {
		c.Reply = envoy.Reply{RateLimit: envoy.HeaderNames{Limit: "l", Remaining: "r", Reset: "s"}, IETF: true, XRateLimit: true, ProblemBody: true}
	}
	for _, charge := range []descriptors.Charge{descriptors.ChargeAlways, descriptors.ChargeDenying, descriptors.ChargeAdmitted} {
		with, without := start(t, "", reply), start(t, "", reply)
		with.loadCharging(charge, watching("gcra", "error"))
		without.loadCharging(charge, withoutWatched(watching("gcra", "error")))
		for i, req := range []*pb.RateLimitRequest{
			request(desc("user", "a")), request(desc("user", "a")), request(desc("user", "a")),
			request(withHits(3, desc("user", "b"))), request(desc("user", "b"), desc("enforced", "a")),
			request(refund(1, desc("user", "a"))), request(desc("user", "a")), request(withHits(0, desc("user", "a"))),
			request(withLimit(5, hour, nil, desc("user", "a"))),
		} {
			if diff := cmp.Diff(without.call(req), with.call(req), protocmp.Transform()); diff != "" {
				t.Errorf("%v, request %d: %s", charge, i, diff)
			}
		}
	}
}

// TestAWatchedLimitIsChargedWhateverOthersDecide, and others whatever it decides.
func TestAWatchedLimitIsChargedWhateverOthersDecide(t *testing.T) {
	for _, charge := range []descriptors.Charge{descriptors.ChargeAlways, descriptors.ChargeDenying, descriptors.ChargeAdmitted} {
		for _, strategy := range []string{"fixed_window", "sliding_window", "sliding_log", "token_bucket", "gcra", "leaky_bucket"} {
			r := start(t, "")
			r.loadCharging(charge, watching(strategy, "error"))
			both := request(desc("enforced", "a"), desc("alone", "a"))
			r.call(request(withHits(3, desc("enforced", "a"))))
			if r.call(both).OverallCode != over {
				t.Fatal("the enforced limit is full")
			}
			if used := r.used(desc("alone", "a")); !slices.Equal(used, []int64{1}) {
				t.Errorf("%v, %s: %v charged beside a denial, want 1", charge, strategy, used)
			}
			// Now the watched limit is full and the other one is not.
			other := request(desc("enforced", "b"), desc("alone", "a"))
			reply := r.call(other)
			if used := r.used(desc("enforced", "b")); reply.OverallCode != ok || used[0] != 1 {
				t.Errorf("%v, %s: %v, %v charged beside a full candidate", charge, strategy, reply.OverallCode, used)
			}
			if s := reply.Statuses[1]; s.Code != ok || s.CurrentLimit != nil || s.LimitRemaining != 0 {
				t.Errorf("%v, %s: the status shows the candidate: %v", charge, strategy, s)
			}
		}
	}
}

// TestAWatchedLimitBesideTheEnforcedOne: two of one window, each with its own count.
func TestAWatchedLimitBesideTheEnforcedOne(t *testing.T) {
	var store seen
	r := start(t, "", store.under)
	r.loadCharging(descriptors.ChargeAdmitted, watching("gcra", "error"))
	for i, want := range []pb.RateLimitResponse_Code{ok, ok, over, over} {
		if got := r.hit(desc("user", "a")).Code; got != want {
			t.Errorf("hit %d: %v, want %v", i, got, want)
		}
	}
	if used := r.used(desc("user", "a")); !slices.Equal(used, []int64{2, 1}) {
		t.Errorf("%v charged, want 2 and 1", used)
	}
	limits := r.inspect(operate.Trace, request(desc("user", "a")))[0].Limits
	if limits[0].Enforced != nil || *limits[1].Enforced || limits[1].Key != limits[0].Key+"~shadow" {
		t.Errorf("keys %s and %s", limits[0].Key, limits[1].Key)
	}
	alone := start(t, withoutWatched(watching("gcra", "error")))
	if key := only(t, alone.inspect(operate.Trace, request(desc("user", "a")))).Key; key != limits[0].Key {
		t.Errorf("the candidate changes the key of the enforced limit from %s to %s", key, limits[0].Key)
	}
	for i := range store.ops {
		if op := &store.ops[i]; strings.HasSuffix(op.Key, "~shadow") == (op.Stem > 0) || op.Group != 0 {
			t.Errorf("stem %d, group %d of %s", op.Stem, op.Group, op.Key)
		}
	}
}

// TestWhatAWatchedLimitLeavesAlone: quota mode, replaces, and requests that it alone
// would limit pass as if it were not there.
func TestWhatAWatchedLimitLeavesAlone(t *testing.T) {
	r := start(t, watching("fixed_window", "error"))
	if code := r.call(request(desc("quota", ""), desc("watched_quota", ""))).OverallCode; code != over {
		t.Errorf("%v: a watched limit passes for the others in quota mode", code)
	}
	r.want(desc("shadow", ""), ok, 0)
	r.call(request(withHits(2, desc("user", "a"))))
	if code := r.call(request(desc("user", "a"), desc("replaced", ""))).OverallCode; code != over {
		t.Errorf("%v: a watched limit replaces an enforced one", code)
	}
	in := r.inspect(operate.Look, request(desc("user", "a"), desc("replaced", "")))
	if by := in[0].Limits[0].ReplacedBy; by != "" {
		t.Errorf("explain says that %s replaces it", by)
	}
}

// TestAWatchedLimitWithoutAStore fails no request and denies none, with any policy.
func TestAWatchedLimitWithoutAStore(t *testing.T) {
	for _, policy := range descriptors.PolicyNames() {
		var m *metrics.Metrics
		count := measure(t, &m)
		r := start(t, watching("fixed_window", policy), func(c *config) { c.Store = failing{c.Store}; count(c) })
		r.want(desc("alone", "a"), ok, 0)
		got := counted(t, m, "rls_decisions_total", "ratelimit_service_should", "ratelimit_service_rate_limit")
		want := []string{`ratelimit_service_should_rate_limit_error{err_type="redis_error"} 1`}
		if decision := map[string]string{"allow": "allowed", "deny": "shadow"}[policy]; decision != "" {
			want = append(want, fmt.Sprintf(`rls_decisions_total{decision="%s",domain="d",limit="fixed_window 1 per hour",policy="%s",rule="d.alone",strategy="fixed_window"} 1`, decision, policy))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", policy, diff)
		}
	}
}

// TestMetricsOfAWatchedLimit: its verdicts are told by limit, and spoil no count of
// requests that were denied.
func TestMetricsOfAWatchedLimit(t *testing.T) {
	var m *metrics.Metrics
	r := start(t, watching("gcra", "error"), measure(t, &m))
	for range 2 {
		r.want(desc("user", "a"), ok, uint32(1-r.used(desc("user", "a"))[0]))
	}
	if diff := cmp.Diff([]string{
		`near_limit{domain="d",key1="user"} 1`,
		`rls_decisions_total{decision="allowed",domain="d",limit="candidate",policy="counted",rule="d.user",strategy="fixed_window"} 1`,
		`rls_decisions_total{decision="allowed",domain="d",limit="firm",policy="counted",rule="d.user",strategy="fixed_window"} 2`,
		`rls_decisions_total{decision="shadow",domain="d",limit="candidate",policy="counted",rule="d.user",strategy="fixed_window"} 1`,
		`shadow_mode{domain="d",key1="user"} 1`,
		`total_hits{domain="d",key1="user"} 2`,
		`within_limit{domain="d",key1="user"} 2`,
	}, counted(t, m, "rls_decisions_total", "rls_retry_after_seconds_count", "ratelimit_service_rate_limit")); diff != "" {
		t.Error(diff)
	}
}

func TestMetadataTellsOfWatchedLimits(t *testing.T) {
	r := start(t, watching("gcra", "error"), func(c *config) { c.Reply.Metadata = true })
	r.hit(desc("user", "a"))
	got := r.call(request(desc("user", "a"))).DynamicMetadata.AsMap()
	want := []any{map[string]any{"rule": "candidate", "strategy": "fixed_window", "limit": 1.0, "remaining": 0.0, "denied": true, "retry_after": 3590.0}}
	if diff := cmp.Diff(want, got["shadow"]); diff != "" || got["rule"] != "firm" {
		t.Errorf("%v: %s", got["rule"], diff)
	}
}

const rolledOut = `domain: d
descriptors:
- {key: user, rate_limit: {unit: hour, requests_per_unit: 1, rollout: SHARE}}
- {key: page, value: /s/*, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 1, rollout: SHARE}}
- key: new
  rate_limits:
  - {unit: hour, requests_per_unit: 1, name: old}
  - {unit: hour, requests_per_unit: 3, rollout: SHARE, replaces: [{name: old}]}
- key: two
  rate_limits:
  - {unit: hour, requests_per_unit: 3}
  - {unit: minute, requests_per_unit: 1, rollout: SHARE}
`

// rolled is the keys among 2,000 that a rollout of that share denies.
func rolled(t *testing.T, share string) (denied map[string]bool, keys []string) {
	r := start(t, strings.ReplaceAll(rolledOut, "SHARE", share))
	denied = map[string]bool{}
	for i := range 2000 {
		d := desc("user", fmt.Sprint(i))
		r.want(d, ok, 0)
		s := r.hit(d)
		if denied[d.Entries[0].Value] = s.Code == over; denied[d.Entries[0].Value] {
			keys = append(keys, d.Entries[0].Value)
		}
		in := only(t, r.inspect(operate.Look, request(d)))
		if enforced := in.Enforced == nil || *in.Enforced; enforced != (s.Code == over) || in.Count != 2 || strings.Contains(in.Key, "~") {
			t.Fatalf("%s: %v, enforced %v, %d counted at %s", share, s.Code, enforced, in.Count, in.Key)
		}
	}
	return denied, keys
}

// TestRollout: a share of the keys is enforced, and all of them stay while the share grows.
func TestRollout(t *testing.T) {
	var before []string
	for _, c := range []struct {
		share    string
		min, max int // six standard deviations around the share, of 2,000
	}{{"0%", 0, 0}, {"0.5%", 1, 28}, {"10%", 120, 280}, {"50%", 866, 1134}, {"100%", 2000, 2000}} {
		denied, keys := rolled(t, c.share)
		if len(keys) < c.min || len(keys) > c.max {
			t.Errorf("%s: %d of 2000 keys are enforced, want %d to %d", c.share, len(keys), c.min, c.max)
		}
		for _, key := range before {
			if !denied[key] {
				t.Errorf("%s: %s is no longer enforced", c.share, key)
			}
		}
		before = keys
	}
}

// TestRolloutIsStable: these keys stay the same from release to release, in every process
// and however the keys of the store are written.
func TestRolloutIsStable(t *testing.T) {
	for name, change := range map[string]func(*config){
		"plain": func(*config) {}, "prefix": func(c *config) { c.KeyPrefix = "p_" },
		"ratelimit": func(c *config) { c.RatelimitKeys = true }, "hash": func(c *config) { c.Values = service.NewValueHash([]byte("secret of sixteen")) },
	} {
		r := start(t, strings.ReplaceAll(rolledOut, "SHARE", "25%"), change)
		var enforced []string
		for i := range 40 {
			d := desc("user", fmt.Sprint(i))
			if r.hit(d); r.hit(d).Code == over {
				enforced = append(enforced, fmt.Sprint(i))
			}
		}
		if got := strings.Join(enforced, " "); got != stable {
			t.Errorf("%s: %s are enforced, want %s", name, got, stable)
		}
	}
}

const stable = "1 5 6 16 22 31"

// TestRolloutBesideOthers: for a watched key only the other limits decide, and for an
// enforced one all of them, together. A limit in whose place another one is rolled out is
// replaced for the enforced keys only.
func TestRolloutBesideOthers(t *testing.T) {
	for _, charge := range []descriptors.Charge{descriptors.ChargeAlways, descriptors.ChargeAdmitted} {
		r := start(t, "")
		r.loadCharging(charge, strings.ReplaceAll(rolledOut, "SHARE", "50%"))
		seen := map[string]int{}
		for i := range 40 {
			for _, c := range []struct {
				key               string
				enforced, watched int // hits that pass
				counted           [2][]int64
			}{
				{"new", 3, 1, [2][]int64{{0, 3}, {1, 3}}},
				{"two", 1, 3, [2][]int64{{1, 1}, {3, 1}}},
			} {
				d, passed := desc(c.key, fmt.Sprint(i)), 0
				watched := !*r.inspect(operate.Trace, request(d))[0].Limits[1].Enforced
				for range 5 {
					if r.hit(d).Code == ok {
						passed++
					}
				}
				want, which := c.enforced, 0
				if watched {
					want, which = c.watched, 1
				}
				if passed != want {
					t.Errorf("%v: %s=%d, watched %v: %d pass, want %d", charge, c.key, i, watched, passed, want)
				}
				if used := r.used(d); charge == descriptors.ChargeAdmitted && !slices.Equal(used, c.counted[which]) {
					t.Errorf("%s=%d, watched %v: %v charged, want %v", c.key, i, watched, used, c.counted[which])
				}
				seen[c.key+fmt.Sprint(which)]++
			}
		}
		if len(seen) != 4 {
			t.Errorf("not all cases were seen: %v", seen)
		}
	}
	r := start(t, strings.ReplaceAll(rolledOut, "SHARE", "50%"))
	codes := map[pb.RateLimitResponse_Code]bool{}
	r.hit(desc("page", "/s/0"))
	for i := range 20 {
		codes[r.hit(desc("page", fmt.Sprintf("/s/%d", i))).Code] = true
	}
	if len(codes) != 1 {
		t.Error("values that share a counter are not rolled out together")
	}
}

// TestOperatorsAndWatchedLimits: a reset empties all counters, also of all values of the
// rule; a grant is for limits that deny.
func TestOperatorsAndWatchedLimits(t *testing.T) {
	var store seen
	r := start(t, watching("sliding_window", "error"), store.under)
	for range 2 {
		r.hit(desc("user", "a"))
		r.hit(desc("alone", "a"))
	}
	in := r.change(operate.Grant(operate.Granting{Hits: 5}), request(desc("user", "a")))
	if len(in) != 1 || in[0].After.Remaining != 5 {
		t.Errorf("granted %+v", in)
	}
	if _, _, err := r.Change(t.Context(), asked(request(desc("alone", "a"))), operate.Grant(operate.Granting{Hits: 5})); err == nil || !strings.Contains(err.Error(), "only watched") {
		t.Errorf("a grant to a watched limit: %v", err)
	}
	r.wantMatching("d.user", false, operate.Progress{Matched: 2, Changed: 2})
	r.wantMatching("d.alone", false, operate.Progress{Matched: 1, Changed: 1})
	if used := slices.Concat(r.used(desc("user", "a")), r.used(desc("alone", "a"))); !slices.Equal(used, []int64{0, 0, 0}) {
		t.Errorf("%v after the resets", used)
	}
	r.hit(desc("user", "a"))
	r.change(operate.Reset, request(desc("user", "a")))
	if used := r.used(desc("user", "a")); !slices.Equal(used, []int64{0, 0}) {
		t.Errorf("%v after a reset", used)
	}
}

// TestRatelimitKeysBesideAWatchedLimit: the enforced limit keeps the counter of
// envoyproxy/ratelimit, and the candidate does not count in it.
func TestRatelimitKeysBesideAWatchedLimit(t *testing.T) {
	r := start(t, watching("gcra", "error"), func(c *config) { c.RatelimitKeys = true })
	limits := r.inspect(operate.Trace, request(desc("user", "a")))[0].Limits
	if want := "d_user_a_1800057600"; limits[0].Key != want || !strings.HasSuffix(limits[1].Key, "~shadow") {
		t.Errorf("keys %s and %s, want %s", limits[0].Key, limits[1].Key, want)
	}
}
