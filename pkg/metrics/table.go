package metrics

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/statsd_exporter/pkg/mapper"

	"example.org/rls/internal/latency"
)

// row is a metric that is read from its part of the process whenever metrics are sent.
type row struct {
	// name is the name in Prometheus, or for a metric of envoyproxy/ratelimit its path,
	// which the mapping turns into a name and labels.
	name, help string
	counter    bool // the value only grows; else it is a gauge
	labels     []string
	// read calls is for each series, with its value and the values of labels.
	read func(is tell)
	// took is read for a histogram.
	took func(is tellDurations)
}

type (
	tell          func(value float64, labels ...string)
	tellDurations func(h *latency.Histogram, labels ...string)
)

// pathPrefix begins the paths of envoyproxy/ratelimit.
const pathPrefix = "ratelimit."

func (m *Metrics) gauge(name, help string, read func(tell), labels ...string) {
	m.put(row{name: name, help: help, labels: labels, read: read})
}

func (m *Metrics) counter(name, help string, read func(tell), labels ...string) {
	m.put(row{name: name, help: help, counter: true, labels: labels, read: read})
}

func (m *Metrics) histogram(name, help string, took func(tellDurations), labels ...string) {
	m.put(row{name: name, help: help, labels: labels, took: took})
}

// put adds a row in place of an earlier row of its name.
func (m *Metrics) put(r row) {
	all := &m.own
	if strings.HasPrefix(r.name, pathPrefix) {
		all = &m.paths.rows
	}
	*all = append(slices.DeleteFunc(*all, func(old row) bool { return old.name == r.name }), r)
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
			counts, buckets := h.Counts(), map[float64]uint64{}
			for _, bound := range bounds {
				buckets[bound.Seconds()] = counts.UpTo(bound)
			}
			to <- prometheus.MustNewConstHistogram(desc, counts.Total(), h.Sum().Seconds(), buckets, labels...)
		})
		return
	}
	_, kind := r.kind()
	r.read(func(value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, kind, value, labels...)
	})
}

// kind is the kind of r in a mapping and in Prometheus.
func (r *row) kind() (mapper.MetricType, prometheus.ValueType) {
	if r.counter {
		return mapper.MetricTypeCounter, prometheus.CounterValue
	}
	return mapper.MetricTypeGauge, prometheus.GaugeValue
}
