package integration

import (
	"fmt"
	"slices"
	"testing"
)

// Windows of a year neither end during a test nor give back a whole hit.
const reservationRules = `
domain: later
descriptors:
- {key: fixed_window, descriptors: [{key: id, rate_limit: {unit: year, requests_per_unit: 100, reserve: true}}]}
- {key: calendar, descriptors: [{key: id, rate_limit: {unit: year, window: calendar, requests_per_unit: 100, reserve: true}}]}
- {key: sliding_window, descriptors: [{key: id, rate_limit: {unit: year, requests_per_unit: 100, strategy: sliding_window, reserve: true}}]}
- {key: precision, descriptors: [{key: id, rate_limit: {unit: year, requests_per_unit: 100, strategy: sliding_window, precision: 10, reserve: true}}]}
- {key: sliding_log, descriptors: [{key: id, rate_limit: {unit: year, requests_per_unit: 100, strategy: sliding_log, reserve: true}}]}
- {key: token_bucket, descriptors: [{key: id, rate_limit: {unit: year, requests_per_unit: 100, strategy: token_bucket, reserve: true}}]}
- {key: gcra, descriptors: [{key: id, rate_limit: {unit: year, requests_per_unit: 100, strategy: gcra, burst: 100, reserve: true}}]}
- {key: concurrency, descriptors: [{key: id, rate_limit: {unit: year, requests_per_unit: 100, strategy: concurrency, reserve: true}}]}
- {key: give_back, descriptors: [{key: id, rate_limit: {unit: year, requests_per_unit: 100, reserve: {on_expiry: give_back}}}]}
- key: several
  descriptors:
  - key: id
    rate_limits:
    - {unit: year, requests_per_unit: 100, reserve: true}
    - {unit: year, requests_per_unit: 1000, strategy: token_bucket, reserve: {ttl: 1m}}
- key: shadow
  descriptors:
  - key: id
    rate_limits:
    - {unit: year, requests_per_unit: 100, reserve: true}
    - {unit: year, requests_per_unit: 1000, strategy: sliding_window, shadow_mode: true, reserve: true}
    - {unit: year, unit_multiplier: 2, requests_per_unit: 1000, shadow_mode: true, reserve: {on_expiry: give_back}}
    - {unit: year, requests_per_unit: 1000, strategy: gcra, burst: 1000, rollout: 50%, reserve: true}
`

var reservationKeys = []string{"fixed_window", "calendar", "sliding_window", "precision", "sliding_log", "token_bucket", "gcra",
	"concurrency", "give_back", "several", "shadow"}

// TestReservationsOnEveryStore: an id holds, settles, cancels, and is forgotten by a reset while it holds, on each store
// and with each form of keys.
func TestReservationsOnEveryStore(t *testing.T) {
	t.Parallel()
	shared := []string{"CACHE_KEY_FORMAT=ratelimit"}
	forms := [][]string{{}, {"CACHE_KEY_HASH=true", "CACHE_KEY_HASH_SECRET=a secret of more than 16 bytes"}, shared, {"KUADRANT_RLS_ENABLED=true"}}
	for _, store := range stores {
		some := forms
		switch store.name {
		case "Redis cluster", "two memcacheds":
		case "memory", "Redis", "Redis and another for seconds":
			some = forms[:1]
		default:
			continue
		}
		t.Run(store.name, func(t *testing.T) {
			t.Parallel()
			settings, _ := store.start(t)
			for i, form := range some {
				if store.name == "two memcacheds" && slices.Equal(form, shared) {
					continue
				}
				s := serve(t, reservationRules, append(append(settings, withOperator(t)...), append(form, "RESPONSE_DYNAMIC_METADATA=true",
					"DECISION_TIMEOUT=10s", fmt.Sprint("CACHE_KEY_PREFIX=later", i))...)...)
				for _, key := range reservationKeys {
					t.Run(fmt.Sprint(form, key), func(t *testing.T) { s.in(t).reserves(key, store.name != "two memcacheds" && len(form) == 0) })
				}
			}
		})
	}
}

// reserves plays the life of reservations of a rule of reservationRules.
func (s *service) reserves(key string, scans bool) {
	s.t.Helper()
	call := func(id string, hits int64, want string, remaining uint32) {
		s.t.Helper()
		d := costing(uint64(hits), desc(key, "ann", "id", id))
		if hits < 0 {
			d = refund(1, desc(key, "ann", "id", id))
		}
		resp := s.call("later", d)
		got := resp.OverallCode.String() + " " + resp.DynamicMetadata.GetFields()["reservation"].GetStringValue()
		if left := resp.Statuses[0].LimitRemaining; got != want || left != remaining {
			s.t.Errorf("%s of %d: %s with %d remaining, want %s with %d", id, hits, got, left, want, remaining)
		}
	}
	call("a", 40, "OK held", 60)
	call("b", 50, "OK held", 10)
	call("c", 20, "OVER_LIMIT ", 0)
	call("a", 10, "OK settled", 40)
	call("a", 99, "OK unchanged", 40)
	call("b", -1, "OK settled", 90)
	call("c", 0, "OK ", 90)
	call("d", 20, "OK held", 70)
	call("d", 25, "OK settled", 65)
	call("e", 20, "OK held", 45)
	call("f", 20, "OK held", 25)
	call("f", 70, "OK settled", 0)
	reset := func(body string) {
		s.t.Helper()
		if code, got := s.operate("/v1/reset", body); code != 200 || got.Changed == 0 {
			s.t.Errorf("reset: %d %+v", code, got)
		}
	}
	reset(fmt.Sprintf(`{"domain":"later","descriptors":[{"entries":[{"key":%q,"value":"ann"},{"key":"id","value":"any"}]}]}`, key))
	call("g", 10, "OK held", 90)
	call("a", 10, "OK unchanged", 90) // it is settled until its ttl is over
	call("e", 5, "OK held", 85)
	if scans {
		reset(fmt.Sprintf(`{"domain":"later","rule":"later.%s.id","all_matching":true}`, key))
		call("g", 0, "OK ", 100)
		call("e", 1, "OK held", 99)
	}
	if key == "shadow" { // limits that are watched have room for c, too
		return
	}
	rule, n, more := fmt.Sprintf(`domain="later",rule="later.%s.id"`, key), 1.0, 0.0
	if key == "several" {
		n = 2
	}
	if scans {
		more = 1
	}
	for metric, want := range map[string]float64{
		`rls_reserved_hits_total{` + rule + `}`:                       n * (165 + more),
		`rls_settled_hits_total{direction="charged",` + rule + `}`:    5 + 25 + (n-1)*55,
		`rls_settled_hits_total{direction="given_back",` + rule + `}`: n * 80,
		`rls_settled_hits_total{direction="uncharged",` + rule + `}`:  25,
	} {
		if got := s.stat(metric); got != want {
			s.t.Errorf("%s is %v, want %v", metric, got, want)
		}
	}
}
