package metrics_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/metrics"
)

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

func TestMetrics(t *testing.T) {
	m := open(t, metrics.Options{})
	keys, evicted := 0, uint64(0)
	m.Memory(func() int { return keys }, func() uint64 { return evicted })
	// Series exist before anything happens, so that the first error is an increase
	// and not a new series.
	serves(t, m,
		"rls_panics_total 0", `rls_requests_total{code="OK"} 0`, `rls_requests_total{code="Unauthenticated"} 0`,
		`rls_config_loads_total{result="success"} 0`, `rls_config_loads_total{result="error"} 0`, "rls_config_refused 0",
		"rls_store_clock_errors_total 0", "rls_store_keys 0", "rls_memory_evictions_total 0")

	m.Panicked()
	m.Answered(codes.OK)
	m.Answered(codes.OK)
	m.Answered(codes.Code(4711)) // a service may return codes of its own
	m.Loaded(nil)
	m.Loaded(errors.New("bad"))
	m.ClockError(errors.New("bad"))
	keys, evicted = 5, 6
	serves(t, m,
		"rls_panics_total 1", `rls_requests_total{code="OK"} 2`, `rls_requests_total{code="Unknown"} 1`,
		`rls_config_loads_total{result="success"} 1`, `rls_config_loads_total{result="error"} 1`, "rls_config_refused 1",
		"rls_store_clock_errors_total 1", "rls_store_keys 5", "rls_memory_evictions_total 6")
	m.Loaded(nil)
	serves(t, m, "rls_config_refused 0")
}

// A limit so large that single precision rounds it up is not near before it is
// reached, and a denial that crosses it does not wrap below zero.
func TestNearLimitOfLargeLimits(t *testing.T) {
	const limit = 1<<24 + 3 // 16777220 in single precision
	m := open(t, metrics.Options{NearLimitRatio: 1})
	entry := descriptors.Entry{Key: "k"}
	r := rule(t, fmt.Sprintf("- key: k\n  rate_limit: {unit: hour, requests_per_unit: %d}\n", limit), entry)
	o := allowed(r, entry)
	o.Verdicts[0].Hits, o.Verdicts[0].After = 2, limit+1
	o.Verdicts[0].Is = algorithms.Decision{}
	m.Observer().Observe(o)
	got := page(t, m)
	if want := `ratelimit_service_rate_limit_over_limit{domain="d",key1="k"} 1` + "\n"; !strings.Contains(got, want) {
		t.Errorf("no %s", want)
	}
	if strings.Contains(got, "ratelimit_service_rate_limit_near_limit{") {
		t.Errorf("near_limit counts without a hit near the limit:\n%s", got)
	}
}
