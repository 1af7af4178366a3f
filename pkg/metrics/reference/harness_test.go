package reference_test

import (
	"io"
	"net/http"
	"net/http/httptest"
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

const method = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

// rule loads the rules of a domain d and returns the rule that the entries match.
func rule(t testing.TB, text string, entries ...descriptors.Entry) *descriptors.Rule {
	t.Helper()
	tree, _, err := yaml.Load([]yaml.Text{{Name: "r.yaml", Content: []byte("domain: d\ndescriptors:\n" + text)}}, yaml.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := tree.Domain("d").Match(entries)
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

// serves expects lines of /metrics.
func serves(t testing.TB, m *metrics.Metrics, lines ...string) {
	t.Helper()
	text := page(t, m)
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("no %s in\n%s", line, text)
		}
	}
}

func open(t testing.TB, o metrics.Options) *metrics.Metrics {
	t.Helper()
	m, err := metrics.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// connections is a pool.
func connections(open, opened int64) func() (int64, int64) {
	return func() (int64, int64) { return open, opened }
}
