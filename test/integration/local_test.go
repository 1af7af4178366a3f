package integration

import (
	"testing"
	"time"

	"example.org/rls/internal/testenv"
)

// TestLocal: while Redis is killed or frozen two processes decide limits with the
// policy local, each with half of what remained. Within 2 s of its return Redis
// has their hits, and never more than the limit.
func TestLocal(t *testing.T) {
	t.Parallel()
	const limit, half = 20, 5
	redis := testenv.Redis(t, "--appendonly", "yes", "--appendfsync", "always")
	settings, rules := redisAt(redis.Addr), strategyRules(limit, "admitted")
	both := []*service{
		serve(t, rules, append(settings, "ON_ERROR=local", "REPLICAS=2")...),
		serve(t, rules, append(settings, "ON_ERROR=local", "REPLICAS=2")...),
	}
	judge := serve(t, rules, settings...) // it answers what Redis says, or nothing
	remaining := func(s *service, strategy, user string) (uint32, error) {
		resp, err := s.try(patience, "all", costing(0, desc(strategy, user)))
		if err != nil {
			return 0, err
		}
		return resp.Statuses[0].LimitRemaining, nil
	}
	for _, outage := range []struct {
		name       string
		begin, end func()
	}{{"killed", redis.Kill, redis.Restart}, {"frozen", redis.Pause, redis.Resume}} {
		user := outage.name
		for _, strategy := range strategies {
			for range limit / 4 {
				for _, s := range both {
					s.hit("all", desc(strategy, user))
				}
			}
			if left, err := remaining(both[0], strategy, user); err != nil || left != limit/2 {
				t.Fatalf("%s: %d remain (%v), want %d", strategy, left, err, limit/2)
			}
		}
		outage.begin()
		for _, strategy := range strategies {
			for i, s := range both {
				admitted := 0
				for range half + 3 {
					if s.hit("all", desc(strategy, user)).Code == ok {
						admitted++
					}
				}
				if admitted != half {
					t.Errorf("Redis is %s: process %d admitted %d hits of a %s, want %d", outage.name, i, admitted, strategy, half)
				}
			}
		}
		outage.end()
		back := time.Now()
		for _, strategy := range strategies {
			testenv.Eventually(t, patience, func() bool {
				left, err := remaining(judge, strategy, user)
				return err == nil && left == 0
			}, "Redis has the hits of a "+strategy)
		}
		if took := time.Since(back); took > 2*time.Second {
			t.Errorf("Redis has the hits %v after its return, want at most 2s", took)
		}
		for _, strategy := range strategies {
			for _, s := range both {
				if got := s.hit("all", desc(strategy, user)); got.Code == ok {
					t.Errorf("%s: one hit more than the limit passes: %v", strategy, got)
				}
			}
		}
	}
}
