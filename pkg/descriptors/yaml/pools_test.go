package yaml_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
)

func TestPoolProblems(t *testing.T) {
	_, _, err := yaml.Load([]yaml.Text{text("a.yaml", `domain: d
pools:
  spare: {unit: minute, requests_per_unit: 100, burst: 3}
  "": {unit: minute}
  deep: {unit: minute, requests_per_unit: 10, lease: true, on_error: deny}
  spare: {unit: hour, requests_per_unit: 1}
  none:
  slow: {unit: year, unit_multiplier: 10, requests_per_unit: 199, strategy: token_bucket, burst: 1500}
  1: {}
  slots: {unit: minute, requests_per_unit: 1, strategy: concurrency}
descriptors:
  - key: a
    rate_limit: {unit: minute, requests_per_unit: 1, borrow_from: spre}
  - key: b
    rate_limit: {unit: minute, requests_per_unit: 1, borrow_from: spare, max_borrow: 0.5%}
  - key: c
    rate_limit: {unit: minute, requests_per_unit: 1, max_borrow: 20%}
  - key: e
    pools: {x: {}}
    rate_limit: {unlimited: true, borrow_from: spare}
  - key: f
    rate_limits: [{unit: minute, requests_per_unit: 1, borrow_from: "", max_borrow: 20}]
  - key: g
    rate_limit: {unit: minute, requests_per_unit: 1, borrow_from: slow, max_borrow: 1%}
  - key: h
    rate_limit: {unit: minute, requests_per_unit: 1, strategy: concurrency, borrow_from: spare}
`), text("b.yaml", `domain: e
pools: [x]
descriptors: [{key: a, rate_limit: {unit: minute, requests_per_unit: 1, borrow_from: spare}}]
`)}, rules.Options{})
	want := `a.yaml:3:56: pools.spare.burst: fixed_window has no burst; token_bucket, gcra and leaky_bucket have
a.yaml:4:3: pools: the name of a pool must be a string that is not empty, not the string ""
a.yaml:5:47: pools.deep.lease: has no meaning in a pool, which has only unit, requests_per_unit, unit_multiplier, strategy, burst, precision, window, extend, timezone, week_starts, month_starts, year_starts
a.yaml:5:60: pools.deep.on_error: has no meaning in a pool, which has only unit, requests_per_unit, unit_multiplier, strategy, burst, precision, window, extend, timezone, week_starts, month_starts, year_starts
a.yaml:6:3: pools.spare: "spare" is already a pool of the domain in a.yaml:3:3; give it another name
a.yaml:7:8: pools.none.unit: is missing; one of second, minute, hour, day, week, month, year
a.yaml:9:3: pools: the name of a pool must be a string that is not empty, not 1
a.yaml:10:57: pools.slots.strategy: concurrency lends nothing: slots come back by refunds, which go to the limit that borrows
a.yaml:13:67: rate_limit.borrow_from: unknown pool "spre"; did you mean "spare"?
a.yaml:15:86: rate_limit.max_borrow: must be a percentage from 1% to 100%, such as 20%, not "0.5%"
a.yaml:17:66: rate_limit.max_borrow: needs borrow_from, the name of a pool
a.yaml:19:5: pools: has no meaning here; it belongs into the top of the file
a.yaml:20:48: rate_limit.borrow_from: must not be given with unlimited: true
a.yaml:22:69: rate_limits[0].borrow_from: must not be empty; it is the name of a pool
a.yaml:22:85: rate_limits[0].max_borrow: must be a percentage from 1% to 100%, such as 20%, not "20"
a.yaml:24:85: rate_limit.max_borrow: 1% of pool "slow" has a wrong burst: 15 at this rate take more than 100 years to fill; lower burst or raise requests_per_unit
a.yaml:26:90: rate_limit.borrow_from: has no meaning with strategy concurrency: a refund would give back a slot that was not borrowed
b.yaml:2:8: pools: must be a mapping of names and limits, not a list
b.yaml:3:86: rate_limit.borrow_from: unknown pool "spare": the domain has no pools; add the pool to pools, which stands at the top of a file, and over xDS in metadata.rls`
	if err == nil {
		t.Fatal("no problems")
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Error(diff)
	}
}

const lends = `domain: d
pools: {spare: {unit: hour, requests_per_unit: 15, strategy: token_bucket, burst: 30}, idle: {unit: hour, requests_per_unit: 1}}
`

const borrows = `domain: d
descriptors: [{key: a, rate_limit: {unit: minute, requests_per_unit: 1, borrow_from: spare, max_borrow: 10%}}]
`

// A pool is for all files of its domain, also for those before it, and nobody else has its
// name there. Its amounts are multiplied by LIMIT_SHARE as those of limits are.
func TestPoolsOfADomain(t *testing.T) {
	merged := rules.Options{MergeDomains: true, Share: 500_000}
	tree, _ := loadWith(t, merged, text("a.yaml", borrows), text("b.yaml", lends))
	b := tree.Domain("d").Match(entries("a=x")).Limits[0].Borrow
	if b.Pool != tree.Domain("d").Pools["spare"] || b.Pool.Path != "d.pool_spare" || b.Cell.Requests != 1 || b.Cell.Burst != 1 || b.Pool.Limits[0].Burst != 15 {
		t.Errorf("%+v of %+v", b, b.Pool)
	}
	want := `d.a: unit=MINUTE requests_per_unit=1, shadow_mode: false, quota_mode: false, borrow_from: spare, max_borrow: 10%, limit_share: 50% of 1
d.pool_idle: unit=HOUR requests_per_unit=1, shadow_mode: false, quota_mode: false, limit_share: 50% of 1
d.pool_spare: unit=HOUR requests_per_unit=7, shadow_mode: false, quota_mode: false, strategy: token_bucket, burst: 15, limit_share: 50% of 15
`
	if diff := cmp.Diff(want, rules.Dump(tree)); diff != "" {
		t.Error(diff)
	}
	_, _, err := yaml.Load([]yaml.Text{text("a.yaml", borrows), text("b.yaml", lends), text("c.yaml", lends)}, merged)
	if err == nil || !strings.Contains(err.Error(), `c.yaml:2:9: pools.spare: "spare" is already a pool of the domain in b.yaml:2:9; give it another name`) {
		t.Error(err)
	}
}

// A descriptor that borrows from an unknown pool is left out alone.
func TestUnknownPoolIsLeftOut(t *testing.T) {
	tree, _, err := yaml.Load([]yaml.Text{text("a.yaml", lends+`descriptors:
- {key: a, rate_limit: {unit: minute, requests_per_unit: 1, borrow_from: spre}}
- {key: b, rate_limit: {unit: minute, requests_per_unit: 1, borrow_from: spare}}
`)}, rules.Options{SkipWrong: true})
	if d := tree.Domain("d"); err == nil || d.Match(entries("a=x")) != nil || d.Match(entries("b=x")) == nil {
		t.Error(rules.Dump(tree), err)
	}
}

// The hash of rules knows a pool, and what a limit may borrow from it.
func TestHashOfPools(t *testing.T) {
	with := func(old, by string) uint64 {
		return load(t, text("a.yaml", strings.Replace(lends+strings.TrimPrefix(borrows, "domain: d\n"), old, by, 1))).Hash()
	}
	seen := map[uint64]string{}
	for _, change := range [][2]string{{"", ""}, {"burst: 30", "burst: 31"}, {"from: spare", "from: idle"}, {"10%", "11%"}, {"idle:", "others:"}} {
		h := with(change[0], change[1])
		if other, again := seen[h]; again {
			t.Errorf("%q has the hash of %q", change[1], other)
		}
		seen[h] = change[1]
	}
	if with(", max_borrow: 10%", "") != with("10%", "100%") {
		t.Error("100% is not the default")
	}
}
