package metrics_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/metrics"
)

// theirMapping is a file as users of envoyproxy/ratelimit have it, with fields that
// statsd_exporter has removed since.
const theirMapping = `
mappings:
  - match: "ratelimit.service.rate_limit.*.*.total_hits"
    name: "hits_$1"
    timer_type: "histogram"
    help: Hits of a rule.
    labels:
      rule_key: "$2"
  - match: "ratelimit.service.rate_limit.*.*.within_limit"
    name: "dropped"
    action: drop
  - match: "ratelimit_server.*.response_time"
    name: "took"
    timer_type: summary
    quantiles: [{quantile: 0.9, error: 0.01}]
    labels: {method_name: "$1"}
  - match: "ratelimit_server.*.other_time"
    name: "other"
    timer_type: histogram
    buckets: [0.5, 1]
  - {match: ratelimit.*.cx_active, name: connections, labels: {pool: $1}}
  - {match: ratelimit.*.cx_total, name: dropped, action: drop}
`

func TestMappingFile(t *testing.T) {
	var log strings.Builder
	m := open(t, metrics.Options{Mapping: []byte(theirMapping), NearLimitRatio: 1, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if lines := log.String(); !strings.Contains(lines, "top level quantiles is deprecated") || strings.Contains(lines, "backtracking") {
		t.Errorf("log:\n%s", lines)
	}
	entry := descriptors.Entry{Key: "k"}
	m.Observer().Observe(allowed(rule(t, perHour, entry), entry))
	m.Called(method, 3*time.Millisecond)
	m.Loaded(nil)
	m.Pool("redis_pool", connections(2, 5))
	serves(t, m,
		"# HELP hits_d Hits of a rule.", `hits_d{rule_key="k"} 1`,
		`took_sum{method_name="ShouldRateLimit"} 3`, `took{method_name="ShouldRateLimit",quantile="0.9"} 3`,
		`connections{pool="redis_pool"} 2`,
		"ratelimit_service_config_load_success 1",           // as its path
		"ratelimit_server_ShouldRateLimit_total_requests 1") // as its path
	if all := page(t, m); strings.Contains(all, "within_limit") || strings.Contains(all, "dropped") {
		t.Errorf("what the mapping drops is there:\n%s", all)
	}
}

// Series that contradict our own metrics are left out; all others are served.
func TestMappingThatContradicts(t *testing.T) {
	m := open(t, metrics.Options{Mapping: []byte(`mappings: [{match: ratelimit.service.config_load_success, name: rls_panics_total}]`)})
	m.Loaded(nil)
	serves(t, m, `rls_requests_total{code="OK"} 0`)
}

func TestWrongMapping(t *testing.T) {
	for _, tt := range []struct{ mapping, want string }{
		{"mappings: [{match: 'a..b', name: x}]", "invalid match"},
		{"mappings: [{match: a.b}]", "name"},
		{"[", "yaml"},
	} {
		if _, err := metrics.New(metrics.Options{Mapping: []byte(tt.mapping)}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.mapping, err, tt.want)
		}
	}
}

func TestResponseTime(t *testing.T) {
	for milliseconds, want := range map[bool]string{
		false: `sum{grpc_method="ShouldRateLimit"} 0.0075`,
		true:  `sum{grpc_method="ShouldRateLimit"} 7.5`,
	} {
		m := open(t, metrics.Options{Milliseconds: milliseconds})
		m.Called(method, 7500*time.Microsecond)
		serves(t, m, `ratelimit_service_response_time_seconds_`+want, `ratelimit_service_total_requests{grpc_method="ShouldRateLimit"} 1`,
			`ratelimit_service_response_time_seconds_bucket{grpc_method="ShouldRateLimit",le="10"} 1`)
	}
}

// Hits that the local cache denied have a counter without a mapping of its own,
// and are in over_limit once.
func TestDenialsOfTheLocalCache(t *testing.T) {
	m := open(t, metrics.Options{})
	for _, yaml := range []string{
		perHour,
		"- key: k\n  descriptors: [{key: l, descriptors: [{key: m, rate_limit: {unit: hour, requests_per_unit: 10}}]}]\n",
	} {
		entries := []descriptors.Entry{{Key: "k"}, {Key: "l"}, {Key: "m"}}[:1+2*strings.Count(yaml, "l,")]
		o := allowed(rule(t, yaml, entries...), entries...)
		o.Verdicts[0].Is.Allowed, o.Verdicts[0].Recalled = false, true
		m.Observer().Observe(o)
	}
	serves(t, m,
		`ratelimit_service_rate_limit_over_limit{domain="d",key1="k"} 1`, "ratelimit_service_rate_limit_d_k_over_limit_with_local_cache 1",
		`ratelimit_service_rate_limit_over_limit{domain="d",key1="k",key2="l"} 1`, "ratelimit_service_rate_limit_d_k_l_m_over_limit_with_local_cache 1")
}
