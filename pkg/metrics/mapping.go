package metrics

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/statsd_exporter/pkg/mapper"
)

// unmappedHelp is that of what the mapping does not name.
const unmappedHelp = "A statistic of envoyproxy/ratelimit by its path."

// statHelp is that of the counters that rules have and the reference maps.
var statHelp = [overLimitLocal]string{
	totalHits:   "Hits that a rule applied to.",
	overLimit:   "Hits beyond a limit.",
	nearLimit:   "Hits within a limit but beyond NEAR_LIMIT_RATIO of it.",
	withinLimit: "Hits within a limit.",
	shadowMode:  "Hits beyond a limit in shadow mode, which therefore passed.",
}

// series is where a path goes in Prometheus.
type series struct {
	id      string // name and labels
	name    string
	help    string
	labels  prometheus.Labels
	dropped bool
	mapping *mapper.MetricMapping // nil when none matches
	desc    *prometheus.Desc
}

// mapping turns paths into series.
type mapping struct {
	mu     sync.Mutex // held by who calls find
	mapper mapper.MetricMapper
	help   map[string]string // by name: a name has one
}

// newMapping reads a mapping file, or makes the reference's own mapping.
func newMapping(o Options) (*mapping, error) {
	m := &mapping{help: map[string]string{}}
	text := defaultMapping(o.Milliseconds)
	if o.Mapping != nil {
		text = string(o.Mapping)
		m.mapper.Logger = o.Log // without one it panics over what is deprecated
	}
	if err := m.mapper.InitFromYAMLString(text); err != nil {
		return nil, fmt.Errorf("metrics: read mapping: %w", err)
	}
	return m, nil
}

// defaultMapping is the mapping that dashboards rely on: the domain and up to
// two keys of a metric key become labels, what follows is left out. It does not
// take over_limit_with_local_cache for over_limit, as the reference's does for
// rules of two keys and more, where it counts such hits twice.
func defaultMapping(milliseconds bool) string {
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
- {match: ratelimit.service.call.should_rate_limit.*, name: ratelimit_service_should_rate_limit_error, labels: {err_type: $1}, help: 'Requests that were not decided: redis_error for any store, or service_error.'}
- {match: ratelimit_server.*.total_requests, name: ratelimit_service_total_requests, labels: {grpc_method: $1}, help: 'Calls of a gRPC method.'}
- {match: ratelimit_server.*.response_time, name: ratelimit_service_response_time_seconds, observer_type: histogram, labels: {grpc_method: $1}, help: 'Time that calls of a gRPC method took.'` + scale + `}
- {match: ratelimit.service.config_load_success, name: ratelimit_service_config_load_success, help: 'Loads of the rules.'}
- {match: ratelimit.service.config_load_error, name: ratelimit_service_config_load_error, help: 'Loads of the rules that failed.'}
`)
	return b.String()
}

// find says where a path goes. m.mu is held.
func (m *mapping) find(path string, kind mapper.MetricType) *series {
	found, labels, ok := m.mapper.GetMapping(path, kind)
	s := &series{name: mapper.EscapeMetricName(path), help: unmappedHelp}
	if ok {
		s.mapping, s.labels, s.dropped = found, labels, found.Action == mapper.ActionTypeDrop
		s.name = mapper.EscapeMetricName(found.Name)
		if found.HelpText != "" {
			s.help = found.HelpText
		}
	}
	if first, ok := m.help[s.name]; ok {
		s.help = first
	} else {
		m.help[s.name] = s.help
	}
	s.id = s.name
	for _, name := range slices.Sorted(maps.Keys(s.labels)) {
		s.id += "\x00" + name + "\x00" + s.labels[name]
	}
	s.desc = prometheus.NewDesc(s.name, s.help, nil, s.labels)
	return s
}

// mapped is the reference's counters as Prometheus sees them. Those that have
// not counted yet are not there, as in the reference.
type mapped struct {
	mapping *mapping
	paths   *paths
}

// Describe tells nothing: which series there are, the rules decide.
func (*mapped) Describe(chan<- *prometheus.Desc) {}

// Collect sums what the mapping gives one name and labels.
func (m *mapped) Collect(to chan<- prometheus.Metric) {
	type sum struct {
		*series
		n float64
	}
	m.mapping.mu.Lock()
	defer m.mapping.mu.Unlock()
	sums := map[string]*sum{}
	help := map[string]string{} // without the names of counters that were forgotten
	for _, c := range m.paths.counters() {
		n := c.n.Load()
		if n == 0 {
			continue
		}
		if c.series == nil {
			c.series = m.mapping.find(c.path, mapper.MetricTypeCounter)
		}
		help[c.series.name] = c.series.help
		if c.series.dropped {
			continue
		}
		value := float64(n)
		if c.series.mapping != nil && c.series.mapping.Scale.Set {
			value *= c.series.mapping.Scale.Val
		}
		if s := sums[c.series.id]; s != nil {
			s.n += value
		} else {
			sums[c.series.id] = &sum{c.series, value}
		}
	}
	m.mapping.help = help
	for _, s := range sums {
		if metric, err := prometheus.NewConstMetric(s.desc, prometheus.CounterValue, s.n); err == nil {
			to <- metric
		}
	}
}
