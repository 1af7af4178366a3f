package metrics

import "github.com/prometheus/client_golang/prometheus"

// Skipped adds the metric of what is wrong with the rules in force, where that
// leaves out rules instead of refusing all, and returns how to tell it. Once
// at most.
func (m *Metrics) Skipped() func(problems int) {
	skipped := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "rls_config_skipped_problems", Help: "Problems of the rules in force for which a descriptor or a file was left out (CONFIG_ON_ERROR=skip).",
	})
	m.add.MustRegister(skipped)
	return func(problems int) { skipped.Set(float64(problems)) }
}
