package service_test

import (
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"example.org/rls/pkg/descriptors"
)

// TestChargesTheLimitThatDenies: a cost that does not fit is charged to the fixed window
// that denies it, and to no other limit.
func TestChargesTheLimitThatDenies(t *testing.T) {
	const rules = `
domain: d
descriptors:
  - {key: few, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: many, rate_limit: {unit: hour, requests_per_unit: 100}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: bucket, rate_limit: {unit: hour, requests_per_unit: 10, strategy: token_bucket}}
`
	r := start(t, "")
	r.loadCharging(descriptors.ChargeDenying, rules)
	r.want(withHits(8, desc("few", "a")), ok, 2)

	resp := r.call(request(desc("many", "a"), withHits(5, desc("few", "a")), desc("many", "b")))
	for i, want := range []uint32{100, 0, 100} {
		if s := resp.Statuses[i]; s.LimitRemaining != want || (s.Code == over) != (i == 1) {
			t.Errorf("status %d: %v", i, s)
		}
	}
	if resp.OverallCode != over {
		t.Error(resp.OverallCode)
	}
	r.want(desc("few", "a"), over, 0)
	r.want(desc("many", "a"), ok, 99)

	// Twice in one request is more than fits, although each alone would fit.
	r.want(withHits(9, desc("few", "b")), ok, 1)
	if resp := r.call(request(desc("few", "b"), desc("many", "b"), desc("few", "b"))); resp.OverallCode != over {
		t.Errorf("%v", resp)
	}
	r.want(desc("many", "b"), ok, 99)

	// A limit in shadow mode refuses nothing, so the others are charged.
	if resp := r.call(request(withHits(11, desc("shadow", "a")), desc("many", "c"))); resp.OverallCode != ok || resp.Statuses[1].LimitRemaining != 99 {
		t.Errorf("%v", resp)
	}

	// Other strategies count admitted hits only.
	r.want(withHits(11, desc("bucket", "a")), over, 0)
	r.want(desc("bucket", "a"), ok, 9)
}

// TestDenialIsOneCall: a request that is denied needs one call of the store.
func TestDenialIsOneCall(t *testing.T) {
	store := new(seen)
	r := start(t, "", store.under)
	r.loadCharging(descriptors.ChargeDenying, "domain: d\ndescriptors: [{key: few, rate_limit: {unit: hour, requests_per_unit: 10}}]")
	r.want(withHits(11, desc("few", "a")), over, 0)
	if len(store.ops) != 1 {
		t.Errorf("asked for %+v", store.ops)
	}
}

// TestShadowDoesNotSwitchEnforcedLimitsOff: a limit in shadow mode, or a quota
// that is used up beside one that passes, keeps no enforced limit from counting.
// (In envoyproxy/ratelimit it does with STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT.)
func TestShadowDoesNotSwitchEnforcedLimitsOff(t *testing.T) {
	const rules = `
domain: d
descriptors:
  - {key: enforced, rate_limit: {unit: hour, requests_per_unit: 5}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: used, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: quota, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1000}}
`
	for _, charge := range []descriptors.Charge{descriptors.ChargeDenying, descriptors.ChargeAdmitted, descriptors.ChargeAlways} {
		for name, beside := range map[string][]string{"shadow": {"shadow"}, "quota": {"used", "quota"}} {
			t.Run(name+" with "+charge.String(), func(t *testing.T) {
				r := start(t, "")
				r.loadCharging(charge, rules)
				req := request(desc("enforced", "a"))
				for _, key := range beside {
					req.Descriptors = append(req.Descriptors, desc(key, "a"))
				}
				admitted := 0
				for range 20 {
					if r.call(req).OverallCode == ok {
						admitted++
					}
				}
				if admitted != 5 {
					t.Errorf("%d of 20 admitted, want 5", admitted)
				}
			})
		}
	}
}

// TestQuotaDenialSparesOtherLimits: when all quotas of a request are used up it
// is denied, and charges none of its other limits.
func TestQuotaDenialSparesOtherLimits(t *testing.T) {
	const rules = `
domain: d
descriptors:
  - {key: limit, rate_limit: {unit: hour, requests_per_unit: 100}}
  - {key: used, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: quota, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: shadow, quota_mode: true, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: free, rate_limit: {unlimited: true}}
`
	quotaMode, noMode := func(c *config) { c.QuotaMode = true }, func(*config) {}
	for _, tt := range []struct {
		name   string
		change func(*config)
		ask    []string
		want   pb.RateLimitResponse_Code
		left   uint32 // of the limit, which is asked first
	}{
		{"a quota is used up", noMode, []string{"limit", "used"}, over, 100},
		{"one of two quotas is used up", noMode, []string{"limit", "used", "quota"}, ok, 99},
		{"one of two quotas is used up, and a limit that passes comes last", noMode, []string{"quota", "used", "limit"}, ok, 1},
		{"a quota in shadow mode always passes", noMode, []string{"limit", "used", "shadow"}, ok, 99},
		{"QUOTA_MODE: the limit passes", quotaMode, []string{"limit", "used"}, ok, 99},
		{"QUOTA_MODE: a descriptor without a limit passes", quotaMode, []string{"limit", "used", "nothing"}, ok, 99},
		{"QUOTA_MODE: an unlimited one does not count", quotaMode, []string{"used", "free"}, over, 0},
	} {
		for _, charge := range []descriptors.Charge{descriptors.ChargeDenying, descriptors.ChargeAdmitted} {
			t.Run(tt.name+", "+charge.String(), func(t *testing.T) {
				r := start(t, "", tt.change)
				r.loadCharging(charge, rules)
				req := &pb.RateLimitRequest{Domain: "d"}
				for _, key := range tt.ask {
					req.Descriptors = append(req.Descriptors, desc(key, "a"))
				}
				if resp := r.call(req); resp.OverallCode != tt.want || resp.Statuses[0].LimitRemaining != tt.left {
					t.Errorf("%v, want %v and %d remaining", resp, tt.want, tt.left)
				}
			})
		}
	}
}
