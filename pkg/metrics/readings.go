package metrics

import "example.org/rls/pkg/backends/near"

// Pool adds the metrics of connections to a Redis under envoyproxy/ratelimit's name for
// them: redis_pool, or redis_per_second_pool. connections returns how many connections are
// open, and how many were opened so far.
func (p *reference) Pool(name string, connections func() (open, opened int64)) {
	read := func(stat string, gauge bool, help string, value func(open, opened int64) int64) {
		p.reads("ratelimit."+name+"."+stat, gauge, help, func() uint64 { return uint64(max(0, value(connections()))) })
	}
	read("cx_active", true, "Open connections to Redis.", func(open, _ int64) int64 { return open })
	read("cx_total", false, "Connections to Redis, opened.", func(_, opened int64) int64 { return opened })
	read("cx_local_close", false, "Connections to Redis, closed.", func(open, opened int64) int64 { return opened - open })
}

// LocalCache adds the metrics of the local cache. In envoyproxy/ratelimit all of them are
// gauges.
func (p *reference) LocalCache(stats func() near.CacheStats) {
	read := func(stat, help string, value func(near.CacheStats) uint64) {
		p.reads("ratelimit.localcache."+stat, true, help, func() uint64 { return value(stats()) })
	}
	read("hitCount", "Look-ups that the local cache answered.", func(s near.CacheStats) uint64 { return s.Hits })
	read("missCount", "Look-ups that the local cache did not answer.", func(s near.CacheStats) uint64 { return s.Misses })
	read("lookupCount", "Look-ups in the local cache.", func(s near.CacheStats) uint64 { return s.Hits + s.Misses })
	read("entryCount", "Keys in the local cache.", func(s near.CacheStats) uint64 { return s.Entries })
	read("evacuateCount", "Keys that left the full local cache.", func(s near.CacheStats) uint64 { return s.Evicted })
	read("expiredCount", "Look-ups in the local cache that found an expired key.", func(s near.CacheStats) uint64 { return s.Expired })
	read("overwriteCount", "Keys of the local cache that were written again.", func(s near.CacheStats) uint64 { return s.Overwritten })
	read("averageAccessTime", "Middle between now and the time of the local cache's oldest key.", func(s near.CacheStats) uint64 { return s.MeanTime })
}
