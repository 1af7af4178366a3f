package service_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"example.org/rls/pkg/service/envoy"
)

var reference = envoy.HeaderNames{Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining", Reset: "RateLimit-Reset"}

func replying(reply envoy.Reply) func(*config) {
	return func(c *config) { c.Reply = reply }
}

// headers lists the headers of a reply, one per line.
func headers(resp *pb.RateLimitResponse) string {
	var lines []string
	for _, h := range resp.ResponseHeadersToAdd {
		lines = append(lines, h.Key+": "+h.Value)
	}
	return strings.Join(lines, "\n")
}

func (r *rig) wantHeaders(want string, req *pb.RateLimitRequest) {
	r.t.Helper()
	if got := headers(r.call(req)); got != strings.TrimSpace(want) {
		r.t.Fatalf("headers:\n%s\nwant:\n%s", got, strings.TrimSpace(want))
	}
}

func TestReferenceHeaders(t *testing.T) {
	r := start(t, rules, replying(envoy.Reply{RateLimit: reference}))
	r.wantHeaders("RateLimit-Limit: 5\nRateLimit-Remaining: 4\nRateLimit-Reset: 50", request(desc("five", "a")))
	// The least remaining, the first on a tie.
	r.wantHeaders("RateLimit-Limit: 2\nRateLimit-Remaining: 1\nRateLimit-Reset: 3590", request(desc("five", "a"), desc("two", "a")))
	r.wantHeaders("", request(desc("nothing", "a")))
	r.wantHeaders("", request(desc("free", "a")))
	// A shadow rule never shows, over or not.
	r.wantHeaders("", request(desc("shadow", "a")))
	r.wantHeaders("RateLimit-Limit: 5\nRateLimit-Remaining: 2\nRateLimit-Reset: 50", request(desc("shadow", "a"), desc("five", "a")))
}

func TestRequestHeaders(t *testing.T) {
	r := start(t, rules, replying(envoy.Reply{Upstream: reference}))
	resp := r.call(request(desc("five", "a"), desc("two", "a"), desc("shadow", "a")))
	var got []string
	for _, h := range resp.RequestHeadersToAdd {
		got = append(got, h.Key+": "+h.Value)
	}
	if want := "RateLimit-Limit: 2, RateLimit-Remaining: 1, RateLimit-Reset: 3590"; strings.Join(got, ", ") != want {
		t.Errorf("headers for the upstream: %q, want %q", got, want)
	}
	if resp.ResponseHeadersToAdd != nil {
		t.Errorf("headers for the client: %v", resp.ResponseHeadersToAdd)
	}
}

func TestTheLongestWaitDrivesTheHeaders(t *testing.T) {
	for _, order := range [][]string{{"two", "five"}, {"five", "two"}} {
		r := start(t, rules, replying(envoy.Reply{RateLimit: reference}))
		both := request(desc(order[0], "a"), desc(order[1], "a"))
		for range 5 {
			r.call(both)
		}
		r.wantHeaders("RateLimit-Limit: 2\nRateLimit-Remaining: 0\nRateLimit-Reset: 3590", both)
	}
}

// TestQuotasThatDoNotDenyShowTheLeastRemaining: a request that passes because
// one of its quotas passes shows no wait of the quotas that are used up.
func TestQuotasThatDoNotDenyShowTheLeastRemaining(t *testing.T) {
	r := start(t, `
domain: d
descriptors:
  - {key: hour, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: year, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 0}}
  - {key: left, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 9}}
`, replying(envoy.Reply{RateLimit: reference, RetryAfter: true, Metadata: true}))
	req := request(desc("left", "a"), desc("hour", "a"), desc("year", "a"))
	r.wantHeaders("RateLimit-Limit: 0\nRateLimit-Remaining: 0\nRateLimit-Reset: 3590", req)
	if fields := r.call(req).DynamicMetadata.AsMap(); fields["rule"] != "d.hour" || fields["retry_after"] != nil {
		t.Errorf("metadata: %v", fields)
	}
}

func TestStandardHeaders(t *testing.T) {
	r := start(t, rules, replying(envoy.Reply{IETF: true, XRateLimit: true, RetryAfter: true}))
	epoch := r.clock.Load() / 1_000_000
	r.wantHeaders(fmt.Sprintf(`
X-RateLimit-Limit: 2
X-RateLimit-Remaining: 1
X-RateLimit-Reset: %d
RateLimit-Policy: "per-minute";q=5;w=60, "per-hour";q=2;w=3600
RateLimit: "per-hour";r=1;t=3590`, epoch+3590), request(desc("five", "a"), desc("two", "a"), desc("shadow", "a")))
	r.call(request(desc("two", "a")))
	r.pass(300 * time.Millisecond)
	r.wantHeaders(fmt.Sprintf(`
X-RateLimit-Limit: 2
X-RateLimit-Remaining: 0
X-RateLimit-Reset: %d
RateLimit-Policy: "per-hour";q=2;w=3600
RateLimit: "per-hour";r=0;t=3590
Retry-After: 3590`, epoch+3590), request(desc("two", "a")))
}

func TestAnUnnamedPolicyHasAName(t *testing.T) {
	r := start(t, "domain: d\ndescriptors:\n  - key: k\n    rate_limit: {unit: hour, requests_per_unit: 7}\n  - key: q\n    rate_limit: {unit: hour, requests_per_unit: 7, name: \"say \\\"hi\\\" ü\"}\n",
		replying(envoy.Reply{IETF: true}))
	r.wantHeaders("RateLimit-Policy: \"7-per-3600s\";q=7;w=3600\nRateLimit: \"7-per-3600s\";r=6;t=3590", request(desc("k", "a")))
	r.wantHeaders(`RateLimit-Policy: "say \"hi\" ??";q=7;w=3600`+"\n"+`RateLimit: "say \"hi\" ??";r=6;t=3590`, request(desc("q", "a")))
}

// A period of the calendar has its own length: January 2027 begins on the 15th of it and has 31 days.
func TestThePolicyOfACalendar(t *testing.T) {
	r := start(t, "domain: d\ndescriptors:\n  - {key: k, rate_limit: {unit: month, requests_per_unit: 7, window: calendar, month_starts: 15}}\n", replying(envoy.Reply{IETF: true}))
	r.wantHeaders(`RateLimit-Policy: "7-per-calendar-month";q=7;w=2678400`+"\n"+`RateLimit: "7-per-calendar-month";r=6;t=2591990`, request(desc("k", "a")))
}

func TestProblemBody(t *testing.T) {
	r := start(t, rules, replying(envoy.Reply{ProblemBody: true}))
	req := request(desc("never", "a"), desc("five", "a"), desc("two", "a"))
	if resp := r.call(request(desc("two", "a"), desc("two", "a"))); len(resp.RawBody) != 0 {
		t.Fatalf("an OK has a body: %s", resp.RawBody)
	}
	resp := r.call(req)
	if h := headers(resp); h != "Content-Type: application/problem+json" {
		t.Fatal(h)
	}
	var body struct {
		Type     string
		Title    string
		Status   int
		Violated []string `json:"violated-policies"`
		Retry    int      `json:"retry-after"`
	}
	if err := json.Unmarshal(resp.RawBody, &body); err != nil {
		t.Fatalf("%s: %v", resp.RawBody, err)
	}
	if body.Type != "https://iana.org/assignments/http-problem-types#quota-exceeded" || body.Title == "" || body.Status != 429 ||
		fmt.Sprint(body.Violated) != "[0-per-60s per-hour]" || body.Retry != 3590 {
		t.Fatalf("%s", resp.RawBody)
	}
}

func TestMetadata(t *testing.T) {
	r := start(t, `
domain: d
descriptors:
  - key: k
    rate_limit: {unit: hour, requests_per_unit: 1, name: one}
    metadata: {team: red, nested: {a: 1}}
  - key: t
    rate_limit: {unit: minute, requests_per_unit: 9, strategy: token_bucket}
    metadata: {team: blue, nested: {b: 2}}
`, replying(envoy.Reply{Metadata: true}))
	resp := r.call(request(desc("k", "v"), desc("t", "v")))
	got, err := json.Marshal(resp.DynamicMetadata.AsMap())
	if err != nil {
		t.Fatal(err)
	}
	want := `{"descriptors":[{"entries":["k=v"]},{"entries":["t=v"]}],"domain":"d","limit":1,"metadata":{"nested":{"a":1,"b":2},"team":"red"},"remaining":0,"rule":"one","strategy":"fixed_window"}`
	if string(got) != want {
		t.Fatalf("%s\nwant %s", got, want)
	}
	m := r.call(request(desc("k", "v"), desc("t", "v"))).DynamicMetadata.AsMap()
	if m["retry_after"] != 3590.0 || fmt.Sprint(m["metadata"]) != "map[nested:map[b:2] team:blue]" {
		t.Fatalf("%v", m)
	}
	if m := r.call(request(desc("t", "w"))).DynamicMetadata.AsMap(); m["rule"] != "d.t" || m["strategy"] != "token_bucket" {
		t.Fatalf("%v", m)
	}
}

func TestShadowModeOfTheService(t *testing.T) {
	r := start(t, rules, func(c *config) { c.ShadowMode, c.Reply = true, envoy.Reply{RateLimit: reference} })
	resp := r.call(request(desc("never", "a"), withLimit(0, 1, nil, desc("five", "a"))))
	if resp.OverallCode != ok || resp.Statuses[0].Code != over || resp.Statuses[1].Code != over || headers(resp) != "" {
		t.Fatalf("%v", resp)
	}
}

// TestReplacedQuota: a rule in quota mode that another one replaces is not one
// of the quotas of the request. envoyproxy/ratelimit answers the same.
func TestReplacedQuota(t *testing.T) {
	const quotas = `
domain: d
descriptors:
  - {key: q, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 0, name: q}}
  - {key: by, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 0, replaces: [{name: q}]}}
`
	req := request(desc("q", "a"), desc("by", "a"))
	if resp := start(t, quotas).call(req); resp.OverallCode != over {
		t.Errorf("the quota that remains is used up: %v", resp)
	}
	resp := start(t, quotas, func(c *config) { c.QuotaMode = true }).call(req)
	if resp.OverallCode != ok {
		t.Errorf("with QUOTA_MODE a descriptor without a limit passes: %v", resp)
	}
}

// TestShadowDenialOfACost: a rule in shadow mode answers OK also when a cost
// is larger than the remaining hits.
func TestShadowDenialOfACost(t *testing.T) {
	r := start(t, "domain: d\ndescriptors:\n  - {key: k, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 5, strategy: sliding_window}}\n")
	r.want(withHits(3, desc("k", "a")), ok, 2)
	r.want(withHits(3, desc("k", "a")), ok, 2)
}

func TestReplaces(t *testing.T) {
	r := start(t, `
domain: d
descriptors:
  - {key: all, rate_limit: {unit: hour, requests_per_unit: 1, name: all}}
  - {key: vip, rate_limit: {unit: hour, requests_per_unit: 9, name: vip, replaces: [{name: all}]}}
  - {key: free, rate_limit: {unlimited: true, replaces: [{name: all}]}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 9, replaces: [{name: all}]}}
  - {key: x, rate_limit: {unit: hour, requests_per_unit: 9, name: x, replaces: [{name: y}]}}
  - {key: y, rate_limit: {unit: hour, requests_per_unit: 9, name: y, replaces: [{name: x}]}}
`)
	for _, replacer := range []string{"vip", "free", "shadow"} {
		for range 3 {
			resp := r.call(request(desc("all", "a"), desc(replacer, "a")))
			if resp.OverallCode != ok || resp.Statuses[0].CurrentLimit != nil {
				t.Fatalf("%s: %v", replacer, resp)
			}
		}
	}
	r.want(desc("all", "a"), ok, 0) // and was not charged meanwhile
	s := r.call(request(desc("x", "a"), desc("y", "a"))).Statuses
	if s[0].CurrentLimit != nil || s[1].CurrentLimit != nil {
		t.Fatalf("limits that replace each other: %v", s)
	}
	s = r.call(request(withLimit(5, 3, nil, desc("all", "b")), withLimit(9, 3, nil, desc("vip", "b")))).Statuses
	if s[0].CurrentLimit == nil || s[1].CurrentLimit == nil {
		t.Fatalf("overrides neither replace nor are replaced: %v", s)
	}
}

const several = `
domain: d
charge: %s
descriptors:
  - key: k
    rate_limits:
      - {unit: second, requests_per_unit: 2, name: burst}
      - {unit: minute, unit_multiplier: 10, requests_per_unit: 5, name: sustained}
  - key: n
    rate_limit: {unit: hour, requests_per_unit: 0}
  - key: other
    rate_limit: {unit: hour, requests_per_unit: 100}
  - key: s
    shadow_mode: true
    rate_limit: {unit: hour, requests_per_unit: 0}
`

func TestSeveralLimits(t *testing.T) {
	r := start(t, fmt.Sprintf(several, "admitted"))
	name := func(want string, code pb.RateLimitResponse_Code, remaining uint32) {
		t.Helper()
		s := r.hit(desc("k", "a"))
		if s.CurrentLimit.GetName() != want || s.Code != code || s.LimitRemaining != remaining {
			t.Fatalf("%v; want %s, %v, %d", s, want, code, remaining)
		}
	}
	name("burst", ok, 1)
	name("burst", ok, 0)
	name("burst", over, 0)
	r.pass(time.Second)
	name("burst", ok, 1)
	name("burst", ok, 0)
	r.pass(time.Second)
	name("sustained", ok, 0) // the denied hit was not charged
	name("sustained", over, 0)
}

// TestSeveralLimitsOfADescriptorAreChargedTogether: a client that is over its
// limit per second does not use up its limit per ten minutes, with any value of
// charge. The window that denies counts the hit only with charge: always.
func TestSeveralLimitsOfADescriptorAreChargedTogether(t *testing.T) {
	const rules = `
domain: d
charge: %s
descriptors:
  - key: client
    rate_limits:
      - {unit: second, requests_per_unit: 10, name: burst}
      - {unit: minute, unit_multiplier: 10, requests_per_unit: 3000, name: sustained, strategy: %s}
  - {key: other, rate_limit: {unit: hour, requests_per_unit: 1000}}
`
	for strategy, left := range map[string]uint32{ // after 3 s with 10 admitted requests each
		"fixed_window": 2970, "sliding_window": 2970, "sliding_log": 2970, "token_bucket": 2985, // 5 tokens per second come back
	} {
		for charge, others := range map[string]uint32{"always": 1000 - 75, "admitted": 1000 - 30} {
			t.Run(strategy+", charge "+charge, func(t *testing.T) {
				text := fmt.Sprintf(rules, charge, strategy)
				r := start(t, text)
				for range 3 {
					for i := range 25 {
						resp := r.call(request(desc("other", "a"), desc("client", "a")))
						if s := resp.Statuses[1]; (resp.OverallCode == over) != (i >= 10) || s.CurrentLimit.Name != "burst" {
							t.Fatalf("hit %d of a second: %v", i+1, resp)
						}
					}
					r.pass(time.Second)
				}
				r.want(withHits(0, desc("other", "a")), ok, others)
				r.load(strings.ReplaceAll(text, "requests_per_unit: 10,", "requests_per_unit: 100000,"))
				if s := r.hit(withHits(0, desc("client", "a"))); s.CurrentLimit.Name != "sustained" || s.LimitRemaining != left {
					t.Errorf("%v; want %d left of sustained", s, left)
				}
			})
		}
	}
}

// TestDenyingLimitOfSeveralCountsTheHit: with charge: always a fixed window that
// denies counts the denied hit, also as one of several limits.
func TestDenyingLimitOfSeveralCountsTheHit(t *testing.T) {
	rules := fmt.Sprintf(several, "always")
	r := start(t, rules)
	for range 3 {
		r.hit(desc("k", "a"))
	}
	r.load(strings.ReplaceAll(rules, "requests_per_unit: 2,", "requests_per_unit: 4,"))
	r.want(withHits(0, desc("k", "a")), ok, 1) // 3 of 4 were counted
}

// TestOverrideKeepsTheCounterOfSeveralLimits: an override with the window of the
// rule's first limit counts in the cell of that limit.
func TestOverrideKeepsTheCounterOfSeveralLimits(t *testing.T) {
	r := start(t, fmt.Sprintf(several, "admitted"))
	r.want(desc("k", "a"), ok, 1)
	r.want(withLimit(9, 1, nil, desc("k", "a")), ok, 7)
}

func TestCharge(t *testing.T) {
	both := request(desc("other", "a"), desc("n", "a"))
	t.Run("always", func(t *testing.T) {
		r := start(t, fmt.Sprintf(several, "always"))
		r.call(both)
		r.want(desc("other", "a"), ok, 98)
	})
	t.Run("admitted", func(t *testing.T) {
		r := start(t, fmt.Sprintf(several, "admitted"))
		resp := r.call(both)
		if resp.OverallCode != over || resp.Statuses[0].Code != ok || resp.Statuses[0].LimitRemaining != 100 {
			t.Fatalf("%v", resp)
		}
		r.want(desc("other", "a"), ok, 99)
		if resp := r.call(request(desc("other", "a"), desc("s", "a"))); resp.OverallCode != ok {
			t.Fatalf("%v", resp)
		}
		r.want(desc("other", "a"), ok, 97) // hits that a rule in shadow mode denies are charged
	})
}

func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, "domain: d\ndescriptors:\n  - {key: k, rate_limit: {unit: second, requests_per_unit: 10, strategy: leaky_bucket, max_delay: 250ms}}\n")
		begin := time.Now()
		for i := range 3 { // turns at 0, 100 and 200 ms on a clock that stands still
			if s := r.hit(desc("k", "a")); s.Code != ok {
				t.Fatalf("hit %d: %v", i, s)
			}
		}
		if took := time.Since(begin); took != 300*time.Millisecond {
			t.Fatalf("held for %v in all, want 0 + 100 + 200 ms", took)
		}
		begin = time.Now()
		if s := r.hit(desc("k", "a")); s.Code != over || time.Since(begin) > 0 {
			t.Fatalf("a turn beyond max_delay: %v after %v, want an immediate denial", s, time.Since(begin))
		}
	})
}

func TestNobodyQueuesForALimitThatIsNotEnforced(t *testing.T) {
	const rule = "domain: d\ndescriptors:\n  - {key: k, shadow_mode: %v, rate_limit: {unit: minute, requests_per_unit: 12, strategy: leaky_bucket, max_delay: 1m}}\n"
	for name, c := range map[string]struct{ rule, service bool }{
		"rule":    {rule: true},
		"service": {service: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, fmt.Sprintf(rule, c.rule), func(o *config) { o.ShadowMode = c.service })
				begin := time.Now()
				r.hit(desc("k", "a"))
				r.hit(desc("k", "a")) // its turn is in five seconds
				if took := time.Since(begin); took > 0 {
					t.Errorf("held for %v", took)
				}
			})
		})
	}
}
