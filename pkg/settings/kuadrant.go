package settings

import "time"

// Kuadrant says whether Kuadrant's RateLimitService is served beside Envoy's.
type Kuadrant struct {
	Enabled bool          `env:"ENABLED" default:"false" help:"Serve Kuadrant's CheckRateLimit, Report, Reserve and Commit on the gRPC port. All processes of a store need one value; counters in Redis Cluster start anew."`
	MaxTTL  time.Duration `name:"max-ttl" env:"MAX_TTL" default:"10m" min:"1s" max:"24h" help:"Longest and default ttl of Reserve. All processes of a store need one value."`
}

// MaxHold is MAX_TTL, or 0 while the service is off.
func (k *Kuadrant) MaxHold() time.Duration {
	if !k.Enabled {
		return 0
	}
	return k.MaxTTL
}

// conflicts checks that the keys can share a slot.
func (k *Kuadrant) conflicts(keys *Keys) (wrong Errors) {
	wrong.require(!k.Enabled || keys.CacheKeyFormat != "ratelimit", "KUADRANT_RLS_ENABLED", k.Enabled,
		"false, because CACHE_KEY_FORMAT is ratelimit and envoyproxy/ratelimit sees no held hits; or CACHE_KEY_FORMAT=rls")
	return wrong
}
