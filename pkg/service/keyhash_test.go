package service_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"testing"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/service"
)

// keysSeen is a store that remembers the keys that it was asked for.
type keysSeen struct {
	backends.Store
	mu   sync.Mutex
	keys []string
}

func (s *keysSeen) Apply(ctx context.Context, b *backends.Batch) error {
	s.mu.Lock()
	for i := range b.Ops {
		s.keys = append(s.keys, b.Ops[i].Key)
	}
	s.mu.Unlock()
	return s.Store.Apply(ctx, b)
}

// TestHashedKeysDoNotTellValues: with a secret a key has the domain, the keys of
// the entries, patterns of the rules, and an HMAC of each value.
func TestHashedKeysDoNotTellValues(t *testing.T) {
	const rules = `
domain: d
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 9}
    descriptors:
      - {key: ip, rate_limit: {unit: hour, requests_per_unit: 9}}
  - {key: path, value: /a/*, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 9}}
`
	const secret = "sixteen bytes or more"
	of := func(value string) string {
		h := hmac.New(sha256.New, []byte(secret))
		h.Write([]byte(value))
		return hex.EncodeToString(h.Sum(nil)[:16])
	}
	seen := new(keysSeen)
	r := start(t, rules, func(c *config) {
		seen.Store, c.Store, c.KeySecret = c.Store, seen, []byte(secret)
	})
	r.call(request(desc("user", "alice"), desc("user", "alice", "ip", "192.0.2.1"), desc("path", "/a/alice"), desc("user", "")))
	for i, want := range []string{
		"d|user=" + of("alice") + "|1h|",
		"d|user=" + of("alice") + "|ip=" + of("192.0.2.1") + "|1h|",
		"d|path=/a/*|1h|",
		"d|user|1h|",
	} {
		if !strings.HasPrefix(seen.keys[i], want) {
			t.Errorf("key %q, want %s…", seen.keys[i], want)
		}
	}
	// Counters stay apart, and a value that looks like a hash is hashed too.
	r.want(desc("user", "alice"), ok, 7)
	r.want(desc("user", "bob"), ok, 8)
	r.want(desc("user", of("alice")), ok, 8)

	other := new(keysSeen)
	start(t, rules, func(c *config) {
		other.Store, c.Store, c.KeySecret = c.Store, other, []byte("another secret, as long")
	}).call(request(desc("user", "alice")))
	if slices.Contains(seen.keys, other.keys[0]) {
		t.Errorf("another secret gives the same key %q", other.keys[0])
	}
}

func TestHashedKeysExcludeRatelimitKeys(t *testing.T) {
	if _, err := service.New(service.Config{Store: failing{}, RatelimitKeys: true, KeySecret: []byte("s")}); err == nil {
		t.Error("keys of envoyproxy/ratelimit, which have values in clear text, and hashed values at once")
	}
}
