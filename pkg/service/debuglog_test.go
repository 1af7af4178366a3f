package service_test

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/service"
)

// lines returns the lines of a log so far, as JSON without the time and the duration.
func lines(t *testing.T, log *testenv.Log) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(log.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		delete(fields, "time")
		delete(fields, "microseconds")
		all = append(all, fields)
	}
	return all
}

func debugged(to *testenv.Log, perSecond int) func(*config) {
	log := slog.New(slog.NewJSONHandler(to, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return func(c *config) {
		c.Observers = []service.Observer{metrics.NewDecisionLog(metrics.LogOptions{Requests: perSecond, Log: log})}
	}
}

// Each request has a line with its descriptors, the decision of each limit, and the
// answer or the error.
func TestDebugLog(t *testing.T) {
	var log testenv.Log
	r := start(t, measuredRules, debugged(&log, 1000))
	r.call(request(desc("a", "alice"), desc("x", "1", "y", "")))
	r.call(request(withHits(11, desc("a", "bob"))))
	r.call(request(withHits(3, desc("shadow", ""))))
	r.call(request(withLimit(5, hour, nil, desc("a", "eve"))))
	if _, err := r.try(request()); err == nil {
		t.Fatal("a request without descriptors is answered")
	}
	line := func(result, descriptors, decisions string) map[string]any {
		return map[string]any{"level": "DEBUG", "msg": "request", "domain": "d", "result": result, "descriptors": descriptors, "decisions": decisions}
	}
	refused := line("refused", "", "")
	refused["error"] = "rate limit descriptor list must not be empty; set the field descriptors to at least one descriptor"
	want := []map[string]any{
		line("OK", "a=alice; x=1,y", "a=alice: allowed by d.a (fixed_window, limit 10, remaining 9)"),
		line("OVER_LIMIT", "a=bob", "a=bob: denied by d.a (fixed_window, limit 10, remaining 0)"),
		line("OK", "shadow", "shadow: shadow by d.shadow (fixed_window, limit 2, remaining 0)"),
		line("OK", "a=eve", "a=eve: allowed by d.override (fixed_window, limit 5, remaining 4)"),
		refused,
	}
	if diff := cmp.Diff(want, lines(t, &log)); diff != "" {
		t.Error(diff)
	}
}

// Of many requests in a second only the first ones are logged.
func TestDebugLogIsSampled(t *testing.T) {
	var log testenv.Log
	r := start(t, measuredRules, debugged(&log, 3))
	const requests = 200 // at most a few seconds' worth
	for range requests {
		r.call(request(desc("a", "alice")))
	}
	if n := len(lines(t, &log)); n < 3 || n > requests/4 {
		t.Errorf("%d of %d requests are logged", n, requests)
	}
}
