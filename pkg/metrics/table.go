package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/rls/internal/latency"
	"example.org/rls/pkg/descriptors"
)

// The functions that read a metric of our own from its part of the process, whenever
// Prometheus asks for it, call these for each series with the values of its labels.
type (
	tell          func(value float64, labels ...string)
	tellDurations func(h *latency.Histogram, labels ...string)
)

// table has the metrics of our own. It does not change once metrics are sent.
type table []func(chan<- prometheus.Metric)

func (t *table) gauge(name, help string, read func(tell), labels ...string) {
	t.values(prometheus.GaugeValue, name, help, read, labels)
}

func (t *table) counter(name, help string, read func(tell), labels ...string) {
	t.values(prometheus.CounterValue, name, help, read, labels)
}

// values adds a metric. A series has as many of the labels as read tells values of.
func (t *table) values(kind prometheus.ValueType, name, help string, read func(tell), labels []string) {
	var descs []*prometheus.Desc // by the number of labels
	for n := range len(labels) + 1 {
		descs = append(descs, prometheus.NewDesc(name, help, labels[:n], nil))
	}
	*t = append(*t, func(to chan<- prometheus.Metric) {
		read(func(value float64, labels ...string) {
			for i, label := range labels {
				labels[i] = descriptors.Printable(label)
			}
			to <- prometheus.MustNewConstMetric(descs[len(labels)], kind, value, labels...)
		})
	})
}

// bounds are the buckets of durations that should be well below a millisecond and must stay
// below the time that Envoy waits, 20 ms by default. In memory there are finer buckets, from
// which pkg/admin/status reads percentiles that are at most 6 % too high.
var (
	bounds = []time.Duration{
		100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
		10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, time.Second,
	}
	scale = latency.NewScale(time.Microsecond, 16*time.Second, 1.06, bounds...)
)

func (t *table) histogram(name, help string, read func(tellDurations), labels ...string) {
	desc := prometheus.NewDesc(name, help, labels, nil)
	*t = append(*t, func(to chan<- prometheus.Metric) {
		read(func(h *latency.Histogram, labels ...string) {
			counts, buckets := latency.Read(h), map[float64]uint64{}
			for _, bound := range bounds {
				buckets[bound.Seconds()] = counts.UpTo(bound)
			}
			to <- prometheus.MustNewConstHistogram(desc, counts.Total(), h.Sum().Seconds(), buckets, labels...)
		})
	})
}

// one reads a metric with one series.
func one[N int | int64 | uint64](value func() N) func(tell) {
	return func(is tell) { is(float64(value())) }
}

// flag adds a gauge that is 1 or 0, and returns the function that sets it.
func (t *table) flag(name, help string) func(bool) {
	var on atomic.Bool
	t.gauge(name, help, func(is tell) { is(oneIf(on.Load())) })
	return on.Store
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
