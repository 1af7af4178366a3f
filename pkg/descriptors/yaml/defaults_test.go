package yaml_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
)

func TestDefaultStrategy(t *testing.T) {
	const (
		bucket = ", strategy: token_bucket"
		log    = ", strategy: sliding_log"
	)
	tests := []struct {
		limit    string // a rate_limit, or a list for rate_limits
		strategy algorithms.Strategy
		burst    uint32
		want     string // the end of the lines of /rlconfig
		warning  string
	}{
		{"{unit: day, requests_per_unit: 5}", algorithms.FixedWindow, 0, "", ""},
		{"{unit: day, requests_per_unit: 5}", algorithms.TokenBucket, 0, bucket + ", burst: 5", ""},
		{"{unit: day, requests_per_unit: 5}", algorithms.TokenBucket, 9, bucket + ", burst: 9", ""},
		{"{unit: day, requests_per_unit: 5, burst: 7}", algorithms.TokenBucket, 9, bucket + ", burst: 7", ""},
		// A written strategy stays, without the default burst.
		{"{unit: day, requests_per_unit: 5, strategy: gcra}", algorithms.TokenBucket, 9, ", strategy: gcra, burst: 1", ""},
		{"{unit: day, requests_per_unit: 5, strategy: fixed_window}", algorithms.TokenBucket, 9, "", ""},
		{"{unit: day, requests_per_unit: 5, window: from_first_hit}", algorithms.TokenBucket, 9, ", window: from_first_hit", ""},
		{"{unlimited: true}", algorithms.TokenBucket, 9, "", ""},
		{"{unit: day, requests_per_unit: 10000}", algorithms.SlidingLog, 0, log, ""},
		{"{unit: day, requests_per_unit: 10001}", algorithms.SlidingLog, 0, ", strategy: sliding_window",
			"a.yaml:4:15: rate_limit: is a sliding_window in spite of DEFAULT_STRATEGY: sliding_log remembers every hit and takes at most 10000; use `strategy: sliding_window` for more"},
		{"{unit: year, requests_per_unit: 1}", algorithms.GCRA, 101, ", strategy: gcra, burst: 1",
			"a.yaml:4:15: rate_limit: has the strategy's own burst in spite of DEFAULT_BURST: 101 at this rate take more than 100 years to fill; lower burst or raise requests_per_unit"},
		{"[{unit: day, requests_per_unit: 5}, {unit: day, requests_per_unit: 50, strategy: token_bucket}]", algorithms.TokenBucket, 0, " | " + bucket[2:] + ", burst: 50",
			"a.yaml:4:17: rate_limits[0]: is a fixed_window in spite of DEFAULT_STRATEGY, because rate_limits[1] has that strategy and the same window"},
		{"[{unit: day, requests_per_unit: 5}, {unit: hour, requests_per_unit: 50, strategy: token_bucket}]", algorithms.TokenBucket, 0, bucket[2:] + ", burst: 5 | " + bucket[2:] + ", burst: 50", ""},
	}
	for _, tt := range tests {
		field := "rate_limit"
		if tt.limit[0] == '[' {
			field = "rate_limits"
		}
		text := yaml.Text{Name: "a.yaml", Content: []byte("domain: d\ndescriptors:\n- key: k\n  " + field + ": " + tt.limit + "\n")}
		tree, warnings, err := yaml.Load([]yaml.Text{text}, rules.Options{Strategy: tt.strategy, Burst: tt.burst})
		if err != nil {
			t.Errorf("%s with %s: %v", tt.limit, tt.strategy, err)
			continue
		}
		if got := rules.Problems(warnings).Error(); got != tt.warning {
			t.Errorf("%s with %s: warnings %s", tt.limit, tt.strategy, got)
		}
		var own []string
		for line := range strings.Lines(rules.Dump(tree)) {
			_, options, _ := strings.Cut(strings.TrimSpace(line), "quota_mode: false")
			own = append(own, options)
		}
		got := strings.Join(own, "\n")
		if len(own) > 1 { // the hour's line comes after the day's
			got = strings.Join([]string{strings.TrimPrefix(own[0], ", "), strings.TrimPrefix(own[1], ", ")}, " | ")
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s with %s: %s", tt.limit, tt.strategy, diff)
		}
	}
}

// The default never makes rules wrong that are right without it, and never adds
// a problem to wrong ones.
func TestDefaultStrategyKeepsProblems(t *testing.T) {
	text := rulesOfD("- {key: a, rate_limit: {unit: minute, requests_per_unit: 1, extend: true}}\n" +
		"- {key: b, rate_limits: [{unit: minute, requests_per_unit: 1}, {unit: minute, requests_per_unit: 2}]}\n")
	_, _, want := yaml.Load([]yaml.Text{text}, rules.Options{})
	for s := range algorithms.Names() {
		_, _, err := yaml.Load([]yaml.Text{text}, rules.Options{Strategy: algorithms.Strategy(s)})
		if err == nil || err.Error() != want.Error() {
			t.Errorf("%s: %v, want %v", algorithms.Strategy(s), err, want)
		}
	}
}

func TestOverridesWithoutARuleGetTheDefaultStrategy(t *testing.T) {
	tree, _, err := yaml.Load([]yaml.Text{rulesOfD("- {key: a, rate_limit: {unit: minute, requests_per_unit: 1, strategy: sliding_log}}")},
		rules.Options{Strategy: algorithms.TokenBucket, Burst: 9})
	if err != nil {
		t.Fatal(err)
	}
	d := tree.Domain("d")
	for request, want := range map[string]algorithms.Spec{
		"a=1": {Strategy: algorithms.SlidingLog}, "b=1": {Strategy: algorithms.TokenBucket, Burst: 9},
	} {
		got, err := d.Override(d.Match(entries(request)), 50, descriptors.Second, 1)
		want.Requests, want.Window = 50, descriptors.Second.Duration()
		if err != nil || got.Spec != want {
			t.Errorf("%s: %+v, %v", request, got.Spec, err)
		}
	}
}
