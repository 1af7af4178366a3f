package operate_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/envoy"
	"example.org/rls/pkg/service/operate"
)

const celled = `domain: d
descriptors:
- {key: user, rate_limit: {unit: minute, requests_per_unit: 10}}
- {key: user, value: ann, rate_limit: {unit: minute, requests_per_unit: 10}}
- {key: user, value: a*, rate_limit: {unit: minute, requests_per_unit: 10, strategy: gcra}}
- key: plan
  value: free
  descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 10, strategy: sliding_window}}
- {key: path, value: /s/*, share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 10}}
- {key: ip, match: {cidr: [10.0.0.0/8, "2001:db8::/32"]}, share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 10}}
- {key: ip, match: {cidr: [11.0.0.0/8]}, mask: {ipv4: 24}, rate_limit: {unit: minute, requests_per_unit: 10}}
- {key: ip, mask: {ipv4: 24, ipv6: 64}, rate_limit: {unit: minute, requests_per_unit: 10, strategy: gcra}}
- {key: tier, match: {values: [A, b+1], ignore_case: true}, rate_limit: {unit: minute, requests_per_unit: 10}}
- {key: tier, match: {values: [c+1, c]}, share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 10}}
- {key: y-*, match: {not: {prefix: "~a|*="}}, share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 10}}
- {key: x-*, share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 10, strategy: sliding_log}}
- key: api_key
  rate_limits:
  - {unit: second, requests_per_unit: 10}
  - {unit: minute, requests_per_unit: 10, strategy: sliding_window}
  - {unit: minute, requests_per_unit: 10, strategy: token_bucket, burst: 20}
- {key: month, rate_limit: {unit: month, requests_per_unit: 10, window: calendar, timezone: America/New_York}}
- {key: free, rate_limit: {unlimited: true}}
`

// keys is the number of cells in the store.
func (s *seen) keys(t *testing.T) (n int) {
	t.Helper()
	scanner, err := backends.ScannerOf(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := backends.Scan(t.Context(), scanner, "", func(keys []string) error { n += len(keys); return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}

func (r *rig) wantMatching(rule string, dryRun bool, want operate.Progress) {
	r.t.Helper()
	got, err := r.ResetMatching(r.t.Context(), "d", rule, dryRun, func(operate.Progress) error { return nil })
	if got.Scanned < got.Matched || got.Matched != want.Matched || got.Changed != want.Changed || err != nil {
		r.t.Errorf("%s: %+v, %v, want %+v", rule, got, err, want)
	}
}

// TestResetMatching resets the cells that the hits of a rule are counted in, and no
// others.
func TestResetMatching(t *testing.T) {
	store := new(seen)
	r := start(t, celled, store.under, func(c *service.Config) { c.KeyPrefix = "rl:" })
	override := withLimit(100, descriptors.Minute, desc("user", "al")) // has a bucket of its own
	rules := map[string]struct {
		cells       int64
		descriptors []service.Descriptor
	}{
		"d.user":                 {3, []service.Descriptor{desc("user", "bob"), desc("user", "b|=%{}*"), desc("user", "")}},
		"d.user_ann":             {1, []service.Descriptor{desc("user", "ann")}},
		"d.user_a*":              {3, []service.Descriptor{desc("user", "al"), desc("user", "a*"), override}},
		"d.plan_free.user":       {2, []service.Descriptor{desc("plan", "free", "user", "ann"), desc("plan", "free", "user", "1m|2")}},
		"d.month":                {2, []service.Descriptor{desc("month", "a"), desc("month", "b|cmonth|0")}},
		"d.path_/s/*":            {1, []service.Descriptor{desc("path", "/s/1"), desc("path", "/s/2")}},
		"d.ip~cidr:10.0.0.0/8+1": {1, []service.Descriptor{desc("ip", "10.1.1.1"), desc("ip", "2001:db8::1"), desc("ip", "::ffff:10.0.0.1")}},
		"d.ip~cidr:11.0.0.0/8":   {2, []service.Descriptor{desc("ip", "11.1.1.1"), desc("ip", "11.1.1.2"), desc("ip", "11.1.2.1")}},
		"d.ip": {5, []service.Descriptor{
			desc("ip", "192.0.2.1"), desc("ip", "::ffff:192.0.2.2"), desc("ip", "192.0.2.0/24"), desc("ip", "192.0.3.1"), desc("ip", "host"), desc("ip", ""), desc("ip", "2001:db9::1"), desc("ip", "2001:db9::2"),
		}},
		"d.tier~values/i:A+1":    {3, []service.Descriptor{desc("tier", "a"), desc("tier", "A"), desc("tier", "B+1")}},
		"d.tier~values:c+1+1":    {1, []service.Descriptor{desc("tier", "c"), desc("tier", "c+1")}},
		"d.y-*~not:prefix:~a|*=": {2, []service.Descriptor{desc("y-a", "1"), desc("y-a", "2"), desc("y-~", "2")}},
		"d.x-*":                  {2, []service.Descriptor{desc("x-a", "1"), desc("x-b", "2")}},
		"d.api_key":              {6, []service.Descriptor{desc("api_key", "k1"), desc("api_key", "k2")}},
	}
	left := 0
	for _, rule := range rules {
		left += int(rule.cells)
		for _, d := range rule.descriptors {
			r.hit(d)
		}
	}
	for path, rule := range rules {
		r.wantMatching(path, true, operate.Progress{Matched: rule.cells})
	}
	for path, rule := range rules {
		r.wantMatching(path, false, operate.Progress{Matched: rule.cells, Changed: rule.cells})
		if left -= int(rule.cells); store.keys(t) != left {
			t.Errorf("%s: %d cells are left, want %d", path, store.keys(t), left)
		}
	}
	for _, op := range store.ops {
		if op.Verb == backends.Reset && op.PerSecond != strings.Contains(op.Key, "|1s|") {
			t.Errorf("%q is reset by %+v", op.Key, op)
		}
	}
	sliding := desc("plan", "free", "user", "ann")
	r.hit(withHits(8, sliding))
	r.hit(desc("user", "bob"))
	r.pass(time.Minute)
	r.wantMatching("d.user", true, operate.Progress{}) // its window is over
	r.wantMatching("d.plan_free.user", false, operate.Progress{Matched: 1, Changed: 1})
	r.want(withHits(0, sliding), answer{remaining: 10}) // the window before has weighed
}

// The cell of a network is of the rule whose mask counts its addresses, whichever rule takes the
// first of them, and of no rule beside it.
func TestResetMatchingOfMasks(t *testing.T) {
	const limited = "rate_limit: {unit: minute, requests_per_unit: 10}}\n"
	r := start(t, `domain: d
descriptors:
- {key: ip, `+limited+`
- {key: ip, match: {cidr: [192.168.0.0/16]}, mask: {ipv4: 24}, `+limited+`
- {key: ip, match: {cidr: [10.0.0.128/25]}, mask: {ipv4: 24}, `+limited+`
- {key: client, mask: {ipv4: 24}, `+limited+`
- {key: client, match: {cidr: [10.0.0.0/28]}, rate_limit: {unlimited: true}}
- {key: client, value: 10.0.1.0, rate_limit: {unlimited: true}}
`)
	for _, d := range []service.Descriptor{
		desc("ip", "192.168.1.1"), desc("ip", "192.168.2.1"), desc("ip", "9.9.9.9"), desc("ip", "10.0.0.200"),
		desc("client", "10.0.0.99"), desc("client", "10.0.1.99"), desc("client", "10.0.2.99"),
	} {
		r.hit(d)
	}
	for rule, cells := range map[string]int64{"d.ip": 1, "d.ip~cidr:192.168.0.0/16": 2, "d.ip~cidr:10.0.0.128/25": 1, "d.client": 3} {
		r.wantMatching(rule, false, operate.Progress{Matched: cells, Changed: cells})
	}
}

// What the keys of a rule have borrowed is reset with it, and the pool is not.
func TestResetMatchingOfBorrowers(t *testing.T) {
	for _, strategy := range []string{"fixed_window", "sliding_window", "token_bucket"} {
		r := start(t, `domain: d
pools: {spare: {unit: hour, requests_per_unit: 10, strategy: `+strategy+`}}
descriptors:
- {key: user, rate_limits: [{unit: minute, requests_per_unit: 2, borrow_from: spare}, {unit: hour, requests_per_unit: 100, strategy: gcra, burst: 100}]}
- {key: job, rate_limit: {unit: minute, requests_per_unit: 2, borrow_from: spare}}
`, func(c *service.Config) { c.KeyPrefix = "rl:" })
		for _, d := range []func() service.Descriptor{func() service.Descriptor { return desc("user", "a|borrow=spare") }, func() service.Descriptor { return desc("job", "a") }} {
			r.hit(withHits(2, d()))
			r.want(withHits(3, d()), answer{remaining: r.hit(withHits(0, d())).remaining - 3})
		}
		r.wantMatching("d.user", true, operate.Progress{Matched: 3})
		r.wantMatching("d.user", false, operate.Progress{Matched: 3, Changed: 3})
		for key, want := range map[string]int64{"user": 0, "job": 3} {
			value := map[string]string{"user": "a|borrow=spare", "job": "a"}[key]
			if l := r.inspect(operate.Look, request(desc(key, value)))[0].Limits[0]; l.Borrowed.Count != want || l.Pool.Count != 6 {
				t.Errorf("%s: %s has borrowed %+v of %+v", strategy, key, l.Borrowed.Cell, l.Pool.Cell)
			}
		}
	}
}

// TestResetMatchingThatCannotBe is refused with the reason.
func TestResetMatchingThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		rule, want string
		code       codes.Code
		change     func(*service.Config)
	}{
		{"d.nobody", "has no rule d.nobody", codes.NotFound, func(*service.Config) {}},
		{"d.free", "unlimited", codes.FailedPrecondition, func(*service.Config) {}},
		{"d.user", "CACHE_KEY_HASH", codes.Unimplemented, func(c *service.Config) { c.Values = service.NewValueHash([]byte("secret")) }},
		{"d.user", "CACHE_KEY_FORMAT", codes.Unimplemented, func(c *service.Config) { c.RatelimitKeys = true }},
		{"d.user", "cannot scan", codes.Unimplemented, func(c *service.Config) { c.Store = struct{ backends.Store }{c.Store} }},
	} {
		_, err := start(t, celled, c.change).ResetMatching(t.Context(), "d", c.rule, false, nil)
		if status.Code(envoy.Error(err)) != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.rule, err, c.want)
		}
	}
}

// A reset or a dry run that ends early tells how far it came. A dry run has reset nothing.
func TestResetMatchingThatEndsEarly(t *testing.T) {
	for dryRun, want := range map[bool]string{true: "1 cells of the rule were found, then", false: "1 cells of the rule were reset, then"} {
		r := start(t, celled)
		r.hit(desc("user", "bob"))
		_, err := r.ResetMatching(t.Context(), "d", "d.user", dryRun, func(operate.Progress) error { return errors.New("no answer") })
		if status.Code(envoy.Error(err)) != codes.Unavailable || !strings.Contains(err.Error(), want) {
			t.Errorf("dry run %v: %v, want %q", dryRun, err, want)
		}
	}
}

// TestNoCreditInSharedCounters: envoyproxy/ratelimit fails on a negative count, so a
// grant on a counter that it shares takes back counted hits only.
func TestNoCreditInSharedCounters(t *testing.T) {
	r := start(t, celled, func(c *service.Config) { c.RatelimitKeys = true })
	bob := desc("user", "bob")
	r.hit(withHits(4, bob))
	in := changed(t, r.change(operate.Grant(operate.Granting{Hits: 5}), request(bob)))
	if !errors.Is(in.Err, backends.ErrUnsupported) || !strings.Contains(in.Err.Error(), "at most the 4 hits") || in.After != nil {
		t.Errorf("a grant below 0: %v, %+v", in.Err, in.After)
	}
	if in = changed(t, r.change(operate.Grant(operate.Granting{Hits: 3}), request(bob))); in.Err != nil || in.After.Count != 4 || in.After.Granted != 3 {
		t.Errorf("a grant of counted hits: %v, %+v", in.Err, in.After)
	}
}

// TestGrantOfAnOverride: in the cell of a rule's limit the rule bounds grants, whatever
// limit the request brings along.
func TestGrantOfAnOverride(t *testing.T) {
	r := start(t, celled)
	for key, value := range map[string]string{"user": "bob", "x-a": "1"} {
		raised := func(hits int64, limit uint32) ([]operate.Change, error) {
			return r.try(operate.Grant(operate.Granting{Hits: hits}), request(withLimit(limit, descriptors.Minute, desc(key, value))))
		}
		own := key == "x-a" // share_threshold does not hold for the cell of an override
		if _, err := raised(101, 4000); (err == nil) != own || err != nil && !strings.Contains(err.Error(), "at most 100 (10 times the limit of 10)") {
			t.Errorf("%s: a grant of 101 hits: %v", key, err)
		}
		if was, err := raised(90, 4000); err != nil || changed(t, was).After == nil {
			t.Errorf("%s: a grant of 90 hits: %+v, %v", key, was, err)
		}
		if _, err := raised(20, 4000); (err == nil) != own {
			t.Errorf("%s: 120 hits remain after a grant of 20: %v", key, err)
		}
		if _, err := raised(11, 1); err == nil {
			t.Errorf("%s: a grant beyond the limit that was brought along: %v", key, err)
		}
	}
}
