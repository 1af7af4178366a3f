package metrics_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/yaml"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/service"
)

// Rules of the key k, whose second counts by the caller's value.
const (
	perHour  = "- key: k\n  rate_limit: {unit: hour, requests_per_unit: 10}\n"
	detailed = "- key: k\n  detailed_metric: true\n  rate_limit: {unit: hour, requests_per_unit: 10}\n"
)

// tree loads the rules of a domain d.
func tree(t testing.TB, text string) *descriptors.Tree {
	t.Helper()
	tree, _, err := yaml.Load([]yaml.Text{{Name: "r.yaml", Content: []byte("domain: d\ndescriptors:\n" + text)}}, yaml.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// rule loads the rules of a domain d and returns the rule that the entries match.
func rule(t testing.TB, text string, entries ...descriptors.Entry) *descriptors.Rule {
	t.Helper()
	r := tree(t, text).Domain("d").Match(entries)
	if r == nil {
		t.Fatalf("no rule for %v", entries)
	}
	return r
}

// allowed is a request with one verdict, which the rule's first limit gave.
func allowed(r *descriptors.Rule, entries ...descriptors.Entry) *service.Observation {
	return &service.Observation{Domain: "d", Descriptors: 1, Took: 42 * time.Microsecond, Verdicts: []service.Verdict{{
		Rule: r, Limit: &r.Limits[0], Entries: entries, Hits: 1, Decided: true, Counted: true,
		Is: algorithms.Decision{Allowed: true, Remaining: 9}, After: 1, All: true,
	}}}
}

func page(t testing.TB, m *metrics.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	body, err := io.ReadAll(w.Body)
	if err != nil || w.Code != 200 {
		t.Fatalf("%d %v\n%s", w.Code, err, body)
	}
	return string(body)
}

func heap() uint64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// Whatever names callers make up, memory and /metrics stay small, and names
// without series of their own are counted as other.
func TestCallersCannotGrowMemory(t *testing.T) {
	const domains, values = 200_000, 1_000_000
	m := open(t, metrics.Options{MaxSeries: 10_000, NearLimitRatio: 0})
	o := m.Observer()
	r := rule(t, detailed, descriptors.Entry{Key: "k", Value: "v"})
	long := strings.Repeat("x", 230) // just short enough for a series
	before := heap()
	o.Observe(&service.Observation{Domain: strings.Repeat("x", 1000), Unknown: true, Descriptors: 1}) // too long for a series
	for i := range domains {
		o.Observe(&service.Observation{Domain: long + strconv.Itoa(i), Unknown: true, Descriptors: 1})
	}
	for i := range values {
		o.Observe(allowed(r, descriptors.Entry{Key: "k", Value: strconv.Itoa(i)}))
	}
	if after := heap(); after > before+64<<20 {
		t.Errorf("%d MiB more than before", (after-before)>>20)
	}
	all := page(t, m)
	if len(all) > 5_000_000 {
		t.Errorf("/metrics has %d bytes", len(all))
	}
	serves(t, m,
		"ratelimit_service_rate_limit_other_domain_not_found 199168",
		`ratelimit_service_rate_limit_total_hits{domain="d",key1="other"} 1e+06`,
		"rls_series_overflow_total 1.199168e+06",
		`rls_decisions_total{decision="allowed",domain="d",limit="fixed_window 10 per hour",policy="counted",rule="d.k",strategy="fixed_window"} 1e+06`)
}

// /metrics is bounded also when each name has all counters and its characters are
// escaped, which doubles its length.
func TestCostlyNames(t *testing.T) {
	for _, length := range []int{100, 120, 125, 240, 250, 1000, 1100} {
		m := open(t, metrics.Options{MaxSeries: 10_000})
		entry := descriptors.Entry{Key: "k"}
		r := rule(t, "- key: k\n  detailed_metric: true\n  shadow_mode: true\n  rate_limit: {unit: hour, requests_per_unit: 10}\n", entry)
		for i := range 2000 {
			o := allowed(r, descriptors.Entry{Key: "k", Value: fmt.Sprintf("%0*d", length-len("d.k_"), i)})
			o.Verdicts[0].Entries[0].Value = strings.ReplaceAll(o.Verdicts[0].Entries[0].Value, "0", `"`)
			m.Observer().Observe(o)
			o.Verdicts[0].Is.Allowed, o.Verdicts[0].Recalled, o.Verdicts[0].Shadow = false, true, true
			m.Observer().Observe(o)
		}
		if all := page(t, m); len(all) > 5_000_000 {
			t.Errorf("names of %d bytes: /metrics has %d bytes", length, len(all))
		}
	}
}

// Envoy Gateway's keys name a route twice, in the key and in the value. Each key has a
// series of its own, under the name of envoyproxy/ratelimit up to 1,024 bytes.
func TestLongKeysHaveTheirSeries(t *testing.T) {
	m := open(t, metrics.Options{MaxSeries: 10_000, NearLimitRatio: 1})
	r := rule(t, perHour, descriptors.Entry{Key: "k"})
	hit := func(entries ...descriptors.Entry) string {
		o := allowed(r, entries...)
		o.Verdicts[0].Override = true
		m.Observer().Observe(o)
		return entries[0].Key + "_" + entries[0].Value
	}
	route := "httproute/default/" + strings.Repeat("r", 253) + "/rule/0/match/-1/"
	short := hit(descriptors.Entry{Key: route + "0", Value: route + "0"})
	long := route + strings.Repeat("h", 700)
	for _, end := range "abb" {
		hit(descriptors.Entry{Key: long, Value: long + string(end)})
	}
	text := page(t, m)
	hits := map[string]string{}
	for _, found := range regexp.MustCompile(`rate_limit_total_hits{domain="d",key1="(.*)"} (.*)`).FindAllStringSubmatch(text, -1) {
		hits[found[2]] += found[1]
	}
	cut := regexp.MustCompile("^" + long + "_httproute/[^ ]*_[0-9a-f]{16}$")
	if hits["1"] == "" || !strings.Contains(hits["1"], short) || !cut.MatchString(hits["2"]) || len("d."+hits["2"]) > 1024 {
		t.Errorf("got %v", hits)
	}
	serves(t, m, "rls_series_overflow_total 0")
}

// A name without a caller's bytes always has its series.
func TestRulesAlwaysHaveTheirSeries(t *testing.T) {
	m := open(t, metrics.Options{MaxSeries: 0})
	entry := descriptors.Entry{Key: "k", Value: "v"}
	r := rule(t, perHour, entry)
	m.Observer().Observe(allowed(r, entry))
	serves(t, m, `ratelimit_service_rate_limit_total_hits{domain="d",key1="k"} 1`)
}

func TestObservingAllocatesNothing(t *testing.T) {
	o := open(t, metrics.Options{}).Observer()
	entry := descriptors.Entry{Key: "k"}
	seen := allowed(rule(t, perHour, entry), entry)
	if n := testing.AllocsPerRun(1000, func() { o.Observe(seen) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
