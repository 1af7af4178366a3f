package metrics_test

import (
	"testing"

	"example.org/rls/pkg/backends/near"
	"example.org/rls/pkg/metrics"
)

// The gauges of envoyproxy/ratelimit have its names and kinds.
func TestReadings(t *testing.T) {
	m := open(t, metrics.Options{})
	m.Pool("redis_pool", connections(2, 5))
	m.Pool("redis_per_second_pool", connections(1, 1))
	m.LocalCache(func() near.CacheStats {
		return near.CacheStats{Hits: 1, Misses: 2, Entries: 4, Evicted: 5, Expired: 6, Overwritten: 7, MeanTime: 1_700_000_000}
	})
	serves(t, m,
		"# TYPE ratelimit_redis_pool_cx_active gauge", "ratelimit_redis_pool_cx_active 2",
		"# TYPE ratelimit_redis_pool_cx_total counter", "ratelimit_redis_pool_cx_total 5",
		"# TYPE ratelimit_redis_pool_cx_local_close counter", "ratelimit_redis_pool_cx_local_close 3",
		"ratelimit_redis_per_second_pool_cx_active 1", "ratelimit_redis_per_second_pool_cx_total 1",
		"# TYPE ratelimit_localcache_hitCount gauge", "ratelimit_localcache_hitCount 1", "ratelimit_localcache_missCount 2",
		"ratelimit_localcache_lookupCount 3", "ratelimit_localcache_entryCount 4", "ratelimit_localcache_evacuateCount 5",
		"ratelimit_localcache_expiredCount 6", "ratelimit_localcache_overwriteCount 7", "ratelimit_localcache_averageAccessTime 1.7e+09")
}
