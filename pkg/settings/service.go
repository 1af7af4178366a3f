package settings

import (
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/memcached"
	"example.org/rls/pkg/backends/redis"
	"example.org/rls/pkg/service"
)

// Shared reports whether all processes with the same settings count in the same cells.
func (k *Kind) Shared() bool { return k.BackendType != "memory" }

// StoredKey is the name under which the store keeps a key.
func (k *Kind) StoredKey(key string) string {
	switch k.BackendType {
	case "redis":
		return redis.StoredKey(key)
	case "memcache":
		return memcached.StoredKey(key)
	}
	return key
}

// Service is the configuration of the service that the settings describe. The hash is that of
// [Keys.ValueHash].
func (s *Settings) Service(store backends.Store, hash *service.ValueHash, observers []service.Observer) service.Config {
	return service.Config{
		Store:         store,
		Local:         s.Backend.Shared(),
		KeyPrefix:     s.Backend.CacheKeyPrefix,
		RatelimitKeys: s.Backend.CacheKeyFormat == "ratelimit",
		Values:        hash,
		Caps:          s.Request.Bounds(),
		MaxHold:       s.Kuadrant.MaxHold(),
		ShadowMode:    s.Limits.ShadowMode,
		QuotaMode:     s.Limits.QuotaMode,
		Observers:     observers,
	}
}

// Bounds are the caps, and whether a request beyond them is refused.
func (r *Request) Bounds() service.Caps {
	caps := r.Caps
	caps.Refuse = r.BeyondCaps == "error"
	return caps
}
