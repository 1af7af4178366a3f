package integration

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"

	"example.org/rls/internal/testenv"
)

const manyTenants = 10_000

// manyRules has ten thousand rules besides the two that callers ask for. Generations
// differ in a limit that no caller asks for.
func manyRules(generation int) string {
	var b strings.Builder
	b.WriteString("domain: all\ndescriptors:\n")
	b.WriteString("  - {key: wide, rate_limit: {unit: year, requests_per_unit: 4000000000}}\n")
	b.WriteString("  - {key: shut, rate_limit: {unit: year, requests_per_unit: 0}}\n")
	fmt.Fprintf(&b, "  - {key: generation, rate_limit: {unit: year, requests_per_unit: %d}}\n", generation)
	for i := range manyTenants {
		fmt.Fprintf(&b, "  - {key: tenant, value: t%d, rate_limit: {unit: minute, requests_per_unit: %d}}\n", i, i)
	}
	return b.String()
}

// manyRulesOverXDS is manyRules as a control plane sends it.
func manyRulesOverXDS(generation int) *ratelimit.RateLimitConfig {
	rule := func(key, value string, unit ratelimit.RateLimitUnit, requests int) *ratelimit.RateLimitDescriptor {
		return &ratelimit.RateLimitDescriptor{Key: key, Value: value, RateLimit: &ratelimit.RateLimitPolicy{Unit: unit, RequestsPerUnit: uint32(requests)}}
	}
	c := &ratelimit.RateLimitConfig{Name: "all", Domain: "all", Descriptors: []*ratelimit.RateLimitDescriptor{
		rule("wide", "", ratelimit.RateLimitUnit_YEAR, 4_000_000_000),
		rule("shut", "", ratelimit.RateLimitUnit_YEAR, 0),
		rule("generation", "", ratelimit.RateLimitUnit_YEAR, generation),
	}}
	for i := range manyTenants {
		c.Descriptors = append(c.Descriptors, rule("tenant", fmt.Sprintf("t%d", i), ratelimit.RateLimitUnit_MINUTE, i))
	}
	return c
}

// callers ask a service at a steady pace and count.
type callers struct {
	t                    *testing.T
	calls, counted, slow atomic.Int64 // counted: hits on wide; slow: above 20 ms
}

// ask calls client once, for a limit that is never reached or one that always
// is, and reports whether the answer is right.
func (c *callers) ask(client *service, shut bool) bool {
	key, want := "wide", ok
	if shut {
		key, want = "shut", over
	}
	begin := time.Now()
	resp, err := client.try(patience, "all", desc(key, "x"))
	if time.Since(begin) > 20*time.Millisecond {
		c.slow.Add(1)
	}
	c.calls.Add(1)
	if err != nil || resp.OverallCode != want || resp.Statuses[0].CurrentLimit == nil {
		c.t.Errorf("%s: %v, %v", key, resp, err)
		return false
	}
	if !shut {
		c.counted.Add(1)
	}
	return true
}

// TestReloadsUnderLoad: while ten thousand rules are loaded two hundred times
// nobody gets a wrong answer, no hit is forgotten, and callers wait no longer than
// the callers of a service beside it whose rules stay.
func TestReloadsUnderLoad(t *testing.T) {
	t.Run("files", func(t *testing.T) {
		s := serve(t, manyRules(1))
		reloadUnderLoad(t, s, 20, func(generation int) { s.write("rules.yaml", manyRules(generation)) })
	})
	t.Run("over xDS", func(t *testing.T) {
		at, plane := startPlane(t, manyRulesOverXDS(1))
		s := serve(t, "", xdsAt(at, "SOTW")...)
		reloadUnderLoad(t, s, 180, func(generation int) { plane.Set(strconv.Itoa(generation), manyRulesOverXDS(generation)) })
	})
}

func reloadUnderLoad(t *testing.T, s *service, reloads int, reload func(generation int)) {
	const each, pace, loads = 4, 10 * time.Millisecond, `rls_config_loads_total{result="success"}`
	still := serve(t, manyRules(1))
	reloaded, beside := &callers{t: t}, &callers{t: t}
	var stop atomic.Bool
	var running sync.WaitGroup
	for caller := range each {
		a, b := s.in(t), still.in(t)
		a.client, b.client = s.dial(), still.dial()
		shut := caller%2 == 1
		running.Go(func() {
			tick := time.NewTicker(pace)
			defer tick.Stop()
			for range tick.C {
				if stop.Load() || !reloaded.ask(a, shut) || !beside.ask(b, shut) {
					return
				}
			}
		})
	}
	for generation := 2; generation < 2+reloads; generation++ {
		before := s.stat(loads)
		reload(generation)
		testenv.Eventually(t, patience, func() bool { return s.stat(loads) > before }, "another load")
	}
	s.inForce("all.generation: unit=YEAR requests_per_unit=" + strconv.Itoa(1+reloads) + ",")
	stop.Store(true)
	running.Wait()
	resp, err := s.try(patience, "all", desc("wide", "x"))
	if err != nil {
		t.Fatal(err)
	}
	if got := 4_000_000_000 - int64(resp.Statuses[0].LimitRemaining) - 1; got != reloaded.counted.Load() {
		t.Errorf("%d hits are counted after %d reloads, %d were sent", got, reloads, reloaded.counted.Load())
	}
	// Other processes may have the processors, so no time is asserted. Only a reload
	// that holds up callers makes this service slower than the one beside it.
	slow, usual, calls := reloaded.slow.Load(), beside.slow.Load(), reloaded.calls.Load()
	t.Logf("%d calls during %d reloads: %d took more than 20 ms, %d beside", calls, reloads, slow, usual)
	if slow > usual+calls/10 {
		t.Errorf("%d of %d calls took more than 20 ms; %d where the rules stayed", slow, calls, usual)
	}
}
