package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"example.org/rls/pkg/descriptors"
)

// inForce is the metrics of the rules in force.
type inForce struct{ rules, hash prometheus.Gauge }

func newInForce() inForce {
	return inForce{
		rules: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "rls_rules", Help: "Rules in force.",
		}),
		hash: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "rls_rules_hash", Help: "A number that is equal in processes with the same rules in force, and differs between different rules; 0 without rules.",
		}),
	}
}

// hashBits is how much of a hash a float64 holds without loss.
const hashBits = 48

// InForce says which rules are in force.
func (m *Metrics) InForce(tree *descriptors.Tree) {
	rules := 0
	tree.Each(func(*descriptors.Domain, *descriptors.Rule) { rules++ })
	m.inForce.rules.Set(float64(rules))
	m.inForce.hash.Set(float64(tree.Hash() & (1<<hashBits - 1)))
}

// Skipped adds the metric of skipped problems: problems of the rules in force that
// left out a descriptor or a file instead of refusing all rules. It returns the
// function that sets the metric, and must be called once at most.
func (m *Metrics) Skipped() func(problems int) {
	skipped := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "rls_config_skipped_problems", Help: "Problems of the rules in force for which a descriptor or a file was left out (CONFIG_ON_ERROR=skip).",
	})
	m.add.MustRegister(skipped)
	return func(problems int) { skipped.Set(float64(problems)) }
}

// SourceGone adds the metric of a folder with rules whose files are gone, and
// returns the function that sets it. It must be called once at most.
func (m *Metrics) SourceGone() func(bool) {
	return m.flag("rls_rules_source_gone", "1 while the folder with the rules is missing or has no files and the rules read from it before stay in force, else 0.")
}

// Connected adds the metric of the connection to a management server that
// sends rules, and returns the function that sets it. It must be called once at
// most.
func (m *Metrics) Connected() func(bool) {
	return m.flag("rls_xds_connected", "1 while a stream from the management server that sends the rules is open, else 0.")
}

// flag adds a gauge that is 0 at first, and returns the function that sets it to
// 1 or 0.
func (m *Metrics) flag(name, help string) func(bool) {
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	m.add.MustRegister(gauge)
	return func(is bool) {
		if is {
			gauge.Set(1)
		} else {
			gauge.Set(0)
		}
	}
}
