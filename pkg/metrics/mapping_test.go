package metrics_test

import (
	"strings"
	"testing"
	"time"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/metrics"
)

const method = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

// A file as envoyproxy/ratelimit's users have it, with what statsd_exporter
// has given up since.
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
    labels: {method_name: "$1"}
`

func TestMappingFile(t *testing.T) {
	m := open(t, metrics.Options{Mapping: []byte(theirMapping), NearLimitRatio: 1})
	entry := descriptors.Entry{Key: "k"}
	m.Observer().Observe(allowed(rule(t, "- key: k\n  rate_limit: {unit: hour, requests_per_unit: 10}\n", entry), entry))
	m.Called(method, 3*time.Millisecond)
	m.Loaded(nil)
	all := page(t, m)
	for _, want := range []string{
		"# HELP hits_d Hits of a rule.", `hits_d{rule_key="k"} 1`,
		`took_sum{method_name="ShouldRateLimit"} 3`, `took{method_name="ShouldRateLimit",quantile="0.9"} 3`,
		"ratelimit_service_config_load_success 1",           // as its path
		"ratelimit_server_ShouldRateLimit_total_requests 1", // as its path
	} {
		if !strings.Contains(all, want+"\n") {
			t.Errorf("no %s in\n%s", want, all)
		}
	}
	if strings.Contains(all, "within_limit") || strings.Contains(all, "dropped") {
		t.Errorf("what the mapping drops is there:\n%s", all)
	}
}

// What contradicts our own metrics is left out; the rest is served.
func TestMappingThatContradicts(t *testing.T) {
	m := open(t, metrics.Options{Mapping: []byte(`mappings: [{match: ratelimit.service.config_load_success, name: rls_panics_total}]`)})
	m.Loaded(nil)
	if all := page(t, m); !strings.Contains(all, `rls_requests_total{code="OK"} 0`) {
		t.Errorf("the page is\n%s", all)
	}
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
		false: `ratelimit_service_response_time_seconds_sum{grpc_method="ShouldRateLimit"} 0.0075`,
		true:  `ratelimit_service_response_time_seconds_sum{grpc_method="ShouldRateLimit"} 7.5`,
	} {
		m := open(t, metrics.Options{Milliseconds: milliseconds})
		m.Called(method, 7500*time.Microsecond)
		all := page(t, m)
		for _, want := range []string{
			want, `ratelimit_service_response_time_seconds_bucket{grpc_method="ShouldRateLimit",le="0.01"}`,
			`ratelimit_service_total_requests{grpc_method="ShouldRateLimit"} 1`,
		} {
			if !strings.Contains(all, want) {
				t.Errorf("no %s in\n%s", want, all)
			}
		}
	}
}

func TestTagsAreLabels(t *testing.T) {
	m := open(t, metrics.Options{Tags: map[string]string{"commit": `a"b`}})
	m.Loaded(nil)
	m.Called(method, time.Millisecond)
	all := page(t, m)
	for _, want := range []string{
		`rls_panics_total{commit="a\"b"} 0`, `ratelimit_service_config_load_success{commit="a\"b"} 1`,
		`ratelimit_service_response_time_seconds_count{commit="a\"b",grpc_method="ShouldRateLimit"} 1`, `go_goroutines{commit="a\"b"}`,
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no %s in\n%s", want, all)
		}
	}
	for _, name := range []string{"domain", "le", "a-b", "1", ""} {
		if _, err := metrics.New(metrics.Options{Tags: map[string]string{name: "x"}}); err == nil {
			t.Errorf("a tag %q was accepted", name)
		}
	}
}
