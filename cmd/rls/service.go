package main

import (
	"bytes"
	"fmt"
	"os"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/settings"
)

// newService returns the service that the settings describe. The secret is that of
// CACHE_KEY_HASH.
func newService(s *settings.Settings, store backends.Store, local service.Local, keySecret []byte, observers []service.Observer) (*service.Service, error) {
	reply := service.Reply{
		IETF:        s.Limits.LimitIETFHeadersEnabled,
		XRateLimit:  s.Limits.LimitXRatelimitHeadersEnabled,
		Policy:      s.Limits.LimitPolicyHeaderEnabled,
		RetryAfter:  s.Limits.LimitRetryAfterHeaderEnabled,
		ProblemBody: s.Limits.LimitProblemBodyEnabled,
		Metadata:    s.Limits.ResponseDynamicMetadata,
	}
	names := service.HeaderNames{
		Limit:     s.Limits.LimitLimitHeader,
		Remaining: s.Limits.LimitRemainingHeader,
		Reset:     s.Limits.LimitResetHeader,
	}
	if s.Limits.LimitResponseHeadersEnabled {
		reply.RateLimit = names
	}
	if s.Limits.LimitRequestHeadersEnabled {
		reply.Upstream = names
	}
	return service.New(service.Config{
		Store: store,
		Local: local,

		KeyPrefix:     s.Backend.CacheKeyPrefix,
		RatelimitKeys: s.Backend.CacheKeyFormat == "ratelimit",
		KeySecret:     keySecret,
		StoredKey:     backendOf(s).storedKey,

		Caps: service.Caps{
			Descriptors: s.Request.MaxDescriptors,
			Entries:     s.Request.MaxEntries,
			EntryBytes:  s.Request.MaxEntryBytes,
		},
		ShadowMode: s.Limits.ShadowMode,
		QuotaMode:  s.Limits.QuotaMode,
		Reply:      reply,
		Observers:  observers,
	})
}

// keySecret is the secret of CACHE_KEY_HASH, nil if it is false. It reads
// CACHE_KEY_HASH_SECRET_FILE if that is set.
func keySecret(b *settings.Backend) ([]byte, error) {
	file := b.CacheKeyHashSecretFile
	if file == "" {
		return []byte(b.CacheKeyHashSecret), nil
	}
	secret, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("CACHE_KEY_HASH_SECRET_FILE: %w", err)
	}
	if secret = bytes.TrimRight(secret, "\r\n"); len(secret) < settings.MinKeySecret {
		return nil, fmt.Errorf("CACHE_KEY_HASH_SECRET_FILE %s has a secret of %d bytes: want at least %d", file, len(secret), settings.MinKeySecret)
	}
	return secret, nil
}
