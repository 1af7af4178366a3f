package settings

// MinKeySecret is the least length of the secret of CACHE_KEY_HASH in bytes.
const MinKeySecret = 16

// conflicts checks CACHE_KEY_HASH and its secret. Errors do not show the secret.
func (b *Backend) conflicts() (wrong Errors) {
	const name, file = "CACHE_KEY_HASH_SECRET", "CACHE_KEY_HASH_SECRET_FILE"
	shown := ""
	if b.CacheKeyHashSecret != "" {
		shown = "..."
	}
	if !b.CacheKeyHash {
		const want = "nothing, because CACHE_KEY_HASH is false"
		wrong.require(b.CacheKeyHashSecret == "", name, shown, want)
		wrong.require(b.CacheKeyHashSecretFile == "", file, b.CacheKeyHashSecretFile, want)
		return wrong
	}
	wrong.require(b.CacheKeyFormat != "ratelimit", "CACHE_KEY_HASH", b.CacheKeyHash,
		"false, because CACHE_KEY_FORMAT is ratelimit and envoyproxy/ratelimit writes values in clear text into keys")
	if b.CacheKeyHashSecretFile != "" {
		wrong.oneSecret(name, b.CacheKeyHashSecret, file, b.CacheKeyHashSecretFile)
		return wrong
	}
	wrong.require(len(b.CacheKeyHashSecret) >= MinKeySecret, name, shown,
		"at least 16 bytes (or "+file+"), because CACHE_KEY_HASH is true: without a secret anyone can find values by hashing guesses")
	return wrong
}
