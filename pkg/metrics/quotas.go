package metrics

// Assigned adds the gauges of Envoy's quota protocol. read returns the open streams, their buckets,
// and the hits per second that are assigned of each rule, by its path.
func (m *Metrics) Assigned(read func() (streams, buckets int64, assigned map[string]float64)) {
	m.gauge("rls_rlqs_streams", "Streams of Envoys that enforce quotas.", func(is tell) {
		streams, _, _ := read()
		is(float64(streams))
	})
	m.gauge("rls_rlqs_buckets", "Buckets that these Envoys report.", func(is tell) {
		_, buckets, _ := read()
		is(float64(buckets))
	})
	m.gauge("rls_rlqs_assigned_hits_per_second", "Hits that the buckets of a rule may let pass until their next reports, per second.", func(is tell) {
		_, _, assigned := read()
		for rule, rate := range assigned {
			is(rate, rule)
		}
	}, "rule")
}
