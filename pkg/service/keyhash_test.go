package service_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"example.org/rls/pkg/service"
)

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
  - {key: path, match: {prefix: /b}, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 9}}
  - {key: net, mask: {ipv4: 24}, rate_limit: {unit: hour, requests_per_unit: 9}}
`
	const secret = "sixteen bytes or more"
	of := func(value string) string {
		h := hmac.New(sha256.New, []byte(secret))
		h.Write([]byte(value))
		return hex.EncodeToString(h.Sum(nil)[:16])
	}
	store := new(seen)
	r := start(t, rules, store.under, func(c *config) { c.Values = service.NewValueHash([]byte(secret)) })
	r.call(request(desc("user", "alice"), desc("user", "alice", "ip", "192.0.2.1"), desc("path", "/a/alice"), desc("user", ""), desc("path", "/b/alice"), desc("net", "192.0.2.1"), desc("net", "host")))
	for i, want := range []string{
		"d|user=" + of("alice") + "|1h|",
		"d|user=" + of("alice") + "|ip=" + of("192.0.2.1") + "|1h|",
		"d|path=/a/*|1h|",
		"d|user|1h|",
		"d|path~prefix:/b|1h|",
		"d|net=" + of("192.0.2.0/24") + "|1h|",
		"d|net=" + of("host") + "|1h|",
	} {
		if key := store.ops[i].Key; !strings.HasPrefix(key, want) {
			t.Errorf("key %q, want %s…", key, want)
		}
	}
	// Counters stay apart, and a value that looks like a hash is hashed too.
	r.want(desc("user", "alice"), ok, 7)
	r.want(desc("user", "bob"), ok, 8)
	r.want(desc("user", of("alice")), ok, 8)

	other, first := new(seen), store.ops[0].Key
	start(t, rules, other.under, func(c *config) { c.Values = service.NewValueHash([]byte("another secret, as long")) }).call(request(desc("user", "alice")))
	if other.ops[0].Key == first {
		t.Errorf("another secret gives the same key %q", first)
	}
}
