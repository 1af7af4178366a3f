// Package metrics is what the process measures about itself.
//
// It promises names that stay and a bounded number of series: no label takes a
// value that a caller chooses. It leaves to pkg/server where metrics are
// served, and to each package what is worth counting.
package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/codes"
)

// Metrics counts what happens; safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	panics   prometheus.Counter
	requests [codes.Unauthenticated + 1]prometheus.Counter
	loads    *prometheus.CounterVec
}

// New returns metrics that start at zero, with those of Go and of the process.
func New() *Metrics {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rls_requests_total", Help: "Rate-limit requests answered, over gRPC or HTTP, by gRPC status code.",
	}, []string{"code"})
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rls_panics_total", Help: "Requests that panicked and were answered INTERNAL.",
		}),
		loads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rls_config_loads_total", Help: "Loads of the rules, by result: success or error.",
		}, []string{"result"}),
	}
	for code := range m.requests {
		m.requests[code] = requests.WithLabelValues(codes.Code(code).String())
	}
	m.loads.WithLabelValues("success")
	m.loads.WithLabelValues("error")
	m.registry.MustRegister(m.panics, requests, m.loads,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Panicked counts a request that panicked.
func (m *Metrics) Panicked() { m.panics.Inc() }

// Answered counts a request answered with code; codes that gRPC does not know
// count as Unknown.
func (m *Metrics) Answered(code codes.Code) {
	if int(code) >= len(m.requests) {
		code = codes.Unknown
	}
	m.requests[code].Inc()
}

// Loaded counts a load of the rules; err is why it failed.
func (m *Metrics) Loaded(err error) {
	result := "success"
	if err != nil {
		result = "error"
	}
	m.loads.WithLabelValues(result).Inc()
}

// MemoryStore is what the embedded store tells about itself.
type MemoryStore interface {
	Len() int        // keys held
	Evicted() uint64 // live keys that gave way to new ones
}

// Watch adds the embedded store's metrics. Once at most.
func (m *Metrics) Watch(store MemoryStore) {
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "rls_store_keys", Help: "Keys in the embedded store, expired ones that were not yet swept included.",
		}, func() float64 { return float64(store.Len()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "rls_memory_evictions_total", Help: "Live keys that gave way because the embedded store was full.",
		}, func() float64 { return float64(store.Evicted()) }))
}

// Handler serves the metrics in Prometheus' formats.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
