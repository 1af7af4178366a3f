package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"example.org/rls/pkg/backends/breaker"
)

// breakers collects the states of the servers of a backend. Its stores may share a
// server, which then has the state that lets the fewest calls pass.
type breakers struct {
	watches       []*breaker.Watch
	state, policy *prometheus.Desc
}

// Breakers adds the states of the servers that watches know, for the backend of
// that name. It must be called before metrics are served, and once at most.
func (m *Metrics) Breakers(backend string, watches []*breaker.Watch) {
	labels := prometheus.Labels{"backend": backend}
	m.add.MustRegister(&breakers{
		watches: watches,
		state: prometheus.NewDesc("rls_breaker_state",
			"State of the breaker before a server of the store: 0 closed, 1 half-open, 2 open.", []string{"server"}, labels),
		policy: prometheus.NewDesc("rls_policy_active",
			"1 while failure policies decide the limits on a server of the store, because its breaker is not closed, else 0.", []string{"server"}, labels),
	})
}

func (b *breakers) Describe(to chan<- *prometheus.Desc) {
	to <- b.state
	to <- b.policy
}

func (b *breakers) Collect(to chan<- prometheus.Metric) {
	worst := map[string]breaker.Condition{}
	for _, w := range b.watches {
		for _, s := range w.States() {
			worst[s.Address] = max(worst[s.Address], s.Condition)
		}
	}
	for server, condition := range worst {
		active := 0.0
		if condition != breaker.Closed {
			active = 1
		}
		to <- prometheus.MustNewConstMetric(b.state, prometheus.GaugeValue, float64(condition), server)
		to <- prometheus.MustNewConstMetric(b.policy, prometheus.GaugeValue, active, server)
	}
}
