package xds

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/rules"
)

// bare is a key or a unit without the quotes that JSON needs and that make a
// test hard to read.
var bare = regexp.MustCompile(`([{,]\s*)(\w+):( [A-Z]+\b)?`)

// message is a resource, written in JSON with the quotes of keys and units left
// out.
func message(t testing.TB, text string) *ratelimit.RateLimitConfig {
	t.Helper()
	var config ratelimit.RateLimitConfig
	quoted := bare.ReplaceAllStringFunc(text, func(s string) string {
		parts := bare.FindStringSubmatch(s)
		s = parts[1] + strconv.Quote(parts[2]) + ":"
		if parts[3] != "" {
			s += strconv.Quote(parts[3][1:])
		}
		return s
	})
	if err := protojson.Unmarshal([]byte(quoted), &config); err != nil {
		t.Fatal(err)
	}
	return &config
}

// loadMessage compiles the rules of a resource.
func loadMessage(t testing.TB, text string, o rules.Options) (*descriptors.Tree, []rules.Problem, error) {
	t.Helper()
	file, err := convert(message(t, text), roomy())
	if err != nil {
		t.Fatal(err)
	}
	return rules.Load([]*rules.File{file}, o)
}

// load compiles the rules of a resource that are right and have no warnings.
func load(t testing.TB, text string) *descriptors.Tree {
	t.Helper()
	tree, warnings, err := loadMessage(t, text, rules.Options{})
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, rules.Problems(warnings))
	}
	return tree
}

func TestEveryFieldOfTheMessage(t *testing.T) {
	tree := load(t, `{name: "default/eg", domain: "d", descriptors: [
		{key: "plan", value: "free", descriptors: [
			{key: "user", rateLimit: {unit: WEEK, requestsPerUnit: 7, name: "per-user"}, shadowMode: true, quotaMode: true},
			{key: "batch", rateLimit: {unit: SECOND, replaces: [{name: "per-user"}, {name: "x"}]}}
		]},
		{key: "monitoring", rateLimit: {unlimited: true, name: "all", replaces: [{name: "per-user"}]}},
		{key: "path", value: "/a/*", detailedMetric: true, rateLimit: {unit: YEAR, requestsPerUnit: 4294967295},
		 metadata: {owner: "team", n: 1.5, big: 1e300, yes: true, none: null, list: [1, "1", {a: "b"}], "<<": {x: 1}}}
	]}`)
	want := `d.monitoring: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false
d.path_/a/*: unit=YEAR requests_per_unit=4294967295, shadow_mode: false, quota_mode: false
d.plan_free.batch: unit=SECOND requests_per_unit=0, shadow_mode: false, quota_mode: false
d.plan_free.user: unit=WEEK requests_per_unit=7, shadow_mode: true, quota_mode: true
`
	if diff := cmp.Diff(want, rules.Dump(tree)); diff != "" {
		t.Error(diff)
	}
	domain := tree.Domain("d")
	user := domain.Match([]descriptors.Entry{{Key: "plan", Value: "free"}, {Key: "user", Value: "7"}})
	batch := domain.Match([]descriptors.Entry{{Key: "plan", Value: "free"}, {Key: "batch", Value: "7"}})
	if user.Limits[0].Name != "per-user" || user.Metadata != nil {
		t.Errorf("got %+v", user)
	}
	if diff := cmp.Diff([]string{"per-user", "x"}, batch.Limits[0].Replaces); diff != "" {
		t.Error(diff)
	}
	all := domain.Match([]descriptors.Entry{{Key: "monitoring"}})
	if !all.Unlimited || all.Name != "all" || len(all.Replaces) != 1 {
		t.Errorf("got %+v", all)
	}
	path := []descriptors.Entry{{Key: "path", Value: "/a/b"}}
	rule := domain.Match(path)
	if key := rule.MetricKey("d", path); key != "d.path_/a/b" {
		t.Errorf("metric key %s", key)
	}
	metadata := map[string]any{
		"owner": "team", "n": 1.5, "big": 1e300, "yes": true, "none": nil,
		"list": []any{int64(1), "1", map[string]any{"a": "b"}}, "<<": map[string]any{"x": int64(1)},
	}
	if diff := cmp.Diff(metadata, rule.Metadata); diff != "" {
		t.Error(diff)
	}
}

func TestOurFieldsTravelInMetadata(t *testing.T) {
	tree := load(t, `{name: "eg", domain: "d", descriptors: [
		{key: "bucket", rateLimit: {unit: SECOND, requestsPerUnit: 10},
		 metadata: {rls: {strategy: "token_bucket", burst: 20, charge: "admitted"}, owner: "team"}},
		{key: "borrower", rateLimit: {unit: SECOND, requestsPerUnit: 10}, metadata: {rls: {borrow_from: "spare", max_borrow: "20%"}}},
		{key: "slow", rateLimit: {unit: MINUTE, requestsPerUnit: 10}, metadata: {rls: {unit_multiplier: 15, window: "from_first_hit", extend: true}}},
		{key: "month", rateLimit: {unit: MONTH, requestsPerUnit: 10}, metadata: {rls: {window: "calendar", timezone: "Europe/Berlin", month_starts: 15}}},
		{key: "queue", rateLimit: {unit: SECOND, requestsPerUnit: 5},
		 metadata: {rls: {strategy: "leaky_bucket", max_delay: "500ms", on_error: "local", pools: {spare: {unit: "minute", requests_per_unit: 100}}}}},
		{key: "several", rateLimit: {unit: SECOND, requestsPerUnit: 5, name: "first"},
		 metadata: {rls: {strategy: "gcra", rate_limits: [{unit: "hour", requests_per_unit: 100, name: "second", on_error: "deny"}]}}},
		{key: "only", metadata: {rls: {rate_limits: [{unit: "day", requests_per_unit: 3, strategy: "sliding_log"}], value_to_metric: true}}},
		{key: "debt", rateLimit: {unit: SECOND, requestsPerUnit: 5}, metadata: {rls: {overdraft: true}}},
		{key: "parts", rateLimit: {unit: SECOND, requestsPerUnit: 5}, metadata: {rls: {strategy: "sliding_window", precision: 6}}},
		{key: "ip", rateLimit: {unit: SECOND, requestsPerUnit: 5}, metadata: {rls: {match: {cidr: ["10.0.0.0/8", "11.0.0.0/8"]}, share_threshold: true}}},
		{key: "ip", rateLimit: {unit: SECOND, requestsPerUnit: 6}, metadata: {rls: {mask: {ipv4: 24}}}},
		{key: "ip", value: "", rateLimit: {unit: SECOND, requestsPerUnit: 7}, metadata: {rls: {match: {not: {values: ["a", 1, true]}, ignore_case: true}}}},
		{key: "slots", rateLimit: {unit: HOUR, requestsPerUnit: 5}, metadata: {rls: {strategy: "concurrency", reserve: {ttl: "1h", on_expiry: "give_back"}}}},
		{key: "planned", rateLimit: {unit: SECOND, requestsPerUnit: 5, name: "n"}, metadata: {rls: {plan: "pro"}}},
		{key: "free", rateLimit: {unlimited: true}, metadata: {rls: {plan: "unlimited", plans: {pro: [{unit: "minute", requests_per_unit: 7}, {unit: "day", requests_per_unit: 70}]}}}},
		{key: "none", descriptors: [
			{key: "path", value: "/static/*", rateLimit: {unit: SECOND, requestsPerUnit: 5}, metadata: {rls: {share_threshold: true}}}]},
		{key: "warned", rateLimit: {unit: SECOND, requestsPerUnit: 5}, metadata: {rls: {thresholds: [{at: "80%", headers: {"x-a": 80}, metadata: {a: [1]}, delay: "1s"}, {at: "50%"}]}}}
	]}`)
	want := `d.borrower: unit=SECOND requests_per_unit=10, shadow_mode: false, quota_mode: false, borrow_from: spare, max_borrow: 20%
d.bucket: unit=SECOND requests_per_unit=10, shadow_mode: false, quota_mode: false, strategy: token_bucket, burst: 20
d.debt: unit=SECOND requests_per_unit=5, shadow_mode: false, quota_mode: false, overdraft: true
d.free: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false, plan: unlimited
d.ip: unit=SECOND requests_per_unit=6, shadow_mode: false, quota_mode: false, mask: {ipv4: 24}
d.ip~cidr:10.0.0.0/8+1: unit=SECOND requests_per_unit=5, shadow_mode: false, quota_mode: false
d.ip~not:values/i:a+2: unit=SECOND requests_per_unit=7, shadow_mode: false, quota_mode: false
d.month: unit=MONTH requests_per_unit=10, shadow_mode: false, quota_mode: false, window: calendar, timezone: "Europe/Berlin", month_starts: 15
d.none.path_/static/*: unit=SECOND requests_per_unit=5, shadow_mode: false, quota_mode: false
d.only: unit=DAY requests_per_unit=3, shadow_mode: false, quota_mode: false, strategy: sliding_log
d.parts: unit=SECOND requests_per_unit=5, shadow_mode: false, quota_mode: false, strategy: sliding_window, precision: 6
d.planned: unit=DAY requests_per_unit=70, shadow_mode: false, quota_mode: false, plan: pro
d.planned: unit=MINUTE requests_per_unit=7, shadow_mode: false, quota_mode: false, plan: pro
d.pool_spare: unit=MINUTE requests_per_unit=100, shadow_mode: false, quota_mode: false
d.queue: unit=SECOND requests_per_unit=5, shadow_mode: false, quota_mode: false, strategy: leaky_bucket, burst: 1, max_delay: 500ms, on_error: local
d.several: unit=HOUR requests_per_unit=100, shadow_mode: false, quota_mode: false, on_error: deny
d.several: unit=SECOND requests_per_unit=5, shadow_mode: false, quota_mode: false, strategy: gcra, burst: 1
d.slots: unit=HOUR requests_per_unit=5, shadow_mode: false, quota_mode: false, strategy: concurrency, reserve: {ttl: 1h0m0s, on_expiry: give_back}
d.slow: unit=MINUTE requests_per_unit=10, shadow_mode: false, quota_mode: false, unit_multiplier: 15, window: from_first_hit, extend: true
d.warned: unit=SECOND requests_per_unit=5, shadow_mode: false, quota_mode: false, thresholds: [{at: 50%}, {at: 80%, headers: {x-a: "80"}, metadata: {"a": [1]}, delay: 1s}]
`
	if diff := cmp.Diff(want, rules.Dump(tree)); diff != "" {
		t.Error(diff)
	}
	domain := tree.Domain("d")
	if domain.Charge != descriptors.ChargeAdmitted {
		t.Error("not charged when admitted")
	}
	rule := func(entries ...descriptors.Entry) *descriptors.Rule { return domain.Match(entries) }
	// The key rls does not go back to callers.
	if diff := cmp.Diff(map[string]any{"owner": "team"}, rule(descriptors.Entry{Key: "bucket", Value: "x"}).Metadata); diff != "" {
		t.Error(diff)
	}
	if m := rule(descriptors.Entry{Key: "slow", Value: "x"}).Metadata; m != nil {
		t.Errorf("metadata %v", m)
	}
	if l := rule(descriptors.Entry{Key: "slow", Value: "x"}).Limits[0]; l.Window != 15*time.Minute {
		t.Errorf("window %v", l.Window)
	}
	if l := rule(descriptors.Entry{Key: "several", Value: "x"}).Limits; l[0].Name != "first" || l[1].Name != "second" {
		t.Errorf("limits %+v", l)
	}
	entries := []descriptors.Entry{{Key: "none", Value: "x"}, {Key: "path", Value: "/static/y"}}
	if shared := domain.Match(entries).Shared; len(shared) != 2 || shared[1].Pattern.Value != "/static/*" {
		t.Errorf("shared %+v", shared)
	}
	only := []descriptors.Entry{{Key: "only", Value: "x"}}
	if key := domain.Match(only).MetricKey("d", only); key != "d.only_x" {
		t.Errorf("metric key %s", key)
	}
}

func TestProblemsNameResourceAndDescriptor(t *testing.T) {
	_, _, err := loadMessage(t, `{name: "default/eg", domain: "d", descriptors: [
		{key: "a", rateLimit: {unit: 9, requestsPerUnit: 1}},
		{key: "b", descriptors: [{key: ""}, {key: "c", rateLimit: {unit: SECOND, unlimited: true}}]},
		{key: "d", rateLimit: {unit: SECOND}, metadata: {rls: {strategy: "gcra", burst: 1.5, strateggy: "x", unit: "hour", charge: "never"}}},
		{key: "e", metadata: {rls: {strategy: "gcra", on_error: "deny"}}},
		{key: "f", rateLimit: {unit: SECOND}, metadata: {rls: 5}},
		{key: "g", rateLimit: {unit: SECOND}, metadata: {rls: {charge: "always", rate_limits: "x"}}},
		{key: "h", rateLimit: {unit: SECOND}, metadata: {rls: {strategy: "gcra", extend: true, charge: "admitted"}}},
		{key: "a", rateLimit: {unit: SECOND}},
		{key: "i", rateLimit: {unit: SECOND}, metadata: {rls: {borrow_from: "spre", pools: {spare: {unit: "eon"}}}}},
		{key: "i", value: "x*", rateLimit: {unit: SECOND}, metadata: {rls: {reserve: true, share_threshold: true, value_to_metric: true, lease: false}}},
		{key: "j", rateLimit: {unit: SECOND}, detailedMetric: true, metadata: {rls: {reserve: {ttl: "1h"}}}},
		{key: "k", rateLimit: {unit: SECOND}, metadata: {rls: {overdraft: 1.5, precision: 61}}},
		{key: "l", rateLimit: {unit: SECOND}, metadata: {rls: {overdraft: 5, strategy: "sliding_log"}}},
		{key: "m", value: "v", rateLimit: {unit: SECOND}, metadata: {rls: {match: {cidr: ["10.0.0.0/8", "x"]}, mask: {ipv4: 0}}}}
	]}`, rules.Options{})
	want := `default/eg: descriptors[0]: rate_limit.unit: unknown unit "9"; one of second, minute, hour, day, week, month, year
default/eg: descriptors[10]: detailed_metric: has no meaning beside reserve: the value of "j" is the id of a reservation, which is in no counter and in no metric
default/eg: descriptors[11].metadata.rls: rate_limit.overdraft: must be a whole number, not 1.5
default/eg: descriptors[11].metadata.rls: rate_limit.precision: must be between 2 and 60, not 61
default/eg: descriptors[12].metadata.rls: rate_limit.overdraft: sliding_log cannot have debt; fixed_window, token_bucket, gcra and leaky_bucket can
default/eg: descriptors[13].metadata.rls: mask.ipv4: must be between 1 and 32, not 0
default/eg: descriptors[13].metadata.rls: match.cidr[1]: "x" is no network; want one such as 10.0.0.0/8 or 2001:db8::/32
default/eg: descriptors[13].metadata.rls: match: excludes value; write the value as match: {values: [...]}, or remove one of the two
default/eg: descriptors[1].descriptors[0]: key: must not be empty; a descriptor matches entries of one key
default/eg: descriptors[1].descriptors[1]: rate_limit.unit: must not be given with unlimited: true
default/eg: descriptors[2].metadata.rls: charge: unknown charge "never"; one of always, admitted
default/eg: descriptors[2].metadata.rls: strateggy: unknown key; did you mean "strategy"?
default/eg: descriptors[2].metadata.rls: unit: has a field of its own in the message
default/eg: descriptors[2].metadata.rls: rate_limit.burst: must be a whole number, not 1.5
default/eg: descriptors[3].metadata.rls: on_error: needs a rate_limit
default/eg: descriptors[3].metadata.rls: strategy: needs a rate_limit
default/eg: descriptors[4].metadata.rls: must be a mapping, not 5
default/eg: descriptors[5].metadata.rls: rate_limits: must be a list, not the string "x"
default/eg: descriptors[6].metadata.rls: charge: differs from that in default/eg: descriptors[5].metadata.rls; it is the domain's
default/eg: descriptors[6].metadata.rls: rate_limit.extend: needs strategy fixed_window with ` + "`window: from_first_hit`" + `
default/eg: descriptors[7]: repeats key "a" of default/eg: descriptors[0]; a descriptor may be listed once
default/eg: descriptors[8].metadata.rls: pools.spare.unit: unknown unit "eon"; one of second, minute, hour, day, week, month, year
default/eg: descriptors[8].metadata.rls: rate_limit.borrow_from: unknown pool "spre"; did you mean "spare"?
default/eg: descriptors[9].metadata.rls: share_threshold: has no meaning beside reserve: the value of "i" is the id of a reservation, which is in no counter and in no metric
default/eg: descriptors[9].metadata.rls: value_to_metric: has no meaning beside reserve: the value of "i" is the id of a reservation, which is in no counter and in no metric`
	var problems rules.Problems
	if !errors.As(err, &problems) {
		t.Fatal(err)
	}
	lines := strings.Split(problems.Error(), "\n")
	if diff := cmp.Diff(strings.Split(want, "\n"), lines); diff != "" {
		t.Error(diff)
	}
	for config, want := range map[string]string{
		`{}`:          `unnamed resource: domain: must not be empty; name the domain that Envoy's filter asks with`,
		`{name: "x"}`: `x: domain: must not be empty; name the domain that Envoy's filter asks with`,
	} {
		if _, _, err := loadMessage(t, config, rules.Options{}); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// With SkipWrong a problem in metadata.rls leaves out only its descriptor, not the
// whole resource.
func TestWrongFieldsOfOursAreSkipped(t *testing.T) {
	tree, _, err := loadMessage(t, `{name: "eg", domain: "d", descriptors: [
		{key: "a", rateLimit: {unit: SECOND, requestsPerUnit: 1}, metadata: {rls: {charge: "admitted", rate_limits: [{unit: "eon"}]}}},
		{key: "b", rateLimit: {unit: SECOND, requestsPerUnit: 1}, metadata: {rls: {strateggy: "gcra"}}},
		{key: "c", rateLimit: {unit: SECOND, requestsPerUnit: 1}, metadata: {rls: {charge: "always"}}},
		{key: "d", rateLimit: {unit: SECOND, requestsPerUnit: 1}, metadata: {rls: {strategy: "gcra"}}},
		{key: "e", rateLimit: {unit: SECOND, requestsPerUnit: 1}, metadata: {rls: {borrow_from: "spare"}}},
		{key: "f", metadata: {rls: {pools: {spare: {unit: "eon"}}}}}
	]}`, rules.Options{SkipWrong: true})
	var problems rules.Problems
	if !errors.As(err, &problems) || len(problems) != 4 {
		t.Errorf("got %v", err)
	}
	want := "d.d: unit=SECOND requests_per_unit=1, shadow_mode: false, quota_mode: false, strategy: gcra, burst: 1\n"
	if diff := cmp.Diff(want, rules.Dump(tree)); diff != "" || tree.Domain("d").Charge != descriptors.ChargeAdmitted {
		t.Errorf("charge %v, %s", tree.Domain("d").Charge, diff)
	}
}

// The delta protocol loads a resource again whenever another one changes.
func TestResourcesCanBeLoadedAgain(t *testing.T) {
	file, err := convert(message(t, `{name: "eg", domain: "d", descriptors: [
		{key: "a", rateLimit: {unit: SECOND, requestsPerUnit: 5}, metadata: {owner: "team", rls: {charge: "admitted", strategy: "gcra", rate_limits: [{unit: "day", requests_per_unit: 9}]}}}
	]}`), roomy())
	if err != nil {
		t.Fatal(err)
	}
	want := `d.a: unit=DAY requests_per_unit=9, shadow_mode: false, quota_mode: false
d.a: unit=SECOND requests_per_unit=5, shadow_mode: false, quota_mode: false, strategy: gcra, burst: 1
`
	for range 3 {
		tree, warnings, err := rules.Load([]*rules.File{file}, rules.Options{})
		if err != nil || len(warnings) > 0 {
			t.Fatal(err, warnings)
		}
		if diff := cmp.Diff(want, rules.Dump(tree)); diff != "" || tree.Domain("d").Charge != descriptors.ChargeAdmitted {
			t.Errorf("charge %v, %s", tree.Domain("d").Charge, diff)
		}
		rule := tree.Domain("d").Match([]descriptors.Entry{{Key: "a", Value: "x"}})
		if diff := cmp.Diff(map[string]any{"owner": "team"}, rule.Metadata); diff != "" {
			t.Error(diff)
		}
	}
}

func TestDepthIsBounded(t *testing.T) {
	nest := func(depth int) *ratelimit.RateLimitConfig {
		config := &ratelimit.RateLimitConfig{Name: "deep", Domain: "d"}
		list := &config.Descriptors
		for range depth {
			d := &ratelimit.RateLimitDescriptor{Key: "k"}
			*list = append(*list, d)
			list = &d.Descriptors
		}
		return config
	}
	if file, err := convert(nest(rules.MaxDepth), roomy()); err != nil {
		t.Error(err)
	} else if _, _, err := rules.Load([]*rules.File{file}, rules.Options{}); err != nil {
		t.Error(err)
	}
	if _, err := convert(nest(rules.MaxDepth+1), roomy()); err == nil || err.Error() != "deep: descriptors stand more than 1000 deep in each other" {
		t.Errorf("got %v", err)
	}
}

// FuzzConvert checks that the rules have the keys, values, limits and metadata of
// the message, whatever its texts are.
func FuzzConvert(f *testing.F) {
	for _, config := range []string{
		`{name: "eg", domain: "d", descriptors: [{key: "a", value: "b\n- key: c", rateLimit: {unit: DAY, requestsPerUnit: 3, name: "n", replaces: [{name: "m"}]}}]}`,
		`{domain: "\"#'\u0000\u2028\ufeff\ud83d\ude00: {", descriptors: [{key: "*", value: "<<", metadata: {"": [null, -0.0, 1e-7, {"\u0085": "~"}]}, descriptors: [{key: "x"}]}]}`,
		`{domain: "d", descriptors: [{key: "k", rateLimit: {unit: 6, requestsPerUnit: 4}, metadata: {rls: {strategy: "gcra", burst: 2, rate_limits: [{unit: "hour"}]}}}]}`,
		`{domain: "d", descriptors: [{key: "k", rateLimit: {unit: 6, requestsPerUnit: 4}, metadata: {"` + strings.Repeat("é", 1500) + `": {"` + strings.Repeat("k", 1500) + `": 1}}}]}`,
	} {
		data, err := proto.Marshal(message(f, config))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var config ratelimit.RateLimitConfig
		if proto.Unmarshal(data, &config) != nil {
			return
		}
		file, err := convert(&config, roomy())
		if err != nil {
			return
		}
		tree, _, err := rules.Load([]*rules.File{file}, rules.Options{})
		if err != nil {
			return
		}
		for _, d := range config.GetDescriptors() {
			check(t, tree.Domain(config.GetDomain()), nil, d)
		}
	})
}

// check compares the rule that the entries above and that of d lead to with d.
func check(t *testing.T, domain *descriptors.Domain, above []descriptors.Entry, d *ratelimit.RateLimitDescriptor) {
	entries := slices.Concat(above, []descriptors.Entry{{Key: d.GetKey(), Value: d.GetValue()}})
	for _, below := range d.GetDescriptors() {
		check(t, domain, entries, below)
	}
	limit := d.GetRateLimit()
	if limit == nil || strings.Contains(d.GetKey()+d.GetValue(), "*") {
		return
	}
	rule := domain.Match(entries)
	switch {
	case rule == nil:
		for _, e := range entries {
			if strings.Contains(e.Key+e.Value, "*") || e.Value == "" {
				return // another descriptor may match better
			}
		}
		t.Fatalf("no rule for %q", entries)
	case rule.Pos.File == "" || rule.Unlimited != limit.GetUnlimited() && len(rule.Limits) > 0:
		t.Errorf("%q: %+v", entries, rule)
	case !rule.Unlimited && (rule.Limits[0].Requests != limit.GetRequestsPerUnit() || rule.Limits[0].Unit.String() != limit.GetUnit().String() || rule.Limits[0].Name != limit.GetName()):
		t.Errorf("%q: %+v, want %v", entries, rule.Limits, limit)
	}
	want := &structpb.Struct{}
	if d.GetMetadata() != nil {
		want = proto.CloneOf(d.GetMetadata())
	}
	delete(want.GetFields(), "rls")
	got, err := structpb.NewStruct(rule.Metadata)
	if err != nil {
		t.Fatal(err)
	}
	// Compared as text, because a value without a kind is null and NaN != NaN.
	if diff := cmp.Diff(fmt.Sprint(structure("", want)), fmt.Sprint(structure("", got))); diff != "" {
		t.Errorf("%q: metadata %s", entries, diff)
	}
}

// The rules that Envoy Gateway makes look odd to a person, and have no warning.
func TestRulesOfEnvoyGatewayHaveNoWarning(t *testing.T) {
	_, warnings, err := loadMessage(t, `{name: "default/eg/http", domain: "default/eg/http", descriptors: [
		{key: "httproute/default/backend/rule/0/match/0/www_example_com", value: "httproute/default/backend/rule/0/match/0/www_example_com", descriptors: [
			{key: "rule-0-match-0", value: "rule-0-match-0", descriptors: [
				{key: "rule-0-match-1", rateLimit: {unit: HOUR, requestsPerUnit: 3}}]},
			{key: "rule-1-match--1", value: "rule-1-match--1", rateLimit: {unit: SECOND, requestsPerUnit: 100}},
			{key: "masked_remote_address", value: "192.168.0.0/16", descriptors: [
				{key: "remote_address", rateLimit: {unit: MINUTE, requestsPerUnit: 20}}]}]},
		{key: "httproute/default/backend/rule/1/match/0/*", value: "httproute/default/backend/rule/1/match/0/*", descriptors: [
			{key: "rule-0-match-0", value: "rule-0-match-0", rateLimit: {unit: HOUR, requestsPerUnit: 0}}]}]}`, rules.Options{Lint: true})
	if err != nil || len(warnings) > 0 {
		t.Error(err, rules.Problems(warnings))
	}
}

// TestPlacesInExplanations: in place of a file and a line, descriptors of a message
// have their path in it.
func TestPlacesInExplanations(t *testing.T) {
	tree := load(t, `{name: "eg", domain: "d", descriptors: [
		{key: "a", value: "*", rateLimit: {unit: DAY, requestsPerUnit: 1}},
		{key: "a", value: "b*", rateLimit: {unit: DAY, requestsPerUnit: 1}}]}`)
	trace := tree.Domain("d").Explain([]descriptors.Entry{{Key: "a", Value: "bc"}}, 100)
	var got []string
	for _, s := range trace.Path {
		got = append(got, fmt.Sprintf("%s line %d: %s", s.File, s.Line, s.Why))
	}
	want := []string{
		"eg: descriptors[0] line 0: it is the first descriptor whose wildcards match",
		"eg: descriptors[1] line 0: shadowed by the wildcard before it, eg: descriptors[0]",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// The example in docs/xds.md has the limits that its text describes.
func TestDocumentsExample(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/xds.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(doc), "```json\n")
	example, _, _ := strings.Cut(rest, "```")
	if !found {
		t.Fatal("no example")
	}
	tree := load(t, example)
	want := `default/eg/http.api-key: unit=DAY requests_per_unit=100000, shadow_mode: false, quota_mode: false
default/eg/http.api-key: unit=SECOND requests_per_unit=10, shadow_mode: false, quota_mode: false, strategy: token_bucket, burst: 50
`
	if diff := cmp.Diff(want, rules.Dump(tree)); diff != "" {
		t.Error(diff)
	}
	domain := tree.Domain("default/eg/http")
	rule := domain.Match([]descriptors.Entry{{Key: "api-key", Value: "x"}})
	if diff := cmp.Diff(map[string]any{"owner": "team-api"}, rule.Metadata); diff != "" || domain.Charge != descriptors.ChargeAdmitted {
		t.Errorf("%v, charge %v", diff, domain.Charge)
	}
}

func roomy() *int {
	room := 1 << 30
	return &room
}

// TestSmallMessagesWithLargeRules: a message within the bound of gRPC can name hundreds of
// thousands of descriptors, each by a path of kilobytes. It is refused before they take the
// memory; others pass.
func TestSmallMessagesWithLargeRules(t *testing.T) {
	c := &conversation{Source: &Source{}}
	leaves := make([]*ratelimit.RateLimitDescriptor, 400_000)
	for i := range leaves {
		leaves[i] = &ratelimit.RateLimitDescriptor{Key: "k"}
	}
	bodyOf := func(name string, leaves []*ratelimit.RateLimitDescriptor, depth int) *anypb.Any {
		list := leaves
		for range depth {
			list = []*ratelimit.RateLimitDescriptor{{Key: "k", Descriptors: list}}
		}
		body, err := anypb.New(&ratelimit.RateLimitConfig{Name: name, Domain: name, Descriptors: list})
		if err != nil {
			t.Fatal(err)
		}
		if len(body.GetValue()) > 4<<20 {
			t.Fatalf("%d bytes", len(body.GetValue()))
		}
		return body
	}
	deep := bodyOf("deep", leaves, rules.MaxDepth-1)
	room := c.room()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if got := read("deep", deep, &room); !errors.Is(got.err, errTooLarge) || got.file != nil {
		t.Errorf("got %v", got.err)
	}
	runtime.ReadMemStats(&after)
	if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 300 {
		t.Errorf("it took %d MiB", took)
	}
	room = c.room()
	if got := read("wide", bodyOf("wide", leaves[:100_000], 0), &room); got.err != nil {
		t.Error(got.err)
	}
}

// TestDeltaKeepsABoundedNumberOfResources: a server can send further resources in message
// after message.
func TestDeltaKeepsABoundedNumberOfResources(t *testing.T) {
	c := &conversation{Source: &Source{MaxMessageBytes: 1}}
	received := map[string]resource{}
	body, err := anypb.New(&ratelimit.RateLimitConfig{Name: "n", Domain: "d"})
	if err != nil {
		t.Fatal(err)
	}
	send := func(name string) error {
		return receive(received, &discovery.DeltaDiscoveryResponse{Resources: []*discovery.Resource{{Name: name, Resource: body}}}, c.room())
	}
	for range 3 * c.room() / (2 << 10) / 1000 { // again and again the same ones
		if err := send("n"); err != nil {
			t.Fatal(err)
		}
	}
	name := strings.Repeat("n", 100_000)
	for i := 0; err == nil && i < 10_000; i++ {
		err = send(name + strconv.Itoa(i))
	}
	if !errors.Is(err, errTooLarge) || len(received) > 3000 {
		t.Errorf("%d resources: %v", len(received), err)
	}
}
