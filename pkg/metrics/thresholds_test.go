package metrics_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/service"
)

const warning = "- key: k\n  rate_limit: {unit: hour, requests_per_unit: 10, STRATEGYthresholds: [{at: 50%}, {at: 80%}]}\n"

// reached is a request of a value that reaches a threshold of the rule, at a second, with that
// much left of a window.
func reached(r *descriptors.Rule, value string, threshold int, second float64, left time.Duration) *service.Observation {
	o := allowed(r, descriptors.Entry{Key: "k", Value: value})
	o.At = int64(second * 1e6)
	v := &o.Verdicts[0]
	v.Reached, v.Is.Remaining, v.Is.Reset = &r.Limits[0].Thresholds[threshold], 2, left
	return o
}

// Thresholds of a rule are counted from its first request on, those of overrides beside them.
func TestThresholdsAreCounted(t *testing.T) {
	r := newRules(t, 100)
	r.put(strings.Replace(warning, "STRATEGY", "", 1))
	rule := r.tree.Domain("d").Match([]descriptors.Entry{{Key: "k", Value: "v"}})
	observer := r.metrics.Observer()
	observer.Observe(allowed(rule, descriptors.Entry{Key: "k", Value: "v"}))
	serves(t, r.metrics, `rls_threshold_reached_total{at="50%",rule="d.k"} 0`, `rls_threshold_reached_total{at="80%",rule="d.k"} 0`)
	observer.Observe(reached(rule, "v", 1, 0, 0))
	observer.Observe(reached(rule, "v", 1, 0, 0))
	for range 2 { // each request brings a limit of its own
		brought, err := rule.Main().Override(5, descriptors.Hour, 1)
		if err != nil {
			t.Fatal(err)
		}
		o := reached(rule, "v", 0, 0, 0)
		o.Verdicts[0].Override, o.Verdicts[0].Limit = true, &brought
		observer.Observe(o)
	}
	serves(t, r.metrics, `rls_threshold_reached_total{at="50%",rule="d.k"} 0`, `rls_threshold_reached_total{at="80%",rule="d.k"} 2`,
		`rls_threshold_reached_total{at="50%",rule="d.override"} 2`)
}

func TestThresholdLog(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	r := rule(t, strings.Replace(warning, "STRATEGY", "", 1), descriptors.Entry{Key: "k"})
	hashed, clear := metrics.NewDecisionLog(metrics.LogOptions{Thresholds: true, Log: log}), metrics.NewDecisionLog(metrics.LogOptions{Thresholds: true, Entries: true, Log: log})
	hashed.Observe(reached(r, "ann", 0, 0, time.Hour))
	hashed.Observe(allowed(r, descriptors.Entry{Key: "k", Value: "ann"}))
	shadow := reached(r, "ann", 1, 0, time.Hour)
	shadow.Verdicts[0].Shadow = true
	clear.Observe(shadow) // the first hit above both
	const line = `level=INFO msg=threshold domain=d %s rule=d.k limit="fixed_window 10 per hour" at=%s remaining=2 policy=counted%s` + "\n"
	want := fmt.Sprintf(line, "key=9e1a2a1d6cbff2b0", "50%", "") + fmt.Sprintf(line, "entries=[k_ann]", "50%", " shadow=true") + fmt.Sprintf(line, "entries=[k_ann]", "80%", " shadow=true")
	if got := regexp.MustCompile(`time=\S+ `).ReplaceAllString(out.String(), ""); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A month of the calendar is longer than the Window of its limit.
func TestFirstThresholdsOfALongMonth(t *testing.T) {
	var out bytes.Buffer
	r := rule(t, "- key: k\n  rate_limit: {unit: month, requests_per_unit: 10, window: calendar, thresholds: [{at: 50%}]}\n", descriptors.Entry{Key: "k"})
	log := metrics.NewDecisionLog(metrics.LogOptions{Thresholds: true, Entries: true, Log: slog.New(slog.NewTextHandler(&out, nil))})
	for second := range 3 {
		log.Observe(reached(r, "ann", 0, float64(second), 31*24*time.Hour-time.Duration(second)*time.Second))
	}
	if n := strings.Count(out.String(), "\n"); n != 1 {
		t.Errorf("%d lines in a month of 31 days", n)
	}
}

// Each key has one line for each threshold in a window: of a fixed window until it ends, of
// others as long as a window from the line on. The lines of a minute, and the keys that are
// remembered, are bounded.
func TestFirstThresholds(t *testing.T) {
	var out bytes.Buffer
	for _, tt := range []struct {
		strategy string
		steps    []float64 // seconds; the fixed windows begin at 0 and 3600
		logged   []bool
	}{
		{"", []float64{100, 200, 3599, 3600, 3700, 7300}, []bool{true, false, false, true, false, true}},
		{"strategy: token_bucket, ", []float64{100, 200, 3600, 3699, 3700, 3701, 10}, []bool{true, false, false, false, true, false, true}},
	} {
		r := rule(t, strings.Replace(warning, "STRATEGY", tt.strategy, 1), descriptors.Entry{Key: "k"})
		log := metrics.NewDecisionLog(metrics.LogOptions{Thresholds: true, Entries: true, Log: slog.New(slog.NewTextHandler(&out, nil))})
		lines := func(value string, threshold int, second float64) int {
			out.Reset()
			left := time.Hour - time.Duration(second*1e9)%time.Hour
			log.Observe(reached(r, value, threshold, second, left))
			return strings.Count(out.String(), "\n")
		}
		for i, second := range tt.steps {
			if got := lines("ann", 0, second); got == 1 != tt.logged[i] {
				t.Errorf("%sat %v: %d lines", tt.strategy, second, got)
			}
		}
		if got := lines("ann", 1, tt.steps[len(tt.steps)-1]); got != 1 {
			t.Errorf("%sthe threshold above: %d lines", tt.strategy, got)
		}
		n := 0
		for minute := range 12 {
			for i := range 10_100 {
				n += lines(fmt.Sprint(minute, i), 0, float64(20_000+60*minute))
			}
		}
		if n != 120_000 {
			t.Errorf("%s%d lines in 12 minutes, want 10,000 in each", tt.strategy, n)
		}
		if again := lines("2 100", 0, 20_000+60*12); again != 0 {
			t.Errorf("%sone of the last 100,000 lines was forgotten", tt.strategy)
		}
	}
}
