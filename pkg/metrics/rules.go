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

// Connected adds the metric of the connection to a management server that
// sends rules, and returns how to tell it. Once at most.
func (m *Metrics) Connected() func(bool) {
	connected := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "rls_xds_connected", Help: "1 while a stream from the management server that sends the rules is open, else 0.",
	})
	m.add.MustRegister(connected)
	return func(is bool) {
		if is {
			connected.Set(1)
		} else {
			connected.Set(0)
		}
	}
}
