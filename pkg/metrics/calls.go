package metrics

import (
	"maps"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/statsd_exporter/pkg/mapper"
	"github.com/prometheus/statsd_exporter/pkg/registry"
)

// methods counts and times the calls of gRPC methods.
type methods struct {
	byName atomic.Pointer[map[string]*method] // by full name; a new method replaces the map

	mu        sync.Mutex
	observers *registry.Registry   // of the durations
	kinds     *prometheus.GaugeVec // which observers counts itself in; nobody reads it
	collected *prometheus.Registry // has the metrics of observers
}

func (c *methods) init(m *mapper.MetricMapper) {
	c.byName.Store(&map[string]*method{})
	c.kinds = prometheus.NewGaugeVec(prometheus.GaugeOpts{}, []string{"type"})
	c.collected = prometheus.NewRegistry()
	c.observers = registry.NewRegistry(c.collected, m)
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
func (p *reference) Called(fullMethod string, took time.Duration) {
	c := (*p.methods.byName.Load())[fullMethod]
	if c == nil {
		c = p.addMethod(fullMethod)
	}
	c.calls.n.Add(1)
	if c.seconds != nil {
		c.seconds.Observe(c.series.scaled(float64(took) / float64(time.Millisecond)))
	}
	c.timer.add(took)
}

func (p *reference) addMethod(fullName string) *method {
	p.methods.mu.Lock()
	defer p.methods.mu.Unlock()
	all := maps.Clone(*p.methods.byName.Load())
	if c := all[fullName]; c != nil {
		return c
	}
	root := "ratelimit_server." + path.Base(fullName)
	p.mu.Lock()
	c := &method{calls: p.add(root + ".total_requests"), path: root + ".response_time"}
	p.mu.Unlock()
	p.mapping.mu.Lock()
	c.series = p.mapping.find(c.path, mapper.MetricTypeObserver, unmappedHelp)
	p.mapping.mu.Unlock()
	if !c.series.dropped() {
		c.seconds = p.observer(c.series)
	}
	all[fullName] = c
	p.methods.byName.Store(&all)
	return c
}

// observer finds or makes the histogram or summary that the mapping asks for, nil if it has the
// name of another kind of metric. Two methods can share one. The caller holds p.methods.mu.
func (p *reference) observer(s *series) prometheus.Observer {
	get := p.methods.observers.GetSummary
	if s.mapping.ObserverType == mapper.ObserverTypeHistogram {
		get = p.methods.observers.GetHistogram
	}
	o, err := get(s.name, s.labels, s.help, s.mapping, p.methods.kinds)
	if err != nil {
		p.log.Warn("the durations of a method have no series", "error", err.Error())
	}
	return o
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
