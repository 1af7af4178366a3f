package metrics

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/statsd_exporter/pkg/mapper"
)

// unmappedHelp is the help text of counters that no mapping matches.
const unmappedHelp = "A statistic of envoyproxy/ratelimit by its path."

// statHelp is the help text of the counters of rules.
var statHelp = [overLimitLocal]string{
	totalHits:   "Hits that a rule applied to, also when the store failed.",
	overLimit:   "Hits beyond a limit.",
	nearLimit:   "Hits within a limit but beyond NEAR_LIMIT_RATIO of it.",
	withinLimit: "Hits within a limit.",
	shadowMode:  "Hits beyond a limit in shadow mode, which passed.",
}

// series is the name and labels that a path has in Prometheus.
type series struct {
	id      string // name and labels
	name    string
	help    string
	labels  prometheus.Labels
	mapping *mapper.MetricMapping
	desc    *prometheus.Desc
}

// mapping turns paths into series.
type mapping struct {
	mu       sync.Mutex // the caller of find holds it
	mapper   mapper.MetricMapper
	unmapped mapper.MetricMapping // of paths that no mapping matches
	help     map[string]string    // by name: all series of a name must have one help text
}

func newMapping(text string, log *slog.Logger) (*mapping, error) {
	m := &mapping{help: map[string]string{}}
	m.mapper.Logger = slog.New(unconcerned{log.Handler()})
	if err := m.mapper.InitFromYAMLString(text); err != nil {
		return nil, fmt.Errorf("metrics: read mapping: %w", err)
	}
	defaults := &m.mapper.Defaults
	m.unmapped = mapper.MetricMapping{ObserverType: defaults.ObserverType, HistogramOptions: &defaults.HistogramOptions}
	return m, nil
}

// unconcerned leaves out the warnings of statsd_exporter that a match needs backtracking, as
// seven of Envoy Gateway's mapping do: the series of a path is looked up only once.
type unconcerned struct{ slog.Handler }

func (h unconcerned) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "backtracking required") {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// usualMapping is the mapping that dashboards for envoyproxy/ratelimit rely on: the domain and the
// first two keys of a metric key become labels, further keys are left out. Durations are in seconds
// unless milliseconds is true. That project's own mapping adds over_limit_with_local_cache to
// over_limit for rules of two keys and more, and so counts those hits twice; this one does not.
func usualMapping(milliseconds bool) string {
	var b strings.Builder
	b.WriteString("mappings:\n")
	for stat, name := range statNames[:overLimitLocal] {
		for _, rule := range []struct{ kind, match, key2 string }{
			{"glob", `ratelimit.service.rate_limit.*.*.` + name, ""},
			{"regex", `ratelimit\.service\.rate_limit\.([^.]*)\.([^.]*)\.([^.]*)(\..*)?\.` + name + `$`, ", key2: $3"},
		} {
			fmt.Fprintf(&b, "- {match: '%s', match_type: %s, name: ratelimit_service_rate_limit_%s, help: '%s', labels: {domain: $1, key1: $2%s}}\n",
				rule.match, rule.kind, name, statHelp[stat], rule.key2)
		}
	}
	scale := ", scale: 0.001"
	if milliseconds {
		scale = ""
	}
	b.WriteString(`
- {match: ratelimit.service.call.should_rate_limit.*, name: ratelimit_service_should_rate_limit_error, labels: {err_type: $1}, help: 'Requests without a decision: redis_error (any store), service_error (invalid, or no rules).'}
- {match: ratelimit_server.*.total_requests, name: ratelimit_service_total_requests, labels: {grpc_method: $1}, help: 'Calls, health checks too.'}
- {match: ratelimit_server.*.response_time, name: ratelimit_service_response_time_seconds, observer_type: histogram, labels: {grpc_method: $1}, help: 'Duration of calls.'` + scale + `}
- {match: ratelimit.service.config_load_success, name: ratelimit_service_config_load_success, help: 'Loads of the rules.'}
- {match: ratelimit.service.config_load_error, name: ratelimit_service_config_load_error, help: 'Loads of the rules that failed.'}
`)
	return b.String()
}

// find returns the series of a path; help is for a path that no mapping matches.
// The caller holds m.mu.
func (m *mapping) find(path string, kind mapper.MetricType, help string) *series {
	found, labels, ok := m.mapper.GetMapping(path, kind)
	if ok {
		path = found.Name
	} else {
		found = &m.unmapped
	}
	s := &series{name: mapper.EscapeMetricName(path), labels: labels, mapping: found}
	s.help = cmp.Or(m.help[s.name], found.HelpText, help)
	m.help[s.name] = s.help
	s.id = fmt.Sprintf("%s %q", s.name, s.labels)
	s.desc = prometheus.NewDesc(s.name, s.help, nil, s.labels)
	return s
}

func (s *series) dropped() bool { return s.mapping.Action == mapper.ActionTypeDrop }

// scaled is n in the unit that the mapping asks for.
func (s *series) scaled(n float64) float64 {
	if s.mapping.Scale.Set {
		return n * s.mapping.Scale.Val
	}
	return n
}

// collect sends the counters to Prometheus. A counter that has not counted yet has no
// series, as in envoyproxy/ratelimit. Counters to which the mapping gives the same name and
// labels are added up.
func (p *reference) collect(to chan<- prometheus.Metric) {
	type sum struct {
		*series
		kind prometheus.ValueType
		n    float64
	}
	p.methods.collected.Collect(to)
	m := p.mapping
	m.mu.Lock()
	defer m.mu.Unlock()
	sums := map[string]*sum{}
	help := map[string]string{} // without the names of counters that were forgotten
	for _, c := range p.counters() {
		n := c.value()
		if n == 0 && c.read == nil && !c.always {
			continue
		}
		mapped, kind := mapper.MetricTypeCounter, prometheus.CounterValue
		if c.gauge {
			mapped, kind = mapper.MetricTypeGauge, prometheus.GaugeValue
		}
		if c.series == nil {
			c.series = m.find(c.path, mapped, c.help)
		}
		help[c.series.name] = c.series.help
		if c.series.dropped() {
			continue
		}
		s := sums[c.series.id]
		if s == nil {
			s = &sum{series: c.series, kind: kind}
			sums[c.series.id] = s
		}
		s.n += c.series.scaled(float64(n))
	}
	m.help = help
	for _, s := range sums {
		if metric, err := prometheus.NewConstMetric(s.desc, s.kind, s.n); err == nil {
			to <- metric
		}
	}
}
