package yaml_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
)

// LIMIT_SHARE multiplies the amounts of every limit, and /rlconfig shows both.
func TestLimitShare(t *testing.T) {
	const text = `domain: d
descriptors:
- {key: a, rate_limit: {unit: day, requests_per_unit: 1000, lease: true}}
- {key: b, rate_limit: {unit: day, requests_per_unit: 99, strategy: token_bucket, burst: 11}}
- {key: c, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: e, rate_limit: {unit: day, requests_per_unit: 0}}
- {key: f, rate_limit: {unit: day, requests_per_unit: 5, strategy: gcra}}
- {key: g, rate_limit: {unlimited: true}}
- {key: h, rate_limit: {unit: day, requests_per_unit: 20000, strategy: sliding_log}}
`
	tree, warnings, err := yaml.Load([]yaml.Text{{Name: "a.yaml", Content: []byte(text)}}, rules.Options{Share: 400_000})
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	want := `d.a: unit=DAY requests_per_unit=400, shadow_mode: false, quota_mode: false, lease: {share: 5%, ttl: 250ms}, limit_share: 40% of 1000
d.b: unit=DAY requests_per_unit=39, shadow_mode: false, quota_mode: false, strategy: token_bucket, burst: 4, limit_share: 40% of 99
d.c: unit=DAY requests_per_unit=1, shadow_mode: false, quota_mode: false, limit_share: 40% of 1
d.e: unit=DAY requests_per_unit=0, shadow_mode: false, quota_mode: false, limit_share: 40% of 0
d.f: unit=DAY requests_per_unit=2, shadow_mode: false, quota_mode: false, strategy: gcra, burst: 1, limit_share: 40% of 5
d.g: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false
d.h: unit=DAY requests_per_unit=8000, shadow_mode: false, quota_mode: false, strategy: sliding_log, limit_share: 40% of 20000
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
	const text = `domain: d
descriptors:
- key: a
  rate_limits: [{unit: day, requests_per_unit: 1000, lease: true}, {unit: hour, requests_per_unit: 100}]
- key: b
  rate_limits: [{unit: day, requests_per_unit: 1000, lease: true}]
`
	tree, warnings, err := yaml.Load([]yaml.Text{{Name: "a.yaml", Content: []byte(text)}}, rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const want = "a.yaml:4:61: rate_limits[0].lease: has no effect beside other limits: the limits of a descriptor are charged together in the store"
	if got := rules.Problems(warnings).Error(); got != want {
		t.Error(got)
	}
	if l := tree.Domain("d").Match(entries("b=1")).Limits[0].Lease; l != algorithms.DefaultLease {
		t.Errorf("lease: true is %v", l)
	}
}

// A default strategy that cannot have the lease of a limit leaves the limit as it is.
func TestDefaultStrategyGivesWayToALease(t *testing.T) {
	const text = "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: day, requests_per_unit: 1000, lease: true}}\n"
	tree, warnings, err := yaml.Load([]yaml.Text{{Name: "a.yaml", Content: []byte(text)}}, rules.Options{Strategy: algorithms.GCRA})
	if err != nil || tree.Domain("d").Match(entries("a=1")).Limits[0].Strategy != algorithms.FixedWindow {
		t.Fatal(err, rules.Dump(tree))
	}
	const want = "a.yaml:3:24: rate_limit: is a fixed_window in spite of DEFAULT_STRATEGY, because of its lease: no share of burst 1 is as much as one hit; leave lease out"
	if got := rules.Problems(warnings).Error(); got != want {
		t.Error(got)
	}
}
