package settings

import (
	"cmp"
	"net"
	"os"
	"strings"
	"time"
)

// Metrics says where metrics are sent or served.
type Metrics struct {
	UsePrometheus  bool   `env:"USE_PROMETHEUS" default:"false" help:"Serve metrics to Prometheus."`
	PrometheusAddr string `env:"PROMETHEUS_ADDR" default:":9090" help:"Address of the metrics listener."`
	PrometheusPath string `env:"PROMETHEUS_PATH" default:"/metrics" help:"Path of the metrics."`

	PrometheusMapperYAML                 string `name:"prometheus-mapper-yaml" env:"PROMETHEUS_MAPPER_YAML" help:"File with statsd_exporter's mapping for other names; if missing, the default counts, with a warning."`
	PrometheusResponseTimeAsMilliseconds bool   `env:"PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS" default:"false" help:"ratelimit_service_response_time_seconds in milliseconds, without a mapping file."`

	UseStatsd          bool          `env:"USE_STATSD" default:"true" help:"Send metrics to statsd; false by default with USE_PROMETHEUS or USE_DOG_STATSD."`
	StatsdHost         string        `env:"STATSD_HOST" default:"localhost" help:"Host of statsd or DogStatsD."`
	StatsdPort         int           `env:"STATSD_PORT" default:"8125" min:"1" max:"65535" help:"Port of statsd or DogStatsD."`
	StatsdProtocol     string        `env:"STATSD_PROTOCOL" default:"tcp" oneof:"tcp,udp" help:"Transport to statsd; DogStatsD's is UDP."`
	StatsFlushInterval time.Duration `env:"STATS_FLUSH_INTERVAL" default:"10s" min:"10ms" help:"How often metrics are sent."`

	UseDogStatsd           bool     `env:"USE_DOG_STATSD" default:"false" help:"Send metrics to DogStatsD."`
	UseDogStatsdMogrifiers []string `env:"USE_DOG_STATSD_MOGRIFIERS" help:"Mogrifiers that rename paths, in order. DOG_STATSD_MOGRIFIER_<NAME>_PATTERN is one's regular expression (<NAME> in upper case), _NAME the new name, _TAGS key:value,key:value; $1 is its first group."`

	ExtraTags    []string `env:"EXTRA_TAGS" help:"Tags or labels of all metrics: key:value,key:value."`
	DisableStats bool     `env:"DISABLE_STATS" default:"false" help:"Send no metrics of decisions."`

	MetricsMaxSeries int `env:"METRICS_MAX_SERIES" default:"10000" min:"0" max:"1000000" help:"Most series with labels that callers choose; further ones count as other."`
}

// Tags is ExtraTags by key.
func (m *Metrics) Tags() map[string]string { return tags(m.ExtraTags) }

// tags splits key:value pairs. Text without a colon becomes a key without a value.
func tags(pairs []string) map[string]string {
	m := make(map[string]string, len(pairs))
	for _, pair := range pairs {
		key, value, _ := strings.Cut(pair, ":")
		m[key] = value
	}
	return m
}

// Mogrifier is the settings of one of UseDogStatsdMogrifiers.
type Mogrifier struct {
	Prefix        string // of the names of its variables
	Pattern, Name string
	Tags          map[string]string
}

// Mogrifier reads the variables of a mogrifier. Their names have its name in upper case, as in
// envoyproxy/ratelimit: DOG_STATSD_MOGRIFIER_TAG_PATTERN is the pattern of the mogrifier tag.
func (m *Metrics) Mogrifier(name string) Mogrifier {
	prefix := "DOG_STATSD_MOGRIFIER_" + strings.ToUpper(name)
	mogrifier := Mogrifier{Prefix: prefix, Pattern: os.Getenv(prefix + "_PATTERN"), Name: os.Getenv(prefix + "_NAME")}
	if list := os.Getenv(prefix + "_TAGS"); list != "" {
		mogrifier.Tags = tags(strings.Split(list, ","))
	}
	return mogrifier
}

// settle checks the settings, and switches statsd off where it is on only by default
// and metrics go to another place. asked says that USE_STATSD was given.
func (m *Metrics) settle(asked bool) (wrong Errors) {
	// As in envoyproxy/ratelimit, an empty value means the default.
	m.PrometheusAddr = cmp.Or(m.PrometheusAddr, ":9090")
	m.PrometheusPath = cmp.Or(m.PrometheusPath, "/metrics")
	if m.UsePrometheus {
		wrong.require(strings.HasPrefix(m.PrometheusPath, "/"), "PROMETHEUS_PATH", m.PrometheusPath, "a path that starts with /")
		_, port, err := net.SplitHostPort(m.PrometheusAddr)
		_, wrongPort := net.LookupPort("tcp", port)
		wrong.require(err == nil && wrongPort == nil, "PROMETHEUS_ADDR", m.PrometheusAddr, "host:port, or :port for all addresses")
	}
	for _, pair := range m.ExtraTags {
		// key: without a value is allowed, because manifests take values from
		// variables that may be unset.
		wrong.require(strings.Contains(pair, ":"), "EXTRA_TAGS", pair, "key:value,key:value")
	}
	if m.DisableStats {
		m.UseStatsd, m.UseDogStatsd, m.UsePrometheus = false, false, false
		return wrong
	}
	if !asked && (m.UsePrometheus || m.UseDogStatsd) {
		m.UseStatsd = false
	}
	wrong.require(!m.UsePrometheus || !m.UseDogStatsd, "USE_DOG_STATSD", m.UseDogStatsd, "false, because USE_PROMETHEUS is true and metrics go to one place")
	wrong.require(!m.UseStatsd || !m.UsePrometheus && !m.UseDogStatsd, "USE_STATSD", m.UseStatsd, "false, because metrics go to one place and another one is switched on")
	return wrong
}
