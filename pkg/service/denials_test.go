package service_test

import (
	"context"
	"sync/atomic"
	"testing"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/yaml"
	"example.org/rls/pkg/service"
)

// chargeWhatDenies loads rules as STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT does.
func chargeWhatDenies(r *rig, rules string) {
	r.t.Helper()
	tree, _, err := yaml.Load([]yaml.Text{{Name: "rules.yaml", Content: []byte(rules)}}, yaml.Options{Charge: descriptors.ChargeDenying})
	if err != nil {
		r.t.Fatal(err)
	}
	r.service.SetTree(tree)
}

// TestChargesWhatDenies: a cost that does not fit uses its limit up, whose
// windows count all hits, and leaves the others alone.
func TestChargesWhatDenies(t *testing.T) {
	const rules = `
domain: d
descriptors:
  - {key: few, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: many, rate_limit: {unit: hour, requests_per_unit: 100}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: bucket, rate_limit: {unit: hour, requests_per_unit: 10, strategy: token_bucket}}
`
	r := start(t, "")
	chargeWhatDenies(r, rules)
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

	// Twice in one request is more than fits: it is denied, although each alone fits.
	r.want(withHits(9, desc("few", "b")), ok, 1)
	if resp := r.call(request(desc("few", "b"), desc("many", "b"), desc("few", "b"))); resp.OverallCode != over {
		t.Errorf("%v", resp)
	}
	r.want(desc("many", "b"), ok, 99)

	// A rule in shadow mode does not keep the others from being charged.
	if resp := r.call(request(withHits(11, desc("shadow", "a")), desc("many", "c"))); resp.OverallCode != ok || resp.Statuses[1].LimitRemaining != 99 {
		t.Errorf("%v", resp)
	}

	// Other strategies count what they admit.
	r.want(withHits(11, desc("bucket", "a")), over, 0)
	r.want(desc("bucket", "a"), ok, 9)
}

// answersOnce is a store that no longer answers after its first call.
type answersOnce struct {
	backends.Store
	calls atomic.Int64
}

func (s *answersOnce) Apply(ctx context.Context, b *backends.Batch) error {
	if s.calls.Add(1) > 1 {
		return stuck{}.Apply(ctx, b)
	}
	return s.Store.Apply(ctx, b)
}

// TestDenialDoesNotWaitForItsCharge: what is decided is answered, whatever
// becomes of the store, long before the caller's deadline.
func TestDenialDoesNotWaitForItsCharge(t *testing.T) {
	r := start(t, "", func(c *service.Config) { c.Store = &answersOnce{Store: c.Store} })
	chargeWhatDenies(r, "domain: d\ndescriptors: [{key: few, rate_limit: {unit: hour, requests_per_unit: 10}}]")
	r.want(withHits(11, desc("few", "a")), over, 0)
}
