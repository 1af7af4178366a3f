package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
)

const sharedRules = `
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 10}}
  - key: path
    value: /a*
    share_threshold: true
    descriptors: [{key: user, rate_limit: {unit: month, requests_per_unit: 10}}]
  - {key: biennial, rate_limit: {unit: year, unit_multiplier: 2, requests_per_unit: 10}}
  - {key: sliding, rate_limit: {unit: year, requests_per_unit: 10, strategy: sliding_window}}
  - key: several
    rate_limits: [{unit: year, requests_per_unit: 10}, {unit: month, requests_per_unit: 10}]
`

// TestCountersAreSharedWithRatelimit: hits that envoyproxy/ratelimit has counted,
// with INCRBY and EXPIRE on its keys, count here, and the other way round.
// Strategies that it does not have keep their own keys.
func TestCountersAreSharedWithRatelimit(t *testing.T) {
	t.Parallel()
	const year, month = 365 * 24 * time.Hour, 30 * 24 * time.Hour
	start := func(window time.Duration) int64 {
		seconds := int64(window / time.Second)
		return time.Now().Unix() / seconds * seconds
	}
	server := testenv.Redis(t).Addr
	o := operate(t, server, "")
	s := serve(t, sharedRules, append(redisAt(server), "CACHE_KEY_FORMAT=ratelimit", "CACHE_KEY_PREFIX=p:")...)
	key := fmt.Sprintf("p:shop_user_a b_%d", start(year))
	for range 3 {
		o.does("INCRBY", key, 2)
		o.does("EXPIRE", key, int(year.Seconds()))
	}
	s.want("shop", desc("user", "a b"), ok, 3)
	if n := o.does("GET", key); n != "7" {
		t.Errorf("the shared counter is %v after 6 hits there and 1 here", n)
	}
	s.call("shop", desc("path", "/abc", "user", "b"), desc("biennial", "c"), desc("sliding", "c"), desc("several", "c"))
	var keys []string
	for key, ttl := range keysOf(t, server) {
		keys = append(keys, key)
		if ttl <= 0 {
			t.Errorf("key %q ends in %v", key, ttl)
		}
	}
	shared := fmt.Sprintf("p:shop_path_/a*_user_b_%d", start(month))
	if !slices.Contains(keys, shared) {
		t.Errorf("no key %q in %q", shared, keys)
	}
	for _, own := range []string{"p:shop|biennial=c|730d|", "p:shop|sliding=c|", "p:{shop|several=c}|365d|", "p:{shop|several=c}|30d|"} {
		if !slices.ContainsFunc(keys, func(key string) bool { return strings.HasPrefix(key, own) }) {
			t.Errorf("no key begins with %q in %q", own, keys)
		}
	}
}
