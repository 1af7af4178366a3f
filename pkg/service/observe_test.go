package service_test

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/service"
)

const hour = 3 // of envoy.type.v3.RateLimitUnit

const measuredRules = `
domain: d
descriptors:
  - key: a
    rate_limit: {unit: hour, requests_per_unit: 10}
  - key: ip
    value: 10.0.0.1
    rate_limit: {unit: hour, requests_per_unit: 10}
  - key: detailed
    detailed_metric: true
    rate_limit: {unit: hour, requests_per_unit: 10}
  - key: wild
    value: "x:*"
    rate_limit: {unit: hour, requests_per_unit: 10}
  - key: one
    descriptors:
      - key: two
        value: v
        descriptors:
          - key: three
            value_to_metric: true
            rate_limit: {unit: hour, requests_per_unit: 10}
  - key: shadow
    shadow_mode: true
    rate_limit: {unit: hour, requests_per_unit: 2}
  - key: none
    rate_limit: {unit: hour, requests_per_unit: 0}
  - key: free
    rate_limit: {unlimited: true}
  - key: replaced
    rate_limit: {unit: hour, requests_per_unit: 10, name: r}
  - key: replacing
    rate_limit: {unit: hour, requests_per_unit: 10, replaces: [{name: r}]}
  - key: bucket
    rate_limit: {unit: hour, requests_per_unit: 10, strategy: token_bucket, burst: 5}
`

// measure makes metrics, puts them into m, and has a service count in them.
func measure(t testing.TB, m **metrics.Metrics) func(*config) {
	var err error
	if *m, err = metrics.New(metrics.Options{MaxSeries: 1000, NearLimitRatio: 0.8}); err != nil {
		t.Fatal(err)
	}
	return func(c *config) {
		c.Store = (*m).Store(c.Store, "memory")
		c.Observers = []service.Observer{(*m).Observer()}
	}
}

// counted lists, as Prometheus sees them, the metrics whose names begin with one
// of prefixes and that are not 0.
func counted(t testing.TB, m *metrics.Metrics, prefixes ...string) []string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	var lines []string
	for s := bufio.NewScanner(w.Body); s.Scan(); {
		for _, prefix := range prefixes {
			if line := s.Text(); strings.HasPrefix(line, prefix) && !strings.HasSuffix(line, " 0") {
				lines = append(lines, strings.TrimPrefix(line, "ratelimit_service_rate_limit_"))
			}
		}
	}
	return slices.Sorted(slices.Values(lines))
}

// TestCountsAsTheReference: after these requests the counters are equal to the
// counters of envoyproxy/ratelimit after the same requests.
func TestCountsAsTheReference(t *testing.T) {
	in := func(domain string, req *pb.RateLimitRequest) *pb.RateLimitRequest {
		req.Domain = domain
		return req
	}
	a := func(hits uint64) *pb.RateLimitRequest { return request(withHits(hits, desc("a", "v"))) }
	tests := []struct {
		name string
		send []*pb.RateLimitRequest
		want []string
	}{
		{"within", []*pb.RateLimitRequest{a(1)}, []string{
			`total_hits{domain="d",key1="a"} 1`, `within_limit{domain="d",key1="a"} 1`,
		}},
		{"near: hits on both sides", []*pb.RateLimitRequest{a(7), a(3)}, []string{
			`near_limit{domain="d",key1="a"} 2`, `total_hits{domain="d",key1="a"} 10`, `within_limit{domain="d",key1="a"} 10`,
		}},
		{"over: hits on three sides", []*pb.RateLimitRequest{a(4), a(8)}, []string{
			`near_limit{domain="d",key1="a"} 2`, `over_limit{domain="d",key1="a"} 2`,
			`total_hits{domain="d",key1="a"} 12`, `within_limit{domain="d",key1="a"} 4`,
		}},
		{"over from near", []*pb.RateLimitRequest{a(9), a(3)}, []string{
			`near_limit{domain="d",key1="a"} 2`, `over_limit{domain="d",key1="a"} 2`,
			`total_hits{domain="d",key1="a"} 12`, `within_limit{domain="d",key1="a"} 9`,
		}},
		{"all over", []*pb.RateLimitRequest{a(10), a(5)}, []string{
			`near_limit{domain="d",key1="a"} 2`, `over_limit{domain="d",key1="a"} 5`,
			`total_hits{domain="d",key1="a"} 15`, `within_limit{domain="d",key1="a"} 10`,
		}},
		{"a check counts no hits", []*pb.RateLimitRequest{a(10), a(0)}, []string{
			`near_limit{domain="d",key1="a"} 2`, `total_hits{domain="d",key1="a"} 10`, `within_limit{domain="d",key1="a"} 10`,
		}},
		{"a refund counts nothing", []*pb.RateLimitRequest{request(refund(3, desc("a", "v")))}, nil},
		{"shadow", []*pb.RateLimitRequest{request(withHits(5, desc("shadow", "")))}, []string{
			`near_limit{domain="d",key1="shadow"} 1`, `over_limit{domain="d",key1="shadow"} 3`,
			`shadow_mode{domain="d",key1="shadow"} 3`, `total_hits{domain="d",key1="shadow"} 5`,
		}},
		{"deny all", []*pb.RateLimitRequest{request(desc("none", ""))}, []string{
			`over_limit{domain="d",key1="none"} 1`, `total_hits{domain="d",key1="none"} 1`,
		}},
		{"unlimited and unmatched count nothing", []*pb.RateLimitRequest{request(desc("free", "")), request(desc("x", ""))}, nil},
		{"replaced counts nothing", []*pb.RateLimitRequest{request(desc("replaced", ""), desc("replacing", ""))}, []string{
			`total_hits{domain="d",key1="replacing"} 1`, `within_limit{domain="d",key1="replacing"} 1`,
		}},
		{"dots of an address", []*pb.RateLimitRequest{request(desc("ip", "10.0.0.1"))}, []string{
			`total_hits{domain="d",key1="ip_10_0_0_1"} 1`, `within_limit{domain="d",key1="ip_10_0_0_1"} 1`,
		}},
		{"bytes of a detailed metric", []*pb.RateLimitRequest{request(desc("detailed", "a.b|c:d*\n e"))}, []string{
			`total_hits{domain="d",key1="detailed_a",key2="b_c_d*\n e"} 1`, `within_limit{domain="d",key1="detailed_a",key2="b_c_d*\n e"} 1`,
		}},
		{"empty value of a detailed metric", []*pb.RateLimitRequest{request(desc("detailed", ""))}, []string{
			`total_hits{domain="d",key1="detailed_"} 1`, `within_limit{domain="d",key1="detailed_"} 1`,
		}},
		{"wildcard", []*pb.RateLimitRequest{request(desc("wild", "x:1"))}, []string{
			`total_hits{domain="d",key1="wild_x_*"} 1`, `within_limit{domain="d",key1="wild_x_*"} 1`,
		}},
		{"keys after the second", []*pb.RateLimitRequest{request(desc("one", "q", "two", "v", "three", "z"))}, []string{
			`total_hits{domain="d",key1="one",key2="two_v"} 1`, `within_limit{domain="d",key1="one",key2="two_v"} 1`,
		}},
		{"override", []*pb.RateLimitRequest{request(withLimit(3, hour, nil, desc("a", "o")))}, []string{
			`total_hits{domain="d",key1="a_o"} 1`, `within_limit{domain="d",key1="a_o"} 1`,
		}},
		{"unknown domain", []*pb.RateLimitRequest{in("un.known", request(desc("a", ""), desc("b", "")))}, []string{
			`un_known_domain_not_found 2`,
		}},
		{"a bucket counts its burst", []*pb.RateLimitRequest{request(withHits(5, desc("bucket", ""))), request(withHits(2, desc("bucket", "")))}, []string{
			`near_limit{domain="d",key1="bucket"} 1`, `over_limit{domain="d",key1="bucket"} 2`,
			`total_hits{domain="d",key1="bucket"} 7`, `within_limit{domain="d",key1="bucket"} 5`,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var m *metrics.Metrics
			r := start(t, measuredRules, measure(t, &m))
			for _, req := range tt.send {
				r.call(req)
			}
			if diff := cmp.Diff(tt.want, counted(t, m, "ratelimit_service_rate_limit_")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCountsDecisions(t *testing.T) {
	var m *metrics.Metrics
	r := start(t, measuredRules, measure(t, &m))
	r.call(request(withHits(9, desc("a", ""))))
	r.call(request(withHits(9, desc("a", ""))))
	r.call(request(withHits(3, desc("shadow", ""))))
	r.call(request(withHits(5, desc("bucket", ""))))
	r.call(request(withLimit(0, hour, nil, desc("a", "o"))))
	got := counted(t, m, "rls_decisions_total", "rls_near", "rls_burst", "rls_retry_after_seconds_count",
		"rls_decision_duration_seconds_count", "rls_store_duration_seconds_count", "rls_store_up")
	if diff := cmp.Diff([]string{
		`rls_burst_exhausted_total{domain="d",rule="d.bucket",strategy="token_bucket"} 1`,
		`rls_decision_duration_seconds_count{result="ok"} 3`,
		`rls_decision_duration_seconds_count{result="over_limit"} 2`,
		`rls_decisions_total{decision="allowed",domain="d",limit="fixed_window 10 per hour",policy="counted",rule="d.a",strategy="fixed_window"} 1`,
		`rls_decisions_total{decision="allowed",domain="d",limit="token_bucket 10 per hour",policy="counted",rule="d.bucket",strategy="token_bucket"} 1`,
		`rls_decisions_total{decision="denied",domain="d",limit="fixed_window 10 per hour",policy="counted",rule="d.a",strategy="fixed_window"} 1`,
		`rls_decisions_total{decision="denied",domain="d",limit="fixed_window 10 per hour",policy="counted",rule="d.override",strategy="fixed_window"} 1`,
		`rls_decisions_total{decision="shadow",domain="d",limit="fixed_window 2 per hour",policy="counted",rule="d.shadow",strategy="fixed_window"} 1`,
		`rls_near_limit_total{domain="d",rule="d.a",strategy="fixed_window"} 1`,
		`rls_near_limit_total{domain="d",rule="d.bucket",strategy="token_bucket"} 1`,
		`rls_retry_after_seconds_count{strategy="fixed_window"} 3`,
		`rls_store_duration_seconds_count{backend="memory"} 5`,
		`rls_store_up{backend="memory"} 1`,
	}, got); diff != "" {
		t.Error(diff)
	}
}

func TestCountsHitsThatTheStoreDidNotDecide(t *testing.T) {
	var m *metrics.Metrics
	add := measure(t, &m)
	r := start(t, measuredRules, func(c *config) {
		c.Store = failing{c.Store}
		add(c)
	})
	if _, err := r.try(request(refund(5, desc("a", "")))); err == nil {
		t.Fatal("a store that is down has given back")
	}
	for range 2 {
		if _, err := r.try(request(withHits(3, desc("a", "")))); err == nil {
			t.Fatal("a store that is down has decided")
		}
	}
	if _, err := r.try(&pb.RateLimitRequest{Domain: "d"}); err == nil {
		t.Fatal("a request without descriptors was decided")
	}
	if diff := cmp.Diff([]string{
		`ratelimit_service_should_rate_limit_error{err_type="redis_error"} 3`,
		`ratelimit_service_should_rate_limit_error{err_type="service_error"} 1`,
		`rls_store_errors_total{backend="memory"} 3`,
		`rls_store_unanswered_hits_total{backend="memory"} 6`,
		`total_hits{domain="d",key1="a"} 6`,
	}, counted(t, m, "ratelimit_service", "rls_store_errors", "rls_store_unanswered", "rls_store_up")); diff != "" {
		t.Error(diff)
	}
}

// unsent is a store that is known to be away.
type unsent struct{ backends.Store }

func (unsent) Apply(_ context.Context, b *backends.Batch) error {
	return b.Fail(backends.NotSent(backends.ErrUnavailable))
}

// TestHitsThatWereNotSent are not charged, so they do not count as unanswered.
func TestHitsThatWereNotSent(t *testing.T) {
	var m *metrics.Metrics
	add := measure(t, &m)
	r := start(t, measuredRules, func(c *config) {
		c.Store = unsent{c.Store}
		add(c)
	})
	if _, err := r.try(request(withHits(3, desc("a", "")))); err == nil {
		t.Fatal("a store that is away has decided")
	}
	if diff := cmp.Diff([]string{`rls_store_errors_total{backend="memory"} 1`}, counted(t, m, "rls_store_errors", "rls_store_unanswered")); diff != "" {
		t.Error(diff)
	}
}

func TestCountsWhatShadowModeSpared(t *testing.T) {
	var m *metrics.Metrics
	r := start(t, measuredRules, measure(t, &m), func(c *config) { c.ShadowMode = true })
	r.call(request(desc("none", "")))
	r.call(request(desc("a", "")))
	if diff := cmp.Diff([]string{
		"ratelimit_service_global_shadow_mode 1",
		`rls_decisions_total{decision="shadow",domain="d",limit="fixed_window 0 per hour",policy="counted",rule="d.none",strategy="fixed_window"} 1`,
	}, counted(t, m, "ratelimit_service_global", `rls_decisions_total{decision="shadow"`)); diff != "" {
		t.Error(diff)
	}
}

// TestCountsGoOnAfterAReload: counts belong to the names of rules, so they go on
// when rules are loaded again.
func TestCountsGoOnAfterAReload(t *testing.T) {
	var m *metrics.Metrics
	r := start(t, measuredRules, measure(t, &m))
	r.call(request(desc("a", "")))
	r.load(strings.ReplaceAll(measuredRules, "requests_per_unit: 10", "requests_per_unit: 1"))
	r.call(request(desc("a", "")))
	if diff := cmp.Diff([]string{
		`over_limit{domain="d",key1="a"} 1`, `total_hits{domain="d",key1="a"} 2`, `within_limit{domain="d",key1="a"} 1`,
	}, counted(t, m, "ratelimit_service_rate_limit_")); diff != "" {
		t.Error(diff)
	}
}

// BenchmarkObserved is BenchmarkShouldRateLimit with one descriptor, with metrics
// and without.
func BenchmarkObserved(b *testing.B) {
	for _, observed := range []bool{false, true} {
		b.Run(map[bool]string{false: "off", true: "on"}[observed], func(b *testing.B) {
			var change []func(*config)
			var m *metrics.Metrics
			if observed {
				change = append(change, measure(b, &m))
			}
			r := start(b, strings.ReplaceAll(measuredRules, "requests_per_unit: 10", "requests_per_unit: 1000000000"), change...)
			requests := make([]*pb.RateLimitRequest, 10_000)
			for i := range requests {
				requests[i] = request(desc("a", "v"+strconv.Itoa(i)))
			}
			loop(b, r.service, requests)
		})
	}
}
