package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/statsd_exporter/pkg/mapper"
)

// reading is a number under a path of envoyproxy/ratelimit that is read from
// where it is kept whenever metrics are sent.
type reading struct {
	path    string
	help    string
	counter bool // it only grows; else it is a gauge
	read    func() uint64

	series *series // its name and labels in Prometheus; only mapped uses it
	sent   uint64  // the part of a counter that was sent; only Statsd uses it
}

func (p *paths) gauge(path, help string, read func() uint64) {
	p.readings = append(p.readings, &reading{path: path, help: help, read: read})
}

// Pool is the connections of a store to its servers.
type Pool interface {
	// Connections returns how many connections are open, and how many were
	// opened so far.
	Connections() (open, opened int64)
}

// Pool adds the metrics of connections to Redis under envoyproxy/ratelimit's
// name for them: redis_pool, or redis_per_second_pool. It must be called before
// metrics are served and sent.
func (m *Metrics) Pool(name string, pool Pool) {
	path := "ratelimit." + name + "."
	m.paths.gauge(path+"cx_active", "Open connections to Redis.", func() uint64 {
		open, _ := pool.Connections()
		return uint64(max(open, 0))
	})
	m.paths.readings = append(m.paths.readings, &reading{
		path: path + "cx_total", help: "Connections to Redis that were opened.", counter: true,
		read: func() uint64 {
			_, opened := pool.Connections()
			return uint64(opened)
		},
	}, &reading{
		path: path + "cx_local_close", help: "Connections to Redis that were closed.", counter: true,
		read: func() uint64 {
			open, opened := pool.Connections()
			return uint64(max(opened-open, 0))
		},
	})
}

// ServersAway adds the number of servers of a store that are away, by the role of
// the store: main or per-second. It must be called before metrics are served, and
// once for each role.
func (m *Metrics) ServersAway(role string, away func() int) {
	m.add.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rls_store_servers_away", ConstLabels: prometheus.Labels{"role": role},
		Help: "Servers of the store that do not answer or cannot serve.",
	}, func() float64 { return float64(away()) }))
}

// CacheStats is the state of the local cache.
type CacheStats struct {
	Hits, Misses, Entries, Evicted, Expired, Overwritten uint64
	MeanTime                                             uint64 // when entries were last written, in seconds since the epoch
}

// LocalCache adds the metrics of the local cache under envoyproxy/ratelimit's
// names, where all of them are gauges. It must be called before metrics are
// served and sent.
func (m *Metrics) LocalCache(stats func() CacheStats) {
	for _, g := range []struct {
		name, help string
		read       func(CacheStats) uint64
	}{
		{"hitCount", "Look-ups in the local cache that were answered from it.", func(s CacheStats) uint64 { return s.Hits }},
		{"missCount", "Look-ups in the local cache that were not answered from it.", func(s CacheStats) uint64 { return s.Misses }},
		{"lookupCount", "Look-ups in the local cache.", func(s CacheStats) uint64 { return s.Hits + s.Misses }},
		{"entryCount", "Keys in the local cache.", func(s CacheStats) uint64 { return s.Entries }},
		{"evacuateCount", "Keys that left the local cache because it was full.", func(s CacheStats) uint64 { return s.Evicted }},
		{"expiredCount", "Look-ups in the local cache that found a key whose time was over.", func(s CacheStats) uint64 { return s.Expired }},
		{"overwriteCount", "Keys in the local cache that were written again.", func(s CacheStats) uint64 { return s.Overwritten }},
		{"averageAccessTime", "Estimate of when the keys in the local cache were written, in seconds since the epoch.", func(s CacheStats) uint64 { return s.MeanTime }},
	} {
		m.paths.gauge("ratelimit.localcache."+g.name, g.help, func() uint64 { return g.read(stats()) })
	}
}

// collect sends r to Prometheus. The caller holds mapping.mu.
func (r *reading) collect(m *mapping, to chan<- prometheus.Metric) {
	kind, valueType := mapper.MetricTypeGauge, prometheus.GaugeValue
	if r.counter {
		kind, valueType = mapper.MetricTypeCounter, prometheus.CounterValue
	}
	if r.series == nil {
		r.series = m.find(r.path, kind, r.help)
	}
	if r.series.dropped {
		return
	}
	if metric, err := prometheus.NewConstMetric(r.series.desc, valueType, r.series.scaled(r.read())); err == nil {
		to <- metric
	}
}

// send sends r to a server of statsd, and reports whether it can still be sent
// to.
func (r *reading) send(sink Sink) bool {
	n := r.read()
	if !r.counter {
		return sink.Gauge(r.path, n)
	}
	if n != r.sent && !sink.Count(r.path, n-r.sent) {
		return false
	}
	r.sent = n
	return true
}
