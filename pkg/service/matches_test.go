package service_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// matchedRules have WHO in the place of what says who is limited.
const matchedRules = `domain: d
charge: CHARGE
on_error: POLICY
descriptors:
- {WHO, rate_limit: {unit: minute, requests_per_unit: 2, name: all}}
- {key: kind, value: group, descriptors: [{WHO, rate_limits: [{unit: second, requests_per_unit: 2}, {unit: minute, requests_per_unit: 3}]}]}
- {key: kind, value: watched, descriptors: [{WHO, rate_limits: [{unit: hour, requests_per_unit: 1, shadow_mode: true}, {unit: minute, requests_per_unit: 2}]}]}
- {key: kind, value: shadow, descriptors: [{WHO, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}]}
- {key: kind, value: quota, descriptors: [{WHO, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}]}
- {key: kind, value: vip, descriptors: [{WHO, rate_limit: {unit: minute, requests_per_unit: 4, replaces: [{name: all}]}}]}
- {key: kind, value: none, descriptors: [{WHO, rate_limit: {unlimited: true, replaces: [{name: all}]}}]}
`

// Whoever a rule is for, by a value, a match or a mask, all its other fields act alike: the
// replies are those to rules for any value of the key.
func TestMatchesActAsOtherRules(t *testing.T) {
	const caller = "10.1.2.3"
	kind := func(kind string) *rlcommon.RateLimitDescriptor { return desc("kind", kind, "who", caller) }
	replies := func(who, charge, policy string, change ...func(*config)) string {
		r := start(t, strings.NewReplacer("WHO", who, "CHARGE", charge, "POLICY", policy).Replace(matchedRules), change...)
		var b strings.Builder
		for range 3 {
			for _, asked := range [][]*rlcommon.RateLimitDescriptor{
				{desc("who", caller)}, {kind("group")}, {withHits(2, kind("group"))}, {kind("watched")}, {kind("shadow")}, {kind("quota")},
				{desc("who", caller), kind("vip")}, {desc("who", caller), kind("none")}, {kind("shadow"), kind("group")}, {kind("quota"), kind("watched")},
				{desc("who", caller), kind("group"), kind("watched")}, {refund(1, desc("who", caller))}, {withLimit(7, hour, nil, kind("group"))},
			} {
				resp, err := r.try(request(asked...))
				fmt.Fprintln(&b, resp, err)
			}
			r.pass(700 * time.Millisecond)
		}
		return b.String()
	}
	for _, charge := range []string{"always", "admitted"} {
		for policy, change := range map[string][]func(*config){
			"error": {}, "allow": {storeAway, local(t)}, "deny": {storeAway, local(t)}, "local": {storeAway, local(t)},
		} {
			want := replies("key: who", charge, policy, change...)
			if policy != "allow" && !strings.Contains(want, "OVER_LIMIT") || strings.Contains(want, "Unavailable") {
				t.Fatalf("charge %s, on_error %s: no limit denies, or one is undecided: %s", charge, policy, want)
			}
			for _, who := range []string{
				"key: who, value: 10.1.2.3", `key: who, value: "10.*"`, `key: who, match: {prefix: "10."}`, "key: who, match: {cidr: [10.0.0.0/8, 11.0.0.0/8]}",
				"key: who, match: {cidr: [10.0.0.0/8]}, share_threshold: true", "key: who, match: {not: {values: [A, B], ignore_case: true}}", `key: "w*", match: {regex: '[0-9.]+'}`,
				"key: who, match: {values: [10.1.2.3, b]}", "key: who, mask: {ipv4: 24, ipv6: 64}", "key: who, match: {cidr: [10.0.0.0/8]}, mask: {ipv4: 24}",
			} {
				if got := replies(who, charge, policy, change...); got != want {
					t.Errorf("{%s}, charge %s, on_error %s:\n%s\nwant\n%s", who, charge, policy, got, want)
				}
			}
		}
	}
}

// A call ends with its caller's deadline, whatever a value costs an expression, and charges nothing.
func TestACostlyExpressionEndsWithTheDeadline(t *testing.T) {
	r := start(t, "domain: d\ndescriptors:\n- {key: k, match: {regex: '(.*x{1,30}){1,30}y'}, rate_limit: {unit: hour, requests_per_unit: 1}}\n- {key: l, rate_limit: {unit: hour, requests_per_unit: 1}}\n")
	entries := func(key, value string) service.Descriptor {
		return service.Descriptor{Entries: []descriptors.Entry{{Key: key, Value: value}}}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := r.service.Decide(ctx, &service.Request{Domain: "d", Hits: 1, Descriptors: []service.Descriptor{entries("l", "a"), entries("k", strings.Repeat("x", 1<<20))}})
	if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took > 5*time.Second {
		t.Errorf("%v after %v", err, took)
	}
	r.want(desc("l", "a"), ok, 0)
	r.want(desc("k", "xxy"), ok, 0)
}
