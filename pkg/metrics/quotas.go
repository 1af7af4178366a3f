package metrics

import "github.com/prometheus/client_golang/prometheus"

// Assigned adds the metrics of Envoy's quota protocol. read returns the open streams, their buckets,
// and the hits per second that are assigned of each rule, by its path. A scrape calls it once, and
// refused, which returns how often buckets were reported that no answer can name.
func (m *Metrics) Assigned(read func() (streams, buckets int, assigned map[string]float64), refused func() uint64) {
	desc := prometheus.NewDesc
	streams := desc("rls_rlqs_streams", "Streams of Envoys that enforce quotas.", nil, nil)
	buckets := desc("rls_rlqs_buckets", "Buckets that these Envoys report.", nil, nil)
	assigned := desc("rls_rlqs_assigned_hits_per_second", "Hits that the buckets of a rule may let pass until their next reports, per second.", []string{"rule"}, nil)
	unnamed := desc("rls_rlqs_refused_buckets_total", "Buckets in reports whose ids are not UTF-8, or empty: Envoy takes no assignment for them.", nil, nil)
	m.table = append(m.table, func(to chan<- prometheus.Metric) {
		is := func(desc *prometheus.Desc, value float64, labels ...string) {
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
		}
		open, reported, rates := read()
		is(streams, float64(open))
		is(buckets, float64(reported))
		to <- prometheus.MustNewConstMetric(unnamed, prometheus.CounterValue, float64(refused()))
		for rule, rate := range rates {
			is(assigned, rate, rule)
		}
	})
}
