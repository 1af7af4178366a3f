// Package metrics counts requests, decisions and events of the process, and sends the counts
// to Prometheus.
//
// There are two sets of metrics. The first has the names and labels that dashboards for
// envoyproxy/ratelimit read. It is defined in reference.go, and a [Statsd] sends it to statsd or DogStatsD.
// The second, rls_*, is our own. It is defined in own.go. A [DecisionLog] logs decisions.
//
// The number of series is bounded, and rules that have been gone for an hour are forgotten.
package metrics

import (
	"cmp"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/statsd_exporter/pkg/mapper"
	"google.golang.org/grpc/codes"

	"example.org/rls/pkg/descriptors"
)

// Options changes the counts of Metrics and their names.
type Options struct {
	// MaxSeries bounds the series with a caller's bytes in their name or labels.
	MaxSeries int
	// NearLimitRatio is the share of a limit, 0 to 1, above which hits are near it.
	NearLimitRatio float64
	// Tags are labels of every series. A name that a label cannot have is changed,
	// as docs/metrics.md says. A tag without a name or a value is ignored.
	Tags map[string]string
	// Mapping is a mapping file of statsd_exporter; nil is envoyproxy/ratelimit's mapping.
	Mapping []byte
	// Milliseconds gives ratelimit_service_response_time_seconds in milliseconds
	// if Mapping is nil.
	Milliseconds bool
	Log          *slog.Logger     // nil logs nothing
	Clock        func() time.Time // nil is the system's clock
}

// Metrics holds all metrics of the process. It is safe for concurrent use.
type Metrics struct {
	*reference
	registry *prometheus.Registry
	log      *slog.Logger
	table
	decisions *decisions

	panics, clockErrors, cutOff atomic.Uint64
	requests                    [codes.Unauthenticated + 1]atomic.Uint64
	refused                     func(bool)                       // says whether the newest rules are refused
	lastLoad                    atomic.Int64                     // when good rules were last loaded, in ns since the epoch
	tree                        atomic.Pointer[descriptors.Tree] // of the rules in force
}

// New returns metrics that start at zero, together with those of the Go runtime
// and of the operating system's process. The error describes a fault of the mapping.
func New(o Options) (*Metrics, error) {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Clock == nil {
		o.Clock = time.Now
	}
	mapping := usualMapping(o.Milliseconds)
	if o.Mapping != nil {
		mapping = string(o.Mapping)
	}
	m := &Metrics{registry: prometheus.NewRegistry(), log: o.Log}
	var err error
	if m.reference, err = newReference(o.MaxSeries, mapping, o.Log); err != nil {
		return nil, err
	}
	m.decisions = newDecisions(m.reference, o.NearLimitRatio, o.Clock, o.Log)
	m.countProcess()
	m.countLimits()
	prometheus.WrapRegistererWith(labels(o.Tags), m.registry).MustRegister((*collector)(m),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m, nil
}

// ownLabels are the names of labels that series have already.
var ownLabels = []string{
	"domain", "key1", "key2", "err_type", "grpc_method",
	"at", "backend", "code", "decision", "direction", "event", "key", "limit", "plan", "policy", "result", "role", "rule", "server", "strategy",
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

// Panicked counts a request that panicked.
func (m *Metrics) Panicked() { m.panics.Add(1) }

// CutOff counts a connection that was closed because its client cancelled too many calls.
func (m *Metrics) CutOff() { m.cutOff.Add(1) }

// ClockError counts a failed attempt to read the clock of a store's server.
func (m *Metrics) ClockError(error) { m.clockErrors.Add(1) }

// Answered counts a request that was answered with code. A code that gRPC does not
// define is counted as Unknown.
func (m *Metrics) Answered(code codes.Code) {
	if int(code) >= len(m.requests) {
		code = codes.Unknown
	}
	m.requests[code].Add(1)
}

// Loaded counts a load of the rules; err is the reason of a failed load, nil of a good one.
func (m *Metrics) Loaded(err error) {
	m.refused(err != nil)
	if err == nil {
		m.loaded.n.Add(1)
		m.lastLoad.Store(time.Now().UnixNano())
	} else {
		m.loadFailed.n.Add(1)
	}
}

// InForce says which rules come into force now. It must be called before they decide.
func (m *Metrics) InForce(tree *descriptors.Tree) {
	m.decisions.inForce(tree)
	// Only now, because a rule that find sees for the first time takes over a key whose
	// rule is gone.
	m.decisions.found.Store(new(sync.Map))
	m.clean()
	m.tree.Store(tree)
}

// clean removes the counts of rules that have been gone for an hour.
func (m *Metrics) clean() {
	if now := m.decisions.clock(); m.decisions.forget(now) {
		m.forgetKeys(now)
	}
}

// collector gives Prometheus all metrics.
type collector Metrics

// Describe describes nothing, because the rules and the mapping decide which series there are.
func (*collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the metrics of our own first: of two series that contradict each other
// Prometheus serves the first.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	for _, collect := range c.table {
		collect(to)
	}
	c.collect(to)
}

// Handler serves the metrics in Prometheus' formats. A mapping file can produce
// series that contradict others; such series are left out and logged.
func (m *Metrics) Handler() http.Handler {
	all := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError,
		ErrorLog:      slog.NewLogLogger(m.log.Handler(), slog.LevelWarn),
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.clean()
		all.ServeHTTP(w, r)
	})
}
