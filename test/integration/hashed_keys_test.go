package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/rls/internal/testenv"
)

// TestHashedKeysDoNotTellWhomTheyCount: with CACHE_KEY_HASH neither a key in
// Redis nor an error nor the log has the value of a descriptor, and two
// processes with the same secret count together.
func TestHashedKeysDoNotTellWhomTheyCount(t *testing.T) {
	t.Parallel()
	const value = "alice@example.org"
	const rules = `
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 9}}
  - {key: bucket, rate_limit: {unit: year, requests_per_unit: 9, strategy: token_bucket}}
  - key: several
    rate_limits: [{unit: year, requests_per_unit: 9}, {unit: month, requests_per_unit: 9}]
`
	server := testenv.Redis(t).Addr
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("sixteen bytes or more\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, rules, append(redisAt(server), "CACHE_KEY_HASH=true", "CACHE_KEY_HASH_SECRET_FILE="+file)...)
	other := serve(t, rules, append(redisAt(server), "CACHE_KEY_HASH=true", "CACHE_KEY_HASH_SECRET=sixteen bytes or more")...)
	for _, key := range []string{"user", "bucket", "several"} {
		s.want("shop", desc(key, value), ok, 8)
		other.want("shop", desc(key, value), ok, 7)
	}

	o := operate(t, server, "")
	keys := keysOf(t, server)
	if len(keys) != 4 {
		t.Errorf("%d keys, want 4: %v", len(keys), keys)
	}
	for key := range keys {
		if strings.Contains(key, "alice") || !strings.Contains(key, "shop|") {
			t.Errorf("key %q has the value, or not the domain", key)
		}
		// Something that is no counter makes an error about this key.
		o.does("DEL", key)
		o.does("XADD", key, "*", "a", "b")
	}
	for _, key := range []string{"user", "bucket", "several"} {
		if _, err := s.try(patience, "shop", desc(key, value)); err == nil || strings.Contains(err.Error(), "alice") {
			t.Errorf("%s: %v, want an error without the value", key, err)
		}
	}
	if strings.Contains(s.log.String(), "alice") {
		t.Error("the log has the value")
	}
}
