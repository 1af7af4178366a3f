package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"example.org/rls/internal/latency"
)

// row is a metric of our own that is read from its part of the process whenever Prometheus
// asks for it.
type row struct {
	name, help string
	labels     []string
	kind       prometheus.ValueType
	// read calls is for each series, with its value and the values of labels.
	read func(is tell)
	// took is read for a histogram.
	took func(is tellDurations)
}

type (
	tell          func(value float64, labels ...string)
	tellDurations func(h *latency.Histogram, labels ...string)
)

func (m *Metrics) gauge(name, help string, read func(tell), labels ...string) {
	m.table = append(m.table, row{name, help, labels, prometheus.GaugeValue, read, nil})
}

func (m *Metrics) counter(name, help string, read func(tell), labels ...string) {
	m.table = append(m.table, row{name, help, labels, prometheus.CounterValue, read, nil})
}

func (m *Metrics) histogram(name, help string, took func(tellDurations), labels ...string) {
	m.table = append(m.table, row{name, help, labels, prometheus.UntypedValue, nil, took})
}

// one reads a metric with one series.
func one[N int | int64 | uint64](value func() N) func(tell) {
	return func(is tell) { is(float64(value())) }
}

// flag reads a metric that is 1 or 0.
func flag(value func() bool) func(tell) {
	return func(is tell) { is(oneIf(value())) }
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// collect sends r to Prometheus.
func (r *row) collect(to chan<- prometheus.Metric) {
	desc := prometheus.NewDesc(r.name, r.help, r.labels, nil)
	if r.took != nil {
		r.took(func(h *latency.Histogram, labels ...string) {
			counts, buckets := latency.Read(h), map[float64]uint64{}
			for _, bound := range bounds {
				buckets[bound.Seconds()] = counts.UpTo(bound)
			}
			to <- prometheus.MustNewConstHistogram(desc, counts.Total(), h.Sum().Seconds(), buckets, labels...)
		})
		return
	}
	r.read(func(value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, r.kind, value, labels...)
	})
}
