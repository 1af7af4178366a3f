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
		{"{unit: day, requests_per_unit: 1000, lease: true}", algorithms.GCRA, 0, ", lease: {share: 5%, ttl: 250ms}",
			"a.yaml:4:15: rate_limit: is a fixed_window in spite of DEFAULT_STRATEGY, because of its lease: no share of burst 1 is as much as one hit; leave lease out"},
		{"{unit: day, requests_per_unit: 5, overdraft: 7}", algorithms.TokenBucket, 0, bucket + ", burst: 5, overdraft: 7", ""},
		{"{unit: day, requests_per_unit: 20000, overdraft: true}", algorithms.SlidingLog, 0, ", overdraft: true",
			"a.yaml:4:15: rate_limit: is a fixed_window in spite of DEFAULT_STRATEGY, because of its overdraft: sliding_log cannot have debt; fixed_window, token_bucket, gcra and leaky_bucket can"},
		{"{unit: day, requests_per_unit: 5, precision: 7}", algorithms.SlidingWindow, 0, ", strategy: sliding_window, precision: 7", ""},
		{"{unit: day, requests_per_unit: 5, reserve: true}", algorithms.SlidingLog, 0, log + ", reserve: {ttl: 10m0s}", ""},
		{"[{unit: day, requests_per_unit: 5, overdraft: true}, {unit: day, requests_per_unit: 50, strategy: token_bucket, overdraft: 5}]", algorithms.TokenBucket, 0, "overdraft: true | " + bucket[2:] + ", burst: 50, overdraft: 5",
			"a.yaml:4:17: rate_limits[0]: is a fixed_window in spite of DEFAULT_STRATEGY, because rate_limits[1] has that strategy and the same window"},
		{"[{unit: day, requests_per_unit: 5}, {unit: day, requests_per_unit: 50, strategy: token_bucket}]", algorithms.TokenBucket, 0, " | " + bucket[2:] + ", burst: 50",
			"a.yaml:4:17: rate_limits[0]: is a fixed_window in spite of DEFAULT_STRATEGY, because rate_limits[1] has that strategy and the same window"},
		{"[{unit: day, requests_per_unit: 5}, {unit: hour, requests_per_unit: 50, strategy: token_bucket}]", algorithms.TokenBucket, 0, bucket[2:] + ", burst: 5 | " + bucket[2:] + ", burst: 50", ""},
	}
	for _, tt := range tests {
		field := "rate_limit"
		if tt.limit[0] == '[' {
			field = "rate_limits"
		}
		tree, warnings := loadWith(t, rules.Options{Strategy: tt.strategy, Burst: tt.burst},
			text("a.yaml", "domain: d\ndescriptors:\n- key: k\n  "+field+": "+tt.limit+"\n"))
		if warnings != tt.warning {
			t.Errorf("%s with %s: warnings %s", tt.limit, tt.strategy, warnings)
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
	tree, _ := loadWith(t, rules.Options{Strategy: algorithms.TokenBucket, Burst: 9},
		rulesOfD("- {key: a, rate_limit: {unit: minute, requests_per_unit: 1, strategy: sliding_log}}"))
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

// LIMIT_SHARE multiplies the amounts of every limit, and /rlconfig shows both.
func TestLimitShare(t *testing.T) {
	const content = `domain: d
descriptors:
- {key: a, rate_limit: {unit: day, requests_per_unit: 1000, lease: true}}
- {key: b, rate_limit: {unit: day, requests_per_unit: 99, strategy: token_bucket, burst: 11}}
- {key: c, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: e, rate_limit: {unit: day, requests_per_unit: 0}}
- {key: f, rate_limit: {unit: day, requests_per_unit: 5, strategy: gcra}}
- {key: g, rate_limit: {unlimited: true}}
- {key: h, rate_limit: {unit: day, requests_per_unit: 20000, strategy: sliding_log}}
- {key: i, rate_limit: {unit: day, requests_per_unit: 20000, strategy: concurrency, reserve: {ttl: 1h, on_expiry: give_back}}}
- {key: j, rate_limit: {unit: day, requests_per_unit: 10, overdraft: 1}}
- {key: k, rate_limit: {unit: year, requests_per_unit: 10, overdraft: true}}
- {key: l, rate_limit: {unit: day, requests_per_unit: 10, overdraft: 99, strategy: gcra}}
`
	tree, warnings := loadWith(t, rules.Options{Share: 400_000}, text("a.yaml", content))
	if warnings != "" {
		t.Error(warnings)
	}
	want := `d.a: unit=DAY requests_per_unit=400, shadow_mode: false, quota_mode: false, lease: {share: 5%, ttl: 250ms}, limit_share: 40% of 1000
d.b: unit=DAY requests_per_unit=39, shadow_mode: false, quota_mode: false, strategy: token_bucket, burst: 4, limit_share: 40% of 99
d.c: unit=DAY requests_per_unit=1, shadow_mode: false, quota_mode: false, limit_share: 40% of 1
d.e: unit=DAY requests_per_unit=0, shadow_mode: false, quota_mode: false, limit_share: 40% of 0
d.f: unit=DAY requests_per_unit=2, shadow_mode: false, quota_mode: false, strategy: gcra, burst: 1, limit_share: 40% of 5
d.g: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false
d.h: unit=DAY requests_per_unit=8000, shadow_mode: false, quota_mode: false, strategy: sliding_log, limit_share: 40% of 20000
d.i: unit=DAY requests_per_unit=8000, shadow_mode: false, quota_mode: false, strategy: concurrency, reserve: {ttl: 1h0m0s, on_expiry: give_back}, limit_share: 40% of 20000
d.j: unit=DAY requests_per_unit=4, shadow_mode: false, quota_mode: false, overdraft: 1, limit_share: 40% of 10
d.k: unit=YEAR requests_per_unit=4, shadow_mode: false, quota_mode: false, overdraft: true, limit_share: 40% of 10
d.l: unit=DAY requests_per_unit=4, shadow_mode: false, quota_mode: false, strategy: gcra, burst: 1, overdraft: 39, limit_share: 40% of 10
`
	if diff := cmp.Diff(want, rules.Dump(tree)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	unmatched, err := tree.Domain("d").Default.Override(1000, descriptors.Day, 1)
	if err != nil || unmatched.Requests != 400 {
		t.Errorf("an override without a rule has %d requests, %v", unmatched.Requests, err)
	}
}

// A lease beside other limits of its descriptor has no effect, which is a warning.
func TestLeaseBesideOtherLimits(t *testing.T) {
	tree, warnings := loadWith(t, rules.Options{}, text("a.yaml", `domain: d
descriptors:
- key: a
  rate_limits: [{unit: day, requests_per_unit: 1000, lease: true}, {unit: hour, requests_per_unit: 100}]
- key: b
  rate_limits: [{unit: day, requests_per_unit: 1000, lease: true}]
`))
	const want = "a.yaml:4:61: rate_limits[0].lease: has no effect beside other limits: the limits of a descriptor are charged together in the store"
	if warnings != want {
		t.Error(warnings)
	}
	if l := tree.Domain("d").Match(entries("b=1")).Limits[0].Lease; l != algorithms.DefaultLease {
		t.Errorf("lease: true is %v", l)
	}
}

const policies = `domain: d
descriptors:
- {key: own, rate_limit: {unit: day, requests_per_unit: 1, on_error: deny}}
- {key: none, rate_limit: {unit: day, requests_per_unit: 1}}
- key: outer
  descriptors:
  - key: several
    rate_limits:
    - {unit: day, requests_per_unit: 1, on_error: error}
    - {unit: hour, requests_per_unit: 1}
`

// The nearest on_error counts: that of the limit, that of the domain, wherever it
// stands in the files, or that of the options. Overrides have that of the rule, or
// without a rule that of the domain.
func TestTheNearestPolicyCounts(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files []yaml.Text
		opts  rules.Options
		want  string // of own, none, both of several, and of an override without a rule
	}{
		{"nothing", []yaml.Text{text("a", policies)}, rules.Options{}, "deny error error error, error"},
		{"the options", []yaml.Text{text("a", policies)}, rules.Options{OnError: descriptors.PolicyAllow}, "deny allow error allow, allow"},
		{"the domain", []yaml.Text{text("a", policies+"on_error: local")}, rules.Options{OnError: descriptors.PolicyAllow}, "deny local error local, local"},
		{"the domain, in another file", []yaml.Text{text("a", policies), text("b", "domain: d\non_error: local")}, rules.Options{MergeDomains: true}, "deny local error local, local"},
		{"the domain says error", []yaml.Text{text("a", "on_error: error\n"+policies)}, rules.Options{OnError: descriptors.PolicyAllow}, "deny error error error, error"},
	} {
		tree, warnings := loadWith(t, tt.opts, tt.files...)
		if warnings != "" {
			t.Errorf("%s: %s", tt.name, warnings)
		}
		d := tree.Domain("d")
		several := d.Match(entries("outer,several")).Limits
		override := func(request string) descriptors.Policy {
			l, err := d.Override(d.Match(entries(request)), 5, descriptors.Minute, 1)
			if err != nil {
				t.Error(err)
			}
			return l.OnError
		}
		if p := override("own"); p != descriptors.PolicyDeny {
			t.Errorf("%s: an override of a rule has the policy %s", tt.name, p)
		}
		var got []string
		for _, p := range []descriptors.Policy{d.Match(entries("own")).Limits[0].OnError, d.Match(entries("none")).Limits[0].OnError, several[0].OnError, several[1].OnError} {
			got = append(got, p.String())
		}
		if is := strings.Join(got, " ") + ", " + override("elsewhere").String(); is != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, is, tt.want)
		}
	}
}

func TestProblemsWithPolicies(t *testing.T) {
	for _, tt := range []struct {
		files []string
		want  string
	}{
		{[]string{"domain: d\non_error: alow\n"}, `a:2:11: on_error: unknown policy "alow"; did you mean "allow"?`},
		{[]string{"domain: d\non_error: ~\n"}, `a:2:11: on_error: unknown policy ""; one of error, allow, deny, local`},
		{[]string{"domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: day, requests_per_unit: 1, on_error: ignore}}\n"},
			`a:3:68: rate_limit.on_error: unknown policy "ignore"; one of error, allow, deny, local`},
		{[]string{"domain: d\ndescriptors:\n- {key: k, rate_limit: {unlimited: true, on_error: deny}}\n"}, `a:3:52: rate_limit.on_error: must not be given with unlimited: true`},
		{[]string{"domain: d\ndescriptors:\n- {key: k, on_error: deny}\n"}, `a:3:12: on_error: has no meaning here; it belongs into the top of the file or rate_limit`},
		{[]string{"domain: d\non_error: deny\n", "domain: d\n", "domain: d\non_error: allow\n"}, `c:2:11: on_error: differs from that of the same domain in a:2:11`},
	} {
		var files []yaml.Text
		for i, content := range tt.files {
			files = append(files, text(string(rune('a'+i)), content))
		}
		_, _, err := yaml.Load(files, rules.Options{MergeDomains: true})
		if err == nil || err.Error() != tt.want {
			t.Errorf("%q:\n%v, want\n%s", tt.files, err, tt.want)
		}
	}
}

// Where nobody knows how many processes share the store, the first limit with the
// policy local gets a warning.
func TestLocalWithoutReplicas(t *testing.T) {
	const local = "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: day, requests_per_unit: 1}}\n" +
		"- {key: b, rate_limit: {unit: day, requests_per_unit: 1, on_error: local}}\n- {key: c, rate_limit: {unit: day, requests_per_unit: 1, on_error: local}}\n"
	for _, tt := range []struct {
		opts rules.Options
		want string
	}{
		{rules.Options{}, ""},
		{rules.Options{ReplicasUnknown: true}, "a.yaml:4:3: on_error: local gives this limit, and every other limit with that policy, to each process in full while the store is away; set REPLICAS or REPLICAS_DNS, so that processes that share the store divide it"},
		{rules.Options{ReplicasUnknown: true, OnError: descriptors.PolicyLocal}, "a.yaml:3:3: on_error: local gives"},
	} {
		_, got := loadWith(t, tt.opts, text("a.yaml", local))
		if !strings.HasPrefix(got, tt.want) || strings.Contains(got, "\n") || tt.want == "" && got != "" {
			t.Errorf("%+v: %q; want %s", tt.opts, got, tt.want)
		}
	}
}
