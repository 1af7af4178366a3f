// Package metrics measures what the process does, and sends the measurements to
// Prometheus, to statsd or DogStatsD, and to a log of sampled decisions.
//
// There are two sets of metrics. The first has the names and labels that
// dashboards for envoyproxy/ratelimit read: each of its counters has a path, as
// in statsd, which a mapping turns into a name and labels for Prometheus. The
// second, rls_*, is our own, by domain, rule, strategy and decision.
//
// The package promises that names stay the same and that the number of series
// is bounded: names and labels with a caller's bytes are counted in a series
// `other` once there are too many, and rules that have been gone for an hour are
// forgotten. It leaves the listener of metrics to pkg/server, and to each package
// which events it reports.
package metrics

import (
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/statsd_exporter/pkg/mapper"
	"google.golang.org/grpc/codes"
)

// Options changes what Metrics counts and how it names it.
type Options struct {
	// MaxSeries bounds the series with a caller's bytes in their name or labels.
	MaxSeries int
	// NearLimitRatio is the share of a limit, 0 to 1, above which hits are near
	// the limit.
	NearLimitRatio float64
	// Tags are labels of every series. A name that a label cannot have is changed,
	// as docs/metrics.md says. A tag without a name or a value is ignored.
	Tags map[string]string
	// Mapping is the text of a mapping file of statsd_exporter; nil is the
	// mapping of envoyproxy/ratelimit.
	Mapping []byte
	// Milliseconds gives ratelimit_service_response_time_seconds in milliseconds
	// if Mapping is nil.
	Milliseconds bool
	Log          *slog.Logger     // nil logs nothing
	Clock        func() time.Time // nil is the system's clock
}

// Metrics holds all metrics of the process. It is safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	add      prometheus.Registerer // to registry, with Options.Tags
	log      *slog.Logger

	panics    prometheus.Counter
	clockErrs prometheus.Counter
	cutOff    prometheus.Counter
	requests  [codes.Unauthenticated + 1]prometheus.Counter
	loads     *prometheus.CounterVec
	refused   prometheus.Gauge
	inForce   inForce
	lastLoad  atomic.Int64 // when good rules were last loaded, in ns since the epoch
	decisions *decisions
	calls     *calls
	paths     *paths
}

// New returns metrics that start at zero, together with those of the Go runtime
// and of the operating system's process. Its error says what is wrong with the
// mapping.
func New(o Options) (*Metrics, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	mapping, err := newMapping(o)
	if err != nil {
		return nil, err
	}
	m := &Metrics{registry: prometheus.NewRegistry(), log: o.Log, paths: newPaths(o.MaxSeries), inForce: newInForce()}
	m.add = prometheus.WrapRegistererWith(labels(o.Tags), m.registry)
	m.calls = newCalls(m.paths, mapping)
	m.decisions = newDecisions(m.paths, o.NearLimitRatio, o.Clock)
	m.countProcess()
	m.add.MustRegister(m.calls, m.decisions, &mapped{mapping: mapping, paths: m.paths},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m, nil
}

// ownLabels are the names of labels that series have already.
var ownLabels = []string{
	"domain", "key1", "key2", "err_type", "grpc_method",
	"backend", "code", "decision", "event", "key", "policy", "result", "role", "rule", "server", "strategy",
	"le", "quantile", "version",
}

// labels turns tags into labels: characters that the name of a label cannot have
// become _, and a name that is taken gets extra_ before it.
func labels(tags map[string]string) prometheus.Labels {
	all := prometheus.Labels{}
	for _, tag := range slices.Sorted(maps.Keys(tags)) {
		if tag == "" || tags[tag] == "" {
			continue
		}
		name := strings.ReplaceAll(mapper.EscapeMetricName(tag), ":", "_")
		for all[name] != "" || slices.Contains(ownLabels, name) || strings.HasPrefix(name, "__") { // __ is reserved for Prometheus
			name = "extra_" + name
		}
		all[name] = strings.ToValidUTF8(tags[tag], "_")
	}
	return all
}

// countProcess adds the metrics that are not about one rule or one store.
func (m *Metrics) countProcess() {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rls_requests_total", Help: "Rate-limit requests answered, over gRPC or HTTP, by gRPC status code.",
	}, []string{"code"})
	m.loads = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rls_config_loads_total", Help: "Loads of the rules, by result: success or error.",
	}, []string{"result"})
	m.refused = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "rls_config_refused", Help: "1 while the rules that were read last are refused, and older rules or none are in force, else 0.",
	})
	m.panics = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "rls_panics_total", Help: "Requests that panicked and were answered INTERNAL.",
	})
	m.clockErrs = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "rls_store_clock_errors_total", Help: "Failed attempts to read the clock of a Redis, after which this process uses its own clock.",
	})
	m.cutOff = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "rls_connections_cut_off_total", Help: "gRPC connections closed because their client cancelled more calls than GRPC_MAX_CANCELLATIONS_PER_SECOND.",
	})
	for code := range m.requests {
		m.requests[code] = requests.WithLabelValues(codes.Code(code).String())
	}
	m.loads.WithLabelValues("success")
	m.loads.WithLabelValues("error")
	m.add.MustRegister(m.panics, m.cutOff, m.clockErrs, requests, m.loads, m.refused, m.inForce.rules, m.inForce.hash,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "rls_config_last_success_timestamp_seconds", Help: "When rules were last loaded without an error, in seconds since the epoch; 0 is never.",
		}, func() float64 { return float64(m.lastLoad.Load()) / 1e9 }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "rls_config_age_seconds", Help: "Seconds since rules were last loaded without an error; 0 before that.",
		}, m.configAge),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "rls_series_overflow_total", Help: "Times that something was counted as `other` because there are METRICS_MAX_SERIES series or a name is too long.",
		}, func() float64 { return float64(m.paths.overflow.Load()) }))
}

func (m *Metrics) configAge() float64 {
	last := m.lastLoad.Load()
	if last == 0 {
		return 0
	}
	return time.Since(time.Unix(0, last)).Seconds()
}

// Panicked counts a request that panicked.
func (m *Metrics) Panicked() { m.panics.Inc() }

// CutOff counts a connection that was closed because its client cancelled too many
// calls.
func (m *Metrics) CutOff() { m.cutOff.Inc() }

// ClockError counts a failed attempt to read the clock of a store's server.
func (m *Metrics) ClockError(error) { m.clockErrs.Inc() }

// Answered counts a request that was answered with code. A code that gRPC does not
// define is counted as Unknown.
func (m *Metrics) Answered(code codes.Code) {
	if int(code) >= len(m.requests) {
		code = codes.Unknown
	}
	m.requests[code].Inc()
}

// Loaded counts a load of the rules; err says why it failed, nil that it did not.
func (m *Metrics) Loaded(err error) {
	if err != nil {
		m.loads.WithLabelValues("error").Inc()
		m.refused.Set(1)
		m.paths.loadFailed.n.Add(1)
		return
	}
	m.loads.WithLabelValues("success").Inc()
	m.refused.Set(0)
	m.paths.loaded.n.Add(1)
	m.lastLoad.Store(time.Now().UnixNano())
}

// MemoryStore is the embedded store.
type MemoryStore interface {
	Len() int        // keys held
	Evicted() uint64 // keys that were removed before they expired, to make room
}

// Watch adds the metrics of the embedded store. It must be called once at most.
func (m *Metrics) Watch(store MemoryStore) {
	m.add.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "rls_store_keys", Help: "Keys in the embedded store, including expired keys that were not yet removed.",
		}, func() float64 { return float64(store.Len()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "rls_memory_evictions_total", Help: "Keys that were removed before they expired, because the embedded store was full.",
		}, func() float64 { return float64(store.Evicted()) }))
}

// Handler serves the metrics in Prometheus' formats. A mapping file can produce
// series that contradict others; such series are left out and logged.
func (m *Metrics) Handler() http.Handler {
	all := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError,
		ErrorLog:      slog.NewLogLogger(m.log.Handler(), slog.LevelWarn),
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.decisions.forget()
		all.ServeHTTP(w, r)
	})
}
