package settings

import (
	"bytes"
	"fmt"
	"os"

	"example.org/rls/pkg/service"
)

// minKeySecret is the least length of the secret of CACHE_KEY_HASH in bytes.
const minKeySecret = 16

// Keys says how the counters are named in the store. A command that shows keys as
// serve writes them embeds it as its flags.
type Keys struct {
	CacheKeyPrefix string `env:"CACHE_KEY_PREFIX" help:"Text before every key."`
	CacheKeyFormat string `env:"CACHE_KEY_FORMAT" default:"rls" oneof:"rls,ratelimit" help:"ratelimit: fixed windows of one unit have envoyproxy/ratelimit's keys, so that both can share a Redis, and callers share counters as there. rls: callers never do."`

	CacheKeyHash           bool   `env:"CACHE_KEY_HASH" default:"false" help:"Put a keyed hash in place of each value in the store's keys. All replicas need one secret; counters start anew."`
	CacheKeyHashSecret     string `env:"CACHE_KEY_HASH_SECRET" help:"Secret for CACHE_KEY_HASH, at least 16 bytes."`
	CacheKeyHashSecretFile string `env:"CACHE_KEY_HASH_SECRET_FILE" help:"File with the secret, in place of CACHE_KEY_HASH_SECRET; read at the start."`
}

// conflicts checks CACHE_KEY_HASH and its secret. Errors do not show the secret.
func (k *Keys) conflicts() (wrong Errors) {
	const name, file = "CACHE_KEY_HASH_SECRET", "CACHE_KEY_HASH_SECRET_FILE"
	shown := ""
	if k.CacheKeyHashSecret != "" {
		shown = "..."
	}
	if !k.CacheKeyHash {
		const want = "nothing, because CACHE_KEY_HASH is false"
		wrong.require(k.CacheKeyHashSecret == "", name, shown, want)
		wrong.require(k.CacheKeyHashSecretFile == "", file, k.CacheKeyHashSecretFile, want)
		return wrong
	}
	wrong.require(k.CacheKeyFormat != "ratelimit", "CACHE_KEY_HASH", k.CacheKeyHash,
		"false, because CACHE_KEY_FORMAT is ratelimit and envoyproxy/ratelimit writes values in clear text into keys")
	if k.CacheKeyHashSecretFile != "" {
		wrong.oneSecret(name, k.CacheKeyHashSecret, file, k.CacheKeyHashSecretFile)
		return wrong
	}
	wrong.require(len(k.CacheKeyHashSecret) >= minKeySecret, name, shown,
		"at least 16 bytes (or "+file+"), because CACHE_KEY_HASH is true: without a secret anyone can find values by hashing guesses")
	return wrong
}

// ValueHash is the hash of CACHE_KEY_HASH, nil if it is false. It reads
// CACHE_KEY_HASH_SECRET_FILE if that is set.
func (k *Keys) ValueHash() (*service.ValueHash, error) {
	file := k.CacheKeyHashSecretFile
	if file == "" {
		return service.NewValueHash([]byte(k.CacheKeyHashSecret)), nil
	}
	secret, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("CACHE_KEY_HASH_SECRET_FILE: %w", err)
	}
	if secret = bytes.TrimRight(secret, "\r\n"); len(secret) < minKeySecret {
		return nil, fmt.Errorf("CACHE_KEY_HASH_SECRET_FILE %s has a secret of %d bytes: want at least %d", file, len(secret), minKeySecret)
	}
	return service.NewValueHash(secret), nil
}
