package metrics_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/near"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/top"
)

// withAll opens metrics that have every metric there is: TestDocs finds the missing ones.
func withAll(t *testing.T, o metrics.Options) *metrics.Metrics {
	m := open(t, o)
	m.Memory(func() int { return 0 }, func() uint64 { return 0 })
	m.State(func() time.Time { return time.Time{} }, func() uint64 { return 0 })
	m.Store(nil, "memory")
	m.Skipped()
	m.SourceGone()
	m.Connected()
	m.Called(method, time.Millisecond)
	m.Pool("redis_pool", connections(1, 2))
	m.Pool("redis_per_second_pool", connections(1, 2))
	watch := &breaker.Watch{}
	watch.Server("10.0.0.1:6379")
	m.Breakers("redis", []*breaker.Watch{watch})
	m.Leases(func() near.LeaseStats { return near.LeaseStats{} })
	m.Assigned(func() (int, int, map[string]float64) { return 1, 1, map[string]float64{"d.k": 1} }, func() uint64 { return 0 })
	m.Limited(func() []top.Row { return []top.Row{{Remaining: new(int64)}} }, false)
	m.LocalCache(func() near.CacheStats { return near.CacheStats{} })
	entry := descriptors.Entry{Key: "k"}
	m.Observer().Observe(allowed(rule(t, "- key: k\n  rate_limit: {unit: hour, requests_per_unit: 10, strategy: token_bucket, burst: 5, thresholds: [{at: 80%}]}\n", entry), entry))
	m.Observer().Observe(&service.Observation{Result: service.NoStore})
	settled := allowed(rule(t, "- key: id\n  rate_limit: {unit: hour, requests_per_unit: 10, reserve: true}\n", descriptors.Entry{Key: "id"}), descriptors.Entry{Key: "id"})
	for _, reservation := range []string{"held", "settled"} {
		settled.Verdicts[0].Account = &algorithms.Account{Reservation: reservation, Charged: 1, GivenBack: 1, Uncharged: 1, Cut: 1}
		settled.Accounts = []*service.Verdict{&settled.Verdicts[0]}
		m.Observer().Observe(settled)
	}
	return m
}

// What alerts count is there with 0 before the first request and the first error: the rate of a series
// that begins with 1 is 0.
func TestCountersOfAlertsAreThereFromTheStart(t *testing.T) {
	alerts, err := os.ReadFile("../../deploy/compose/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	counters := regexp.MustCompile(`\brls_\w+_(total|count|bucket)\b`).FindAllString(regexp.MustCompile(`description: .*`).ReplaceAllString(string(alerts), ""), -1)
	if len(counters) < 7 {
		t.Fatalf("the alerts have the counters %q", counters)
	}
	for _, name := range []string{"config_load_error", "config_load_success", "global_shadow_mode", `should_rate_limit_error{err_type="redis_error"}`, `should_rate_limit_error{err_type="service_error"}`} {
		counters = append(counters, "ratelimit_service_"+name)
	}
	m := open(t, metrics.Options{})
	m.Memory(func() int { return 0 }, func() uint64 { return 0 })
	m.Store(nil, "memory")
	for text := page(t, m); len(counters) > 0; counters = counters[1:] {
		if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(counters[0]) + `(\{.*\})? 0$`).MatchString(text) {
			t.Errorf("%s is not there", counters[0])
		}
	}
}

// Every metric is in docs/metrics.md, every metric there exists, and the names of
// our own follow Prometheus' rules.
func TestDocs(t *testing.T) {
	m := withAll(t, metrics.Options{NearLimitRatio: 1})
	doc, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	text, name := page(t, m), regexp.MustCompile(`(?m)^# TYPE (\S+)`)
	exists := map[string]bool{}
	for _, found := range name.FindAllStringSubmatch(text, -1) {
		exists[found[1]] = true
		if !strings.HasPrefix(found[1], "go_") && !strings.HasPrefix(found[1], "process_") && !strings.Contains(string(doc), "`"+found[1]+"`") {
			t.Errorf("docs/metrics.md does not have %s", found[1])
		}
	}
	named := regexp.MustCompile("`((?:rls|ratelimit_redis|ratelimit_localcache)_[a-zA-Z_]+)`").FindAllStringSubmatch(string(doc), -1)
	if len(named) < 30 {
		t.Errorf("docs/metrics.md has only %d metrics", len(named))
	}
	for _, found := range named {
		if !exists[found[1]] {
			t.Errorf("docs/metrics.md has %s, which does not exist", found[1])
		}
	}

	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "rls_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}
