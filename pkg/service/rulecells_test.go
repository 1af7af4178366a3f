package service_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/service"
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
- {key: x-*, share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 10, strategy: sliding_log}}
- key: api_key
  rate_limits:
  - {unit: second, requests_per_unit: 10}
  - {unit: minute, requests_per_unit: 10, strategy: sliding_window}
- {key: free, rate_limit: {unlimited: true}}
`

// cellsOf are the keys of the rule's cells that the store holds.
func (r *rig) cellsOf(store backends.Scanner, rule string) (keys []string) {
	r.t.Helper()
	prefix, reset, err := r.service.RuleCells(rule)
	if err != nil {
		r.t.Fatal(err)
	}
	err = store.Scan(r.t.Context(), prefix, func(some []string) error {
		for _, key := range some {
			if !strings.HasPrefix(key, prefix) {
				r.t.Errorf("%q does not begin with %q", key, prefix)
			}
			op, ok := reset(key)
			if !ok {
				continue
			}
			if keys = append(keys, key); op.Key != key || op.Verb != backends.Reset || op.PerSecond != strings.Contains(key, "|1s|") {
				r.t.Errorf("%q is reset by %+v", key, op)
			}
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	slices.Sort(keys)
	return keys
}

// scanning starts a service over a store whose keys can be listed.
func scanning(t *testing.T, change ...func(*service.Config)) (*rig, backends.Scanner) {
	t.Helper()
	var scanner backends.Scanner
	r := start(t, celled, append(change, func(c *service.Config) {
		var err error
		if scanner, err = backends.ScannerOf(c.Store); err != nil {
			t.Fatal(err)
		}
	})...)
	return r, scanner
}

// TestTheCellsOfARule are those that its hits are counted in, and no others.
func TestTheCellsOfARule(t *testing.T) {
	r, store := scanning(t, func(c *service.Config) { c.KeyPrefix = "rl:" })
	rules := map[string][]*rlcommon.RateLimitDescriptor{
		"d.user":           {desc("user", "bob"), desc("user", "b|=%{}*"), desc("user", "")},
		"d.user_ann":       {desc("user", "ann")},
		"d.user_a*":        {desc("user", "al"), desc("user", "a*")},
		"d.plan_free.user": {desc("plan", "free", "user", "ann"), desc("plan", "free", "user", "1m|2")},
		"d.path_/s/*":      {desc("path", "/s/1"), desc("path", "/s/2")},
		"d.x-*":            {desc("x-a", "1"), desc("x-b", "2")},
		"d.api_key":        {desc("api_key", "k1"), desc("api_key", "k2")},
	}
	for _, descriptors := range rules {
		for _, d := range descriptors {
			r.hit(d)
		}
	}
	all := map[string]bool{}
	for rule, want := range map[string]int{
		"d.user": 3, "d.user_ann": 1, "d.user_a*": 2, "d.plan_free.user": 2, "d.path_/s/*": 1, "d.x-*": 2, "d.api_key": 4,
	} {
		keys := r.cellsOf(store, rule)
		if len(keys) != want {
			t.Errorf("%s has the cells %q, want %d", rule, keys, want)
		}
		for _, key := range keys {
			if all[key] {
				t.Errorf("%q belongs to several rules", key)
			}
			all[key] = true
		}
	}
	keys := r.cellsOf(store, "d.plan_free.user")
	if r.pass(time.Minute); !slices.Equal(r.cellsOf(store, "d.plan_free.user"), keys) {
		t.Error("the window before does not count, although it weighs")
	}
	if got := r.cellsOf(store, "d.user"); len(got) != 0 {
		t.Errorf("cells of a window that is over: %q", got)
	}
}

// TestRulesWhoseCellsCannotBeFound are refused with the reason.
func TestRulesWhoseCellsCannotBeFound(t *testing.T) {
	for _, c := range []struct {
		rule, want string
		change     func(*service.Config)
	}{
		{"d.nobody", "there is no rule d.nobody", func(*service.Config) {}},
		{"d.free", "unlimited", func(*service.Config) {}},
		{"d.user", "CACHE_KEY_HASH", func(c *service.Config) { c.KeySecret = []byte("secret") }},
		{"d.user", "CACHE_KEY_FORMAT", func(c *service.Config) { c.RatelimitKeys = true }},
	} {
		r, _ := scanning(t, c.change)
		if _, _, err := r.service.RuleCells(c.rule); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.rule, err, c.want)
		}
	}
}

// TestNoCreditInSharedCounters: envoyproxy/ratelimit fails on a negative count, so a
// grant on a counter that it shares takes back counted hits only.
func TestNoCreditInSharedCounters(t *testing.T) {
	r := start(t, celled, func(c *service.Config) { c.RatelimitKeys = true })
	bob := desc("user", "bob")
	r.hit(withHits(4, bob))
	in := only(t, r.inspect(service.Grant(5), request(bob)))
	if !errors.Is(in.Err, backends.ErrUnsupported) || !strings.Contains(in.Err.Error(), "at most the 4 hits") || in.After != nil {
		t.Errorf("a grant below 0: %v, %+v", in.Err, in.After)
	}
	if in = only(t, r.inspect(service.Grant(3), request(bob))); in.Err != nil || in.After.Count != 1 {
		t.Errorf("a grant of counted hits: %v, %+v", in.Err, in.After)
	}
}
