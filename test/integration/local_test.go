package integration

import (
	"slices"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
)

// TestLocal: while the store is killed or frozen two processes decide limits with
// the policy local, each with half of what remained. Within 2 s of its return the
// store has their hits, and never more than the limit.
func TestLocal(t *testing.T) {
	t.Parallel()
	killed := testenv.Redis(t, "--appendonly", "yes", "--appendfsync", "always")
	frozen, memcached := testenv.Redis(t), testenv.Memcached(t)
	for name, c := range map[string]struct {
		settings   []string
		begin, end func() // of the outage
	}{
		"Redis killed":     {redisAt(killed.Addr), killed.Kill, killed.Restart},
		"Redis frozen":     {redisAt(frozen.Addr), frozen.Pause, frozen.Resume},
		"memcached frozen": {memcachedAt(memcached.Addr), memcached.Pause, memcached.Resume},
	} {
		t.Run(name, func(t *testing.T) {
			const limit, half = 20, 5
			rules := strategyRules(limit, "admitted")
			both := []*service{
				serve(t, rules, append(c.settings, "ON_ERROR=local", "REPLICAS=2")...),
				serve(t, rules, append(c.settings, "ON_ERROR=local", "REPLICAS=2")...),
			}
			witness := serve(t, rules, c.settings...) // it answers what the store says, or an error
			remaining := func(s *service, strategy string) (uint32, error) {
				resp, err := s.try(patience, "all", costing(0, desc(strategy, "everybody")))
				if err != nil {
					return 0, err
				}
				return resp.Statuses[0].LimitRemaining, nil
			}
			for _, strategy := range strategies {
				for i := range limit / 2 {
					both[i%2].hit("all", desc(strategy, "everybody"))
				}
				if left, err := remaining(both[0], strategy); err != nil || left != limit/2 {
					t.Fatalf("%s: %d remain (%v), want %d", strategy, left, err, limit/2)
				}
			}
			c.begin()
			for _, strategy := range strategies {
				for i, s := range both {
					admitted := 0
					for range half + 3 {
						if s.hit("all", desc(strategy, "everybody")).Code == ok {
							admitted++
						}
					}
					if admitted != half {
						t.Errorf("%s: process %d admitted %d hits, want %d", strategy, i, admitted, half)
					}
				}
			}
			c.end()
			back := time.Now()
			both[0].within(2*time.Second, func() bool {
				return !slices.ContainsFunc(strategies, func(strategy string) bool {
					left, err := remaining(witness, strategy)
					return err != nil || left > 0
				})
			}, "the store has the hits of all strategies")
			t.Logf("the store has the hits %v after its return", time.Since(back))
			for _, strategy := range strategies {
				for i, s := range both {
					if got := s.hit("all", desc(strategy, "everybody")); got.Code == ok {
						t.Errorf("%s: process %d admits a hit beyond the limit: %v", strategy, i, got)
					}
				}
			}
		})
	}
}
