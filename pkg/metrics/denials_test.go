package metrics_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/service"
)

// deniedAt is a denied request for a value, at a second.
func deniedAt(r *descriptors.Rule, value string, second float64) *service.Observation {
	o := allowed(r, descriptors.Entry{Key: "k", Value: value})
	o.Result, o.At = service.Limited, int64(second*1e6)
	o.Verdicts[0].Is = algorithms.Decision{RetryAfter: 1500 * time.Millisecond}
	return o
}

func TestDenialLog(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	r := rule(t, perHour, descriptors.Entry{Key: "k"})
	o := deniedAt(r, "ann", 0)
	all := metrics.NewDecisionLog(metrics.LogOptions{Denials: "all", Log: log})
	all.Observe(o)
	all.Observe(o)
	all.Observe(allowed(r, descriptors.Entry{Key: "k", Value: "ann"}))
	failed := deniedAt(r, "ann", 0)
	failed.Result = service.NoStore
	all.Observe(failed)
	clear := metrics.NewDecisionLog(metrics.LogOptions{Denials: "all", Values: service.NewValueHash([]byte("a secret")), Entries: true, Log: log})
	o.Verdicts[0].Shadow, o.Verdicts[0].Override, o.Verdicts[0].Rule = true, true, nil
	clear.Observe(o)
	lines := strings.Split(regexp.MustCompile(`time=\S+ `).ReplaceAllString(out.String(), ""), "\n")
	hashed := `level=INFO msg=denied domain=d key=9e1a2a1d6cbff2b0 rule=d.k limit="fixed_window 10 per hour" retry_after=1.5 policy=counted`
	for i, want := range []string{hashed, hashed, `level=INFO msg=denied domain=d entries=[k_ann] rule=d.override limit=override retry_after=1.5 policy=counted shadow=true`, ""} {
		if len(lines) != 4 || lines[i] != want {
			t.Errorf("got\n%s\nwant %s", strings.Join(lines, "\n"), want)
			break
		}
	}
}

// The first denial of each counter in a minute is logged, of a bounded number of counters.
func TestFirstDenials(t *testing.T) {
	var out bytes.Buffer
	log := metrics.NewDecisionLog(metrics.LogOptions{Denials: "first", Entries: true, Log: slog.New(slog.NewTextHandler(&out, nil))})
	r := rule(t, "- key: k\n  rate_limits:\n    - {unit: second, requests_per_unit: 5}\n    - {unit: hour, requests_per_unit: 10}\n", descriptors.Entry{Key: "k"})
	logged := func(value string, limit int, second float64) bool {
		t.Helper()
		out.Reset()
		o := deniedAt(r, value, second)
		o.Verdicts[0].Limit = &r.Limits[limit]
		log.Observe(o)
		return out.Len() > 0
	}
	for i, step := range []struct {
		value  string
		limit  int
		second float64
		want   bool
	}{
		{"ann", 0, 1000, true},
		{"ann", 0, 1000, false},
		{"ann", 1, 1001, true}, // another counter of the same caller
		{"bob", 0, 1002, true},
		{"ann", 0, 1059.9, false},
		{"ann", 0, 1060, true},
		{"bob", 0, 1061, false},
		{"ann", 0, 1119, false},
		{"bob", 0, 1119, true},
		{"bob", 0, 1178, false},
		{"bob", 0, 1300, true},
		{"bob", 0, 1, true}, // the store's clock was set back
		{"bob", 0, 2, false},
	} {
		if got := logged(step.value, step.limit, step.second); got != step.want {
			t.Errorf("step %d, %s at %v: logged: %t", i, step.value, step.second, got)
		}
	}
	lines := 0
	for i := range 20_000 {
		if logged(fmt.Sprint(i), 0, 5000) {
			lines++
		}
	}
	if lines != 10_000 {
		t.Errorf("%d lines in a second, want 10,000", lines)
	}
	if !logged("ann", 0, 5060) {
		t.Error("nothing is logged a minute after the crowd")
	}
}
