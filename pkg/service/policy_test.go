package service_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/backends/near"
	"example.org/rls/pkg/backends/split"
	"example.org/rls/pkg/backends/stack"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/service/envoy"
)

const (
	unknown     = pb.RateLimitResponse_UNKNOWN
	unavailable = pb.RateLimitResponse_Code(-1) // the whole request
)

// storeAway leaves every operation undecided, partAway those whose key contains
// "away".
func storeAway(c *config) { c.Store = failing{c.Store} }
func partAway(c *config)  { c.Store = partly{c.Store} }

// secondsAway puts the limits per second on a server that is away.
func secondsAway(t *testing.T) func(*config) {
	return func(c *config) {
		gone, err := memory.New(memory.Options{MaxKeys: 1})
		if err != nil {
			t.Fatal(err)
		}
		_ = gone.Close()
		c.Store = split.New(c.Store, gone, time.Second)
	}
}

// charged is the hits that the last limit of the last request, which is not per second,
// has counted.
func (s *seen) charged(t *testing.T) int64 {
	t.Helper()
	last := s.ops[len(s.ops)-1]
	b := backends.Batch{Ops: []backends.Op{last.Look()}, Replies: make([]backends.Reply, 1)}
	if err := s.Store.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return b.Replies[0].Value.Whole
}

// remembering puts the memory of a process above the store. It decides limits with the
// policy local. Its background work is done when the test calls the returned function.
func remembering(t *testing.T) (change func(*config), work func()) {
	var waiting []func() error
	change = func(c *config) {
		s := near.New(c.Store, near.Options{Timeout: time.Second, Deny: true, Go: func(work func() error) bool {
			waiting = append(waiting, work)
			return true
		}})
		c.Store, c.Local = s, true
	}
	return change, func() {
		for ; len(waiting) > 0; waiting = waiting[1:] {
			_ = waiting[0]()
		}
	}
}

// local is the change of remembering.
func local(t *testing.T) func(*config) {
	change, _ := remembering(t)
	return change
}

// A rule of 5 a minute, and one of 0, for each policy.
const policyRules = `
domain: d
descriptors:
  - {key: error, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: allow, rate_limit: {unit: minute, requests_per_unit: 5, on_error: allow}}
  - {key: deny, rate_limit: {unit: minute, requests_per_unit: 5, on_error: deny}}
  - {key: local, rate_limit: {unit: minute, requests_per_unit: 5, on_error: local}}
  - {key: zero-error, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: zero-allow, rate_limit: {unit: minute, requests_per_unit: 0, on_error: allow}}
  - {key: zero-deny, rate_limit: {unit: minute, requests_per_unit: 0, on_error: deny}}
  - {key: zero-local, rate_limit: {unit: minute, requests_per_unit: 0, on_error: local}}
  - {key: shadow-error, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: shadow-deny, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 5, on_error: deny}}
  - {key: quota-error, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: quota-allow, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 5, on_error: allow}}
  - {key: quota-deny, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 5, on_error: deny}}
  - {key: quota-full, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: log-allow, rate_limit: {unit: minute, requests_per_unit: 5, on_error: allow, strategy: sliding_log}}
  - {key: bucket-allow, rate_limit: {unit: minute, requests_per_unit: 5, on_error: allow, strategy: token_bucket, burst: 1}}
  - {key: unlimited, rate_limit: {unlimited: true}}
`

// TestPolicies: the status of one descriptor while the store is away.
func TestPolicies(t *testing.T) {
	for _, tt := range []struct {
		ask       *rlcommon.RateLimitDescriptor
		want      pb.RateLimitResponse_Code
		remaining uint32
		reset     int64 // seconds; the minute ends in 50
	}{
		{desc("error", "a"), unavailable, 0, 0},
		{desc("allow", "a"), ok, 4, 50},
		{withHits(9, desc("allow", "a")), ok, 0, 50},
		{desc("deny", "a"), over, 0, 1},
		{withHits(9, desc("deny", "a")), over, 0, 50}, // it never passes
		{desc("local", "a"), ok, 4, 50},
		{withHits(6, desc("local", "a")), over, 0, 50},

		{desc("zero-error", "a"), over, 0, 50},
		{desc("zero-allow", "a"), over, 0, 50},
		{desc("zero-deny", "a"), over, 0, 50},
		{desc("zero-local", "a"), over, 0, 50},

		{withHits(0, desc("error", "a")), unavailable, 0, 0},
		{withHits(0, desc("allow", "a")), ok, 5, 50},
		{withHits(0, desc("deny", "a")), over, 0, 1},
		{withHits(0, desc("local", "a")), ok, 5, 50},
		{withHits(0, desc("zero-allow", "a")), over, 0, 1},

		{refund(1, desc("error", "a")), unavailable, 0, 0},
		{refund(1, desc("allow", "a")), ok, 5, 50},
		{refund(1, desc("deny", "a")), ok, 5, 50},
		{refund(1, desc("local", "a")), ok, 5, 50},
		{refund(1, desc("zero-deny", "a")), ok, 0, 50},

		{desc("log-allow", "a"), ok, 4, 60},
		{withHits(9, desc("log-allow", "a")), ok, 0, 1},
		{withLimit(8, hour, nil, desc("allow", "a")), ok, 7, 3590},
		{withLimit(8, hour, nil, desc("deny", "a")), over, 0, 1},
		{withLimit(8, hour, nil, desc("elsewhere", "a")), unavailable, 0, 0},
	} {
		r := start(t, policyRules, storeAway, local(t))
		resp, err := r.try(request(tt.ask))
		if tt.want == unavailable {
			if status.Code(err) != codes.Unavailable {
				t.Errorf("%v: %v, %v; want UNAVAILABLE", tt.ask, resp, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%v: %v", tt.ask, err)
			continue
		}
		s := resp.Statuses[0]
		if resp.OverallCode != tt.want || s.Code != tt.want || s.LimitRemaining != tt.remaining || s.DurationUntilReset.GetSeconds() != tt.reset || s.CurrentLimit == nil {
			t.Errorf("%v: %v; want %v with the limit, %d remaining, reset %d", tt.ask, resp, tt.want, tt.remaining, tt.reset)
		}
	}
}

// TestPoliciesAndCharges: the limit per hour is counted while the server of the
// limit per second is away, which its policy decides. Both stand on one descriptor,
// or on two of a request with charge: admitted.
func TestPoliciesAndCharges(t *testing.T) {
	for _, tt := range []struct {
		policy   string
		second   int // requests_per_unit, of the limit per second
		hour     int
		admitted int   // of 5 requests
		charged  int64 // to the hour
	}{
		{"allow", 9, 3, 3, 3},
		{"deny", 9, 3, 0, 0},
		{"error", 9, 3, 0, 0},
		{"local", 9, 5, 5, 5},
		{"local", 2, 9, 2, 2}, // a charge beside a local denial is given back
		{"local", 9, 3, 3, 3},
	} {
		for name, rules := range map[string]string{
			"several limits": `
domain: d
charge: %s
descriptors:
  - key: k
    rate_limits:
      - {unit: second, requests_per_unit: %d, on_error: %s}
      - {unit: hour, requests_per_unit: %d, strategy: sliding_window}
`,
			"several descriptors": `
domain: d
charge: %s
descriptors:
  - {key: k, rate_limit: {unit: second, requests_per_unit: %d, on_error: %s}}
  - {key: h, rate_limit: {unit: hour, requests_per_unit: %d, strategy: sliding_window}}
`,
		} {
			charge, asked := "always", []*rlcommon.RateLimitDescriptor{desc("k", "a")}
			if name == "several descriptors" {
				charge, asked = "admitted", append(asked, desc("h", "a"))
			}
			store := new(seen)
			change, work := remembering(t)
			r := start(t, fmt.Sprintf(rules, charge, tt.second, tt.policy, tt.hour), store.under, secondsAway(t), change)
			admitted := 0
			for range 5 {
				resp, err := r.try(request(asked...))
				if err == nil && resp.OverallCode == ok {
					admitted++
				}
				if (err != nil) != (tt.policy == "error") {
					t.Errorf("%s, %s: %v", tt.policy, name, err)
				}
			}
			work()
			if n := store.charged(t); admitted != tt.admitted || n != tt.charged {
				t.Errorf("%s, %s: %d admitted, %d charged to the hour; want %d, %d", tt.policy, name, admitted, n, tt.admitted, tt.charged)
			}
		}
	}
}

// TestPoliciesAnswerInTime: with Envoy's 20 ms and a store that does not answer,
// the policy's verdict is there after 18 ms.
func TestPoliciesAnswerInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, policyRules, func(c *config) {
			store := stack.Deadline(stuck{c.Store}, time.Minute)
			c.Store = store
		}, local(t))
		for key, want := range map[string]pb.RateLimitResponse_Code{"allow": ok, "deny": over, "local": ok} {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			began := time.Now()
			resp, err := served(r.service).ShouldRateLimit(ctx, request(desc(key, "a")))
			cancel()
			if took := time.Since(began); err != nil || resp.OverallCode != want || took != 18*time.Millisecond {
				t.Errorf("%s: %v, %v after %v; want %v after 18 ms", key, resp, err, took, want)
			}
		}
	})
}

// TestACallerThatIsGoneIsNoCaseForAPolicy: it gets its own error.
func TestACallerThatIsGoneIsNoCaseForAPolicy(t *testing.T) {
	var m *metrics.Metrics
	r := start(t, policyRules, measure(t, &m), func(c *config) { c.Store = stuck{c.Store} }, local(t))
	for _, key := range []string{"allow", "deny", "local", "zero-error"} {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		resp, err := served(r.service).ShouldRateLimit(ctx, request(desc(key, "a")))
		if status.Code(err) != codes.Canceled {
			t.Errorf("%s: %v, %v; want CANCELLED", key, resp, err)
		}
	}
	if got := counted(t, m, "rls_decisions_total"); len(got) > 0 {
		t.Errorf("counted %q", got)
	}
}

// TestLocalWithoutMemory: without Config.Local the policy local is that of the default.
func TestLocalWithoutMemory(t *testing.T) {
	r := start(t, policyRules, storeAway)
	if resp, err := r.try(request(desc("local", "a"))); status.Code(err) != codes.Unavailable {
		t.Errorf("%v, %v", resp, err)
	}
}

// TestPoliciesAreSeen: in metadata, in a header, in rls_decisions_total and in the
// log. The counters of envoyproxy/ratelimit count the hits as when a store fails.
func TestPoliciesAreSeen(t *testing.T) {
	var m *metrics.Metrics
	r := start(t, policyRules, measure(t, &m), partAway, local(t), replying(envoy.Reply{Policy: true, RetryAfter: true, Metadata: true}))
	for _, tt := range []struct {
		ask     *pb.RateLimitRequest
		policy  any
		headers string
	}{
		{request(desc("deny", "here")), nil, ""},
		{request(desc("allow", "away")), "allow", "x-ratelimit-policy: allow"},
		{request(desc("local", "away")), "local", "x-ratelimit-policy: local"},
		{request(desc("deny", "away")), "deny", "x-ratelimit-policy: deny\nRetry-After: 1"},
		{request(desc("zero-error", "away")), "error", "x-ratelimit-policy: error\nRetry-After: 50"},
		{request(desc("shadow-deny", "away")), nil, ""},
		// Metadata and headers describe the limit with the least remaining.
		{request(withHits(3, desc("error", "here")), desc("allow", "away")), nil, ""},
	} {
		resp := r.call(tt.ask)
		if got := resp.DynamicMetadata.AsMap()["policy"]; got != tt.policy || headers(resp) != tt.headers {
			t.Errorf("%v: policy %v, headers %q; want %v, %q", tt.ask, got, headers(resp), tt.policy, tt.headers)
		}
	}
	if _, err := r.try(request(desc("error", "away"))); err == nil {
		t.Error("answered without a policy")
	}
	r.call(request(desc("bucket-allow", "away"))) // nobody knows whether it took the last of the burst
	series := func(decision, policy, rule string, n int) string {
		requests := 5
		if strings.HasPrefix(rule, "zero") {
			requests = 0
		}
		return fmt.Sprintf(`rls_decisions_total{decision=%q,domain="d",limit="fixed_window %d per minute",policy=%q,rule="d.%s",strategy="fixed_window"} %d`, decision, requests, policy, rule, n)
	}
	want := []string{
		series("allowed", "allow", "allow", 2),
		strings.ReplaceAll(series("allowed", "allow", "bucket-allow", 1), "fixed_window", "token_bucket"), series("allowed", "counted", "deny", 1), series("allowed", "counted", "error", 1), series("allowed", "local", "local", 1),
		series("denied", "deny", "deny", 1), series("denied", "error", "zero-error", 1), series("shadow", "deny", "shadow-deny", 1),
		`should_rate_limit_error{err_type="redis_error"} 8`,
		`total_hits{domain="d",key1="allow"} 2`, `total_hits{domain="d",key1="bucket-allow"} 1`, `total_hits{domain="d",key1="deny"} 2`, `total_hits{domain="d",key1="error"} 4`,
		`total_hits{domain="d",key1="local"} 1`, `total_hits{domain="d",key1="shadow-deny"} 1`, `total_hits{domain="d",key1="zero-error"} 1`,
		`within_limit{domain="d",key1="deny"} 1`, `within_limit{domain="d",key1="error"} 3`,
	}
	var got []string
	for _, line := range counted(t, m, "rls_decisions_total", "ratelimit_service_rate_limit_", "ratelimit_service_should_rate_limit_error", "rls_near_limit", "rls_burst_exhausted") {
		got = append(got, strings.TrimPrefix(line, "ratelimit_service_"))
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestPoliciesInTheDebugLog(t *testing.T) {
	var log testenv.Log
	r := start(t, policyRules, storeAway, debugged(&log, 1000))
	r.call(request(desc("allow", "a")))
	r.call(request(desc("deny", "a"), desc("error", "a")))
	var got []any
	for _, line := range lines(t, &log) {
		got = append(got, line["decisions"])
	}
	want := []any{
		"allow=a: allowed by d.allow (fixed_window, limit 5, remaining 4, policy allow)",
		"deny=a: denied by d.deny (fixed_window, limit 5, remaining 0, policy deny); error=a: not decided by d.error (fixed_window, limit 5)",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
