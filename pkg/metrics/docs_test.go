package metrics_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/near"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/service"
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
	m.Limited(func(tell metrics.TellKey) { tell("", "", 0, new(int64)) })
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

// metricsDoc is the document whose end, from the mark on, this test writes.
const (
	metricsDoc = "../../docs/metrics.md"
	mark       = "<!-- From here on written by go test ./pkg/metrics -update: change the help texts in pkg/metrics instead. -->\n"
)

// Every metric is once in the tables of docs/metrics.md, as it is served, and nothing else is; the names
// of our own follow Prometheus' rules.
func TestDocs(t *testing.T) {
	m := withAll(t, metrics.Options{NearLimitRatio: 0.8, MaxSeries: 100})
	m.Observer().Observe(&service.Observation{Domain: "DOMAIN", Unknown: true, Descriptors: 1})
	entries := []descriptors.Entry{{Key: "a"}, {Key: "b"}}
	both := rule(t, "- key: a\n  descriptors:\n    - key: b\n      rate_limit: {unit: hour, requests_per_unit: 10}\n", entries...)
	near := allowed(both, entries...)
	near.Verdicts[0].After = 10
	m.Observer().Observe(near)
	over := allowed(both, entries...)
	over.Verdicts[0].Is.Allowed, over.Verdicts[0].Recalled, over.Verdicts[0].Shadow = false, true, true
	m.Observer().Observe(over)
	text := page(t, m)
	guide, _, found := strings.Cut(testenv.Read(t, metricsDoc), mark)
	if !found {
		t.Fatalf("%s has lost the line %s", metricsDoc, mark)
	}
	want := tables(t, text)
	testenv.Golden(t, metricsDoc, guide+mark+want, "pkg/metrics")
	for _, of := range regexp.MustCompile(`"(rls_\w+)"`).FindAllStringSubmatch(testenv.Read(t, "own.go"), -1) {
		if n := strings.Count(want, "| `"+of[1]+"` |"); n != 1 {
			t.Errorf("own.go has %s, and the table has it %d times; withAll must have each metric", of[1], n)
		}
	}
	for _, of := range regexp.MustCompile("`((?:rls|ratelimit)_[a-zA-Z_]+)`").FindAllStringSubmatch(guide, -1) {
		if !strings.Contains(want, "| `"+of[1]+"` |") {
			t.Errorf("the guide of %s has %s, which does not exist", metricsDoc, of[1])
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

// tables are the metrics of a page of metrics, but for those of Go and of the process.
func tables(t *testing.T, text string) string {
	var b strings.Builder
	help, rows := map[string]string{}, 0
	for _, set := range []struct{ prefix, heading string }{{"ratelimit_", "envoyproxy/ratelimit's metrics"}, {"rls_", "Our own"}} {
		fmt.Fprintf(&b, "\n## %s\n\n| name | type, labels | meaning |\n|---|---|---|\n", set.heading)
		for _, found := range regexp.MustCompile(`(?m)^# (HELP|TYPE) (`+set.prefix+`\S+) (.*)$`).FindAllStringSubmatch(text, -1) {
			name, said := found[2], found[3]
			if found[1] == "HELP" {
				help[name] = said
				continue
			}
			if labels := labelsOf(text, name); labels != "" {
				said += " `" + labels + "`"
			}
			shown := strings.NewReplacer("_d_a_b_over", "_<domain>_<key>_over", "DOMAIN", "<domain>").Replace(name)
			if n := len(strings.Fields(help[name])); n == 0 || n > 30 || strings.Contains(help[name], "A statistic of") {
				t.Errorf("%s: the help text %q has %d words, want 1 to 30 of its own", name, help[name], n)
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", shown, said, help[name])
			rows++
		}
	}
	if rows < 60 {
		t.Errorf("only %d metrics found", rows)
	}
	return b.String()
}

// labelsOf are the names of the labels that the series of a metric have.
func labelsOf(text, name string) string {
	var labels []string
	for _, series := range regexp.MustCompile(`(?m)^`+name+`(?:_count)?\{(.*)\} `).FindAllStringSubmatch(text, -1) {
		for _, label := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(series[1], -1) {
			if !slices.Contains(labels, label[1]) {
				labels = append(labels, label[1])
			}
		}
	}
	return strings.Join(labels, ",")
}
