package metrics_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/metrics"
)

// everyLimit counts a request that all limits of the rule of k allow.
func (r *rules) everyLimit() {
	entry := descriptors.Entry{Key: "k", Value: "v"}
	rule := r.tree.Domain("d").Match([]descriptors.Entry{entry})
	o := allowed(rule, entry)
	for i := 1; i < len(rule.Limits); i++ {
		v := o.Verdicts[0]
		v.Limit = &rule.Limits[i]
		o.Verdicts = append(o.Verdicts, v)
	}
	r.metrics.Observer().Observe(o)
}

// titles are the series of allowed decisions, from the label limit on.
func (r *rules) titles() (all []string) {
	for line := range strings.Lines(page(r.t, r.metrics)) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), `rls_decisions_total{decision="allowed",domain="d",limit=`); ok {
			all = append(all, strings.ReplaceAll(text, `policy="counted",`, ""))
		}
	}
	slices.Sort(all)
	return all
}

func (r *rules) wantTitles(when string, want ...string) {
	r.t.Helper()
	if diff := cmp.Diff(want, r.titles()); diff != "" {
		r.t.Errorf("%s: %s", when, diff)
	}
}

const several = `- key: k
  rate_limits:
    - {unit: hour, unit_multiplier: 2, requests_per_unit: 20}
    - {unit: second, requests_per_unit: 5}
    - {name: per-day, unit: day, requests_per_unit: 100, strategy: token_bucket}
`

// The limits of one rule are told apart by their names, or else by their rates. What is
// counted by strategy has one series for all of them.
func TestLimitsOfARuleAreToldApart(t *testing.T) {
	r := newRules(t, 100)
	r.put(several)
	r.everyLimit()
	r.wantTitles("three limits",
		`"fixed_window 20 per 2 hours",rule="d.k",strategy="fixed_window"} 1`,
		`"fixed_window 5 per second",rule="d.k",strategy="fixed_window"} 1`,
		`"per-day",rule="d.k",strategy="token_bucket"} 1`)
	serves(t, r.metrics, `rls_near_limit_total{domain="d",rule="d.k",strategy="fixed_window"} 0`)
}

// Limits of one rule whose titles are the same are counted as one, whatever the titles are made of.
func TestLimitsOfOneTitleAreCountedAsOne(t *testing.T) {
	r := newRules(t, 100)
	r.put("- key: k\n  rate_limits:\n    - {unit: second, requests_per_unit: 5}\n    - {name: fixed_window 5 per second, unit: hour, requests_per_unit: 10}\n")
	r.everyLimit()
	r.wantTitles("a name like a rate", `"fixed_window 5 per second",rule="d.k",strategy="fixed_window"} 2`)
}

// A limit that changes is another one. Its old counts are kept for an hour, also those of
// overrides, and those of the others as long as their rule.
func TestLimitsThatAreGoneAreForgotten(t *testing.T) {
	r := newRules(t, 100)
	override := func() {
		entry := descriptors.Entry{Key: "k", Value: "v"}
		o := allowed(r.tree.Domain("d").Match([]descriptors.Entry{entry}), entry)
		own := *o.Verdicts[0].Limit
		o.Verdicts[0].Limit, o.Verdicts[0].Override = &own, true
		r.metrics.Observer().Observe(o)
	}
	r.put(several)
	r.everyLimit()
	override()
	override()
	old := []string{
		`"fixed_window 20 per 2 hours",rule="d.k",strategy="fixed_window"} 1`,
		`"fixed_window 20 per 2 hours",rule="d.override",strategy="fixed_window"} 2`,
	}
	raised := []string{
		`"fixed_window 30 per 2 hours",rule="d.k",strategy="fixed_window"} 1`,
		`"fixed_window 30 per 2 hours",rule="d.override",strategy="fixed_window"} 1`,
	}
	stay := []string{`"fixed_window 5 per second",rule="d.k",strategy="fixed_window"} 2`, `"per-day",rule="d.k",strategy="token_bucket"} 2`}
	r.put(strings.Replace(several, "requests_per_unit: 20", "requests_per_unit: 30", 1))
	r.everyLimit()
	override()
	r.now = r.now.Add(time.Hour - time.Second)
	r.wantTitles("a second before the hour is over", slices.Concat(old, raised, stay)...)
	r.now = r.now.Add(time.Second)
	r.wantTitles("after an hour", slices.Concat(raised, stay)...)
	r.metrics.InForce(r.tree)
	r.now = r.now.Add(2 * time.Hour)
	r.wantTitles("hours after the same rules were loaded again", slices.Concat(raised, stay)...)

	r.metrics.InForce(nil)
	r.now = r.now.Add(time.Hour)
	r.wantTitles("an hour without rules")
}

// Whatever limits callers make up, /metrics has the titles of rules only.
func TestOverridesHaveTheTitleOfTheRule(t *testing.T) {
	m := open(t, metrics.Options{MaxSeries: 100})
	entry := descriptors.Entry{Key: "k", Value: "v"}
	r := rule(t, several, entry)
	for i := range uint32(100) {
		own, err := r.Limits[0].Override(i, descriptors.Minute, 1)
		if err != nil {
			t.Fatal(err)
		}
		o := allowed(r, entry)
		o.Verdicts[0].Limit, o.Verdicts[0].Override = &own, true
		m.Observer().Observe(o)
		o.Verdicts[0].Rule = nil
		m.Observer().Observe(o)
	}
	serves(t, m,
		`rls_decisions_total{decision="allowed",domain="d",limit="fixed_window 20 per 2 hours",policy="counted",rule="d.override",strategy="fixed_window"} 100`,
		`rls_decisions_total{decision="allowed",domain="d",limit="override",policy="counted",rule="d.override",strategy="fixed_window"} 100`)
	if n := strings.Count(page(t, m), `rls_decisions_total{decision="allowed"`); n != 2 {
		t.Errorf("%d series of allowed decisions, want 2", n)
	}
}
