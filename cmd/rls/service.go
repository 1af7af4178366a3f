package main

import (
	"bytes"
	"fmt"
	"os"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/envoy"
	"example.org/rls/pkg/settings"
)

// newService returns the service that the settings describe. The secret is that of
// CACHE_KEY_HASH.
func newService(s *settings.Settings, store backends.Store, local service.Local, keySecret []byte, observers []service.Observer) (*service.Service, error) {
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
		Observers:  observers,
	})
}

// replyOf has the headers, body and metadata that the settings choose.
func replyOf(s *settings.Limits) envoy.Reply {
	reply := envoy.Reply{
		IETF:        s.LimitIETFHeadersEnabled,
		XRateLimit:  s.LimitXRatelimitHeadersEnabled,
		Policy:      s.LimitPolicyHeaderEnabled,
		RetryAfter:  s.LimitRetryAfterHeaderEnabled,
		ProblemBody: s.LimitProblemBodyEnabled,
		Metadata:    s.ResponseDynamicMetadata,
	}
	names := envoy.HeaderNames{Limit: s.LimitLimitHeader, Remaining: s.LimitRemainingHeader, Reset: s.LimitResetHeader}
	if s.LimitResponseHeadersEnabled {
		reply.RateLimit = names
	}
	if s.LimitRequestHeadersEnabled {
		reply.Upstream = names
	}
	return reply
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
