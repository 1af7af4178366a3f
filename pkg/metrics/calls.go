package metrics

import (
	"cmp"
	"maps"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/statsd_exporter/pkg/mapper"
)

// calls counts and times the calls of gRPC methods.
type calls struct {
	methods atomic.Pointer[map[string]*method] // by full name; a new method replaces the map

	mu        sync.Mutex
	observers map[string]prometheus.Collector // by the series' id
}

// method is the measurements of one gRPC method.
type method struct {
	calls   *counter
	path    string // of the durations
	series  *series
	seconds prometheus.Observer // nil when the mapping drops it
	timer   timer
}

// Called counts and times a call of a gRPC method, /service/method. The method
// must be one that the server has, because each gets series of its own.
func (m *Metrics) Called(fullMethod string, took time.Duration) {
	c := (*m.calls.methods.Load())[fullMethod]
	if c == nil {
		c = m.addMethod(fullMethod)
	}
	c.calls.n.Add(1)
	if c.seconds != nil {
		c.seconds.Observe(c.series.scaled(float64(took) / float64(time.Millisecond)))
	}
	c.timer.add(took)
}

func (m *Metrics) addMethod(fullName string) *method {
	m.calls.mu.Lock()
	defer m.calls.mu.Unlock()
	methods := maps.Clone(*m.calls.methods.Load())
	if c := methods[fullName]; c != nil {
		return c
	}
	root := "ratelimit_server." + path.Base(fullName)
	c := &method{calls: m.paths.method(root + ".total_requests"), path: root + ".response_time"}
	m.mapping.mu.Lock()
	c.series = m.mapping.find(c.path, mapper.MetricTypeObserver, unmappedHelp)
	m.mapping.mu.Unlock()
	if !c.series.dropped() {
		c.seconds = m.observer(c.series)
	}
	methods[fullName] = c
	m.calls.methods.Store(&methods)
	return c
}

// observer finds or makes the histogram or summary that the mapping asks for. Two
// methods can share one. The caller holds m.calls.mu.
func (m *Metrics) observer(s *series) prometheus.Observer {
	if o := m.calls.observers[s.id]; o != nil {
		return o.(prometheus.Observer)
	}
	var o prometheus.Collector
	if s.mapping.ObserverType == mapper.ObserverTypeHistogram {
		o = prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: s.name, Help: s.help, ConstLabels: s.labels, Buckets: s.mapping.HistogramOptions.Buckets,
		})
	} else {
		summary := cmp.Or(s.mapping.SummaryOptions, &m.mapping.mapper.Defaults.SummaryOptions)
		objectives := map[float64]float64{}
		for _, q := range summary.Quantiles {
			objectives[q.Quantile] = q.Error
		}
		o = prometheus.NewSummary(prometheus.SummaryOpts{
			Name: s.name, Help: s.help, ConstLabels: s.labels, Objectives: objectives,
			MaxAge: summary.MaxAge, AgeBuckets: summary.AgeBuckets, BufCap: summary.BufCap,
		})
	}
	m.calls.observers[s.id] = o
	return o.(prometheus.Observer)
}

// collect sends the durations of calls to Prometheus.
func (c *calls) collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.observers {
		o.Collect(to)
	}
}

// timer keeps the durations of calls, in whole milliseconds, until they are sent
// to statsd.
type timer struct {
	quick [1000]atomic.Uint64 // calls, by their milliseconds

	mu   sync.Mutex
	slow []uint64 // durations of 1000 milliseconds and more
}

// maxSlow bounds the durations in slow; the durations of further calls are dropped.
const maxSlow = 10_000

func (t *timer) add(took time.Duration) {
	ms := uint64(max(took.Milliseconds(), 0))
	if ms < uint64(len(t.quick)) {
		t.quick[ms].Add(1)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.slow) < maxSlow {
		t.slow = append(t.slow, ms)
	}
}

// take calls tell for each duration with its number of calls, and sets the numbers
// to 0.
func (t *timer) take(tell func(ms, calls uint64)) {
	for ms := range t.quick {
		if n := t.quick[ms].Swap(0); n > 0 {
			tell(uint64(ms), n)
		}
	}
	t.mu.Lock()
	slow := t.slow
	t.slow = nil
	t.mu.Unlock()
	for _, ms := range slow {
		tell(ms, 1)
	}
}
