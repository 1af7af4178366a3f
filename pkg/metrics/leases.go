package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"example.org/rls/pkg/backends/lease"
)

// leases reads the counts of leases when metrics are collected.
type leases struct {
	stats              func() lease.Stats
	events, hits, keys *prometheus.Desc
}

// Leases adds the metrics of leases. It must be called before metrics are served,
// and once at most.
func (m *Metrics) Leases(stats func() lease.Stats) {
	m.add.MustRegister(&leases{
		stats: stats,
		events: prometheus.NewDesc("rls_lease_hits_total",
			"Hits that this process charged ahead, used from leases, returned unused, left unused because their bucket has refilled, and lost with their window or by an error.", []string{"event"}, nil),
		hits: prometheus.NewDesc("rls_lease_hits", "Hits that leases of this process hold.", nil, nil),
		keys: prometheus.NewDesc("rls_lease_keys", "Keys that this process asks for so often that they are leased.", nil, nil),
	})
}

func (l *leases) Describe(to chan<- *prometheus.Desc) {
	to <- l.events
	to <- l.hits
	to <- l.keys
}

func (l *leases) Collect(to chan<- prometheus.Metric) {
	s := l.stats()
	for event, n := range map[string]uint64{"charged": s.Leased, "used": s.Used, "returned": s.Returned, "refilled": s.Refilled, "lost": s.Lost} {
		to <- prometheus.MustNewConstMetric(l.events, prometheus.CounterValue, float64(n), event)
	}
	to <- prometheus.MustNewConstMetric(l.hits, prometheus.GaugeValue, float64(s.Held))
	to <- prometheus.MustNewConstMetric(l.keys, prometheus.GaugeValue, float64(s.Keys))
}
