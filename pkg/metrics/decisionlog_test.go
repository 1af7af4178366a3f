package metrics_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/service"
)

func TestDecisionLog(t *testing.T) {
	var out bytes.Buffer
	log := metrics.NewDecisionLog(metrics.LogOptions{Share: 1, Backend: "redis", Log: slog.New(slog.NewJSONHandler(&out, nil))})
	entry := descriptors.Entry{Key: "k", Value: "x\" rule=forged\n{\"msg\":\"decision\"}"}
	r := rule(t, perHour, entry)
	o := allowed(r, entry)
	log.Observe(o)
	o.Verdicts[0].Is = algorithms.Decision{RetryAfter: 1500 * time.Millisecond, Remaining: 3}
	log.Observe(o)
	o.Verdicts[0].Shadow, o.Verdicts[0].Override, o.Verdicts[0].Rule = true, true, nil
	log.Observe(o)
	limit := *o.Verdicts[0].Limit
	limit.OnError = descriptors.PolicyLocal
	o.Verdicts[0].Limit, o.Verdicts[0].Counted = &limit, false
	log.Observe(o)
	o.Verdicts[0].Decided = false
	log.Observe(o)

	var got []map[string]any
	for line := range strings.Lines(out.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		delete(fields, "time")
		got = append(got, fields)
	}
	line := func(decision, rule, limit, policy string, remaining, retryAfter float64) map[string]any {
		return map[string]any{
			"level": "INFO", "msg": "decision", "decision": decision, "rule": rule, "key": "546b3ba21cc44284", "strategy": "fixed_window",
			"hits": 1., "limit": limit, "requests_per_unit": 10., "remaining": remaining, "retry_after": retryAfter, "policy": policy, "backend": "redis", "microseconds": 42.,
		}
	}
	const hourly = "fixed_window 10 per hour"
	want := []map[string]any{
		line("allowed", "d.k", hourly, "counted", 9, 0), line("denied", "d.k", hourly, "counted", 0, 1.5),
		line("shadow", "d.override", "override", "counted", 0, 1.5), line("shadow", "d.override", "override", "local", 0, 1.5),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if strings.Contains(out.String(), "forged") {
		t.Errorf("the caller's bytes are in the log:\n%s", out.String())
	}
}

func TestDecisionLogIsSampled(t *testing.T) {
	var out bytes.Buffer
	log := metrics.NewDecisionLog(metrics.LogOptions{Share: 0.1, Backend: "memory", Log: slog.New(slog.NewTextHandler(&out, nil))})
	entry := descriptors.Entry{Key: "k"}
	o := allowed(rule(t, perHour, entry), entry)
	for range 10_000 {
		log.Observe(o)
	}
	// 1000 ± ten standard deviations.
	if n := strings.Count(out.String(), "\n"); n < 700 || n > 1300 {
		t.Errorf("%d of 10,000 decisions were logged, want a tenth", n)
	}
}

// TestDecisionLogWithASecret: the hash of a caller depends on the secret.
func TestDecisionLogWithASecret(t *testing.T) {
	entry := descriptors.Entry{Key: "k", Value: "alice"}
	o := allowed(rule(t, perHour, entry), entry)
	keys := map[string]bool{}
	for _, secret := range []string{"", "sixteen bytes or more", "another secret of the kind", "sixteen bytes or more"} {
		var out bytes.Buffer
		metrics.NewDecisionLog(metrics.LogOptions{Share: 1, Backend: "redis", Values: service.NewValueHash([]byte(secret)), Log: slog.New(slog.NewTextHandler(&out, nil))}).Observe(o)
		_, key, found := strings.Cut(out.String(), " key=")
		if key, _, _ = strings.Cut(key, " "); !found || len(key) != 16 {
			t.Errorf("no key of 16 digits: %s", out.String())
		}
		keys[key] = true
	}
	if len(keys) != 3 {
		t.Errorf("three secrets, hashes %v", keys)
	}
}

// TestDecisionLogWithEntries: the entries stand in the first line of a descriptor.
func TestDecisionLogWithEntries(t *testing.T) {
	var out bytes.Buffer
	log := metrics.NewDecisionLog(metrics.LogOptions{Share: 1, Backend: "redis", Entries: true, Log: slog.New(slog.NewJSONHandler(&out, nil))})
	entry := descriptors.Entry{Key: "k", Value: "a,\n\"b"}
	o := allowed(rule(t, perHour, entry), entry)
	second := o.Verdicts[0]
	o.Verdicts = append(o.Verdicts, second)
	log.Observe(o)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	want := `"domain":"d","entries":[{"key":"k","value":"a,\n\"b"}],`
	if len(lines) != 2 || !strings.Contains(lines[0], want) || strings.Contains(lines[1], "entries") {
		t.Errorf("got\n%s", out.String())
	}
}
