package metrics_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/pkg/backends/near"
	"example.org/rls/pkg/metrics"
)

type pool struct{ open, opened int64 }

func (p *pool) Connections() (open, opened int64) { return p.open, p.opened }

// The gauges of envoyproxy/ratelimit have its names and kinds, over Prometheus
// and over statsd.
func TestReadings(t *testing.T) {
	m := open(t, metrics.Options{})
	main, perSecond := &pool{2, 5}, &pool{1, 1}
	m.Pool("redis_pool", main)
	m.Pool("redis_per_second_pool", perSecond)
	m.LocalCache(func() near.CacheStats {
		return near.CacheStats{Hits: 1, Misses: 2, Entries: 4, Evicted: 5, Expired: 6, Overwritten: 7, MeanTime: 1_700_000_000}
	})
	lines := scrape(t, m)
	for _, want := range []string{
		"# TYPE ratelimit_redis_pool_cx_active gauge", "ratelimit_redis_pool_cx_active 2",
		"# TYPE ratelimit_redis_pool_cx_total counter", "ratelimit_redis_pool_cx_total 5",
		"# TYPE ratelimit_redis_pool_cx_local_close counter", "ratelimit_redis_pool_cx_local_close 3",
		"ratelimit_redis_per_second_pool_cx_active 1", "ratelimit_redis_per_second_pool_cx_total 1",
		"# TYPE ratelimit_localcache_hitCount gauge", "ratelimit_localcache_hitCount 1", "ratelimit_localcache_missCount 2",
		"ratelimit_localcache_lookupCount 3", "ratelimit_localcache_entryCount 4", "ratelimit_localcache_evacuateCount 5",
		"ratelimit_localcache_expiredCount 6", "ratelimit_localcache_overwriteCount 7", "ratelimit_localcache_averageAccessTime 1.7e+09",
	} {
		if !lines[want] {
			t.Errorf("no %s", want)
		}
	}

	server := udp(t)
	sink, err := metrics.NewStatsdSink("udp", server.LocalAddr().String(), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := m.Statsd(sink, time.Hour)
	s.Send()
	main.open, main.opened = 1, 7
	s.Close()
	var got []string
	for _, line := range received(t, server, 25) {
		if name, ok := strings.CutPrefix(line, "ratelimit.redis_pool."); ok || strings.Contains(line, "hitCount") {
			got = append(got, name)
		}
	}
	want := []string{
		"ratelimit.localcache.hitCount:1|g", "ratelimit.localcache.hitCount:1|g",
		"cx_active:1|g", "cx_active:2|g", "cx_local_close:3|c", "cx_local_close:3|c", "cx_total:2|c", "cx_total:5|c",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A mapping file names them as it names counters.
func TestMappedReadings(t *testing.T) {
	m := open(t, metrics.Options{Mapping: []byte(`
mappings:
- {match: ratelimit.*.cx_active, name: connections, labels: {pool: $1}, help: 'Connections.'}
- {match: ratelimit.*.cx_total, name: x, action: drop}
`)})
	m.Pool("redis_pool", &pool{2, 5})
	text := page(t, m)
	if !strings.Contains(text, `connections{pool="redis_pool"} 2`) || strings.Contains(text, "\nx") {
		t.Errorf("got\n%s", text)
	}
}

func TestDogStatsdGauges(t *testing.T) {
	server := udp(t)
	m := open(t, metrics.Options{})
	m.Pool("redis_pool", &pool{2, 0})
	sink, err := metrics.NewDogStatsdSink(server.LocalAddr().String(), nil, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	m.Statsd(sink, time.Hour).Close()
	if got := received(t, server, 1)[0]; !strings.HasPrefix(got, "ratelimit.redis_pool.cx_active:2|g") {
		t.Errorf("got %s", got)
	}
}
