package integration

import (
	"fmt"
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"example.org/rls/internal/testenv"
)

var strategies = []string{"fixed_window", "sliding_window", "sliding_log", "token_bucket", "gcra", "leaky_bucket"}

// strategyRules has a limit of each strategy, under the strategy's name.
func strategyRules(limit int, charge string) string {
	rules := "domain: all\ncharge: " + charge + "\ndescriptors:\n"
	for _, strategy := range strategies {
		burst := ""
		if strategy == "gcra" {
			burst = fmt.Sprintf(", burst: %d", limit)
		}
		rules += fmt.Sprintf("  - {key: %s, rate_limit: {unit: year, requests_per_unit: %d, strategy: %s%s}}\n",
			strategy, limit, strategy, burst)
	}
	return rules
}

// TestTwoProcessesAdmitTheLimitTogether: two processes that share a store admit
// exactly the limit between them.
func TestTwoProcessesAdmitTheLimitTogether(t *testing.T) {
	t.Parallel()
	const limit, callers, calls = 40, 4, 20 // twice two processes' callers
	for name, settings := range map[string][]string{
		"Redis":     redisAt(testenv.Redis(t).Addr),
		"memcached": memcachedAt(testenv.Memcached(t).Addr),
	} {
		for _, charge := range []string{"always", "admitted"} {
			t.Run(name+" "+charge, func(t *testing.T) {
				both := []*service{
					serve(t, strategyRules(limit, charge), append(settings, "CACHE_KEY_PREFIX="+charge)...),
					serve(t, strategyRules(limit, charge), append(settings, "CACHE_KEY_PREFIX="+charge)...),
				}
				for _, strategy := range strategies {
					got := together(callers, calls, func(caller, _ int) sample {
						return check(both[caller%2].client, patience, "all", desc(strategy, "everybody"))
					})
					if len(got.only(verdict(ok))) != limit || len(got.only(verdict(over))) != callers*calls-limit {
						t.Errorf("%s: %v; want %d admitted and %d denied", strategy, got.ends(), limit, callers*calls-limit)
					}
				}
			})
		}
	}
}

// TestAllOrNothingWhileOthersCharge: exactly the admitted hits are charged, although
// many callers ask at once. On stores that cannot step both counters atomically, a
// caller may be denied while the charge of another caller is given back.
func TestAllOrNothingWhileOthersCharge(t *testing.T) {
	t.Parallel()
	const plenty, scarce, callers, calls = 1000, 30, 4, 20
	rules := fmt.Sprintf(`
domain: d
charge: admitted
descriptors:
  - {key: plenty, rate_limit: {unit: year, requests_per_unit: %d}}
  - {key: scarce, rate_limit: {unit: year, requests_per_unit: %d, strategy: sliding_log}}
`, plenty, scarce)
	for _, c := range []struct {
		name     string
		settings []string
		atomic   bool
	}{
		{"Redis", redisAt(testenv.Redis(t).Addr), true},
		{"Redis cluster", clusterAt(testenv.RedisCluster(t, 3, 0)), false},
		{"memcached", memcachedAt(testenv.Memcached(t).Addr), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			both := []*service{serve(t, rules, c.settings...), serve(t, rules, c.settings...)}
			got := together(callers, calls, func(caller, _ int) sample {
				return check(both[caller%2].client, patience, "d", desc("plenty", "x"), desc("scarce", "x"))
			})
			if len(got.only(failed)) > 0 {
				t.Errorf("calls failed: %v", got.ends())
			}
			n := uint32(len(got.only(verdict(ok))))
			if n > scarce || n == 0 || c.atomic && n < scarce {
				t.Errorf("%d were admitted, the limit is %d", n, scarce)
			}
			testenv.Eventually(t, patience, func() bool {
				resp := both[0].call("d", costing(0, desc("plenty", "x")), costing(0, desc("scarce", "x")))
				return resp.Statuses[0].LimitRemaining == plenty-n && resp.Statuses[1].LimitRemaining == scarce-n
			}, fmt.Sprintf("%d are charged to both limits", n))
		})
	}
}

// TestOnlyTheDenyingLimitIsCharged: with STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT a denied
// request charges the limits that deny it and no others, as in
// envoyproxy/ratelimit, in domains whose rules do not say charge.
func TestOnlyTheDenyingLimitIsCharged(t *testing.T) {
	t.Parallel()
	const descriptors = `
descriptors:
  - {key: few, rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: many, rate_limit: {unit: year, requests_per_unit: 100}}
`
	for name, settings := range map[string][]string{
		"memory": nil, "Redis": redisAt(testenv.Redis(t).Addr), "memcached": memcachedAt(testenv.Memcached(t).Addr),
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, "domain: default"+descriptors, append(settings, "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true")...)
			s.write("admitted.yaml", "domain: own\ncharge: admitted"+descriptors)
			s.inForce("own.few")
			for domain, want := range map[string]pb.RateLimitResponse_Code{"default": over, "own": ok} {
				s.hit(domain, costing(8, desc("few", "x")))
				resp := s.call(domain, desc("many", "x"), costing(5, desc("few", "x")))
				if resp.OverallCode != over || resp.Statuses[0].Code != ok || resp.Statuses[0].LimitRemaining != 100 {
					t.Errorf("%s: %v", domain, resp)
				}
				if got := s.hit(domain, desc("few", "x")); got.Code != want {
					t.Errorf("%s: after 5 that did not fit, one more: %v", domain, got)
				}
				s.want(domain, desc("many", "x"), ok, 99)
			}
		})
	}
}

func TestRaisedLimitCountsOn(t *testing.T) {
	t.Parallel()
	s := serve(t, strategyRules(3, "admitted"), redisAt(testenv.Redis(t).Addr)...)
	for _, strategy := range strategies {
		for left := range uint32(3) {
			s.want("all", desc(strategy, "x"), ok, 2-left)
		}
		s.want("all", desc(strategy, "x"), over, 0)
	}
	s.write("rules.yaml", strategyRules(5, "admitted"))
	s.inForce("requests_per_unit=5")
	for _, strategy := range strategies {
		switch strategy {
		case "fixed_window", "sliding_window", "sliding_log":
			s.want("all", desc(strategy, "x"), ok, 1)
			s.want("all", desc(strategy, "x"), ok, 0)
			s.want("all", desc(strategy, "x"), over, 0)
		default: // each amount has a bucket of its own, which begins full
			s.want("all", desc(strategy, "x"), ok, 4)
		}
		s.want("all", desc(strategy, "y"), ok, 4)
	}
	// Lowered again, a window counts the hits that were admitted while it was higher.
	s.write("rules.yaml", strategyRules(4, "admitted"))
	s.inForce("requests_per_unit=4")
	for _, strategy := range strategies {
		switch strategy {
		case "fixed_window", "sliding_window", "sliding_log":
			s.want("all", desc(strategy, "x"), over, 0)
		default:
			s.want("all", desc(strategy, "x"), ok, 3)
		}
	}
}

func TestBrokenRulesKeepTheLastGoodOnes(t *testing.T) {
	t.Parallel()
	s := serve(t, strategyRules(3, "always"))
	s.want("all", desc("gcra", "x"), ok, 2)
	s.write("rules.yaml", `domain: all
descriptors:
  - key: gcra
    rate_limit: {unit: minuet, requests_per_unit: 100}
  - key: other
    rate_limt: {unit: minute, requests_per_unit: 100}
`)
	for _, problem := range []string{ // as they stand in a log line in JSON
		`rules.yaml:4:24: rate_limit.unit: unknown unit \"minuet\"; did you mean \"minute\"?`,
		`rules.yaml:6:5: `, `rate_limt`, `did you mean \"rate_limit\"?`,
	} {
		s.logs(problem)
	}
	if !s.healthy() {
		t.Error("the program is unhealthy")
	}
	if got := s.stat(`rls_config_loads_total{result="error"}`); got != 1 {
		t.Errorf("%v refused loads, want 1", got)
	}
	s.want("all", desc("gcra", "x"), ok, 1)
	s.want("all", desc("other", "x"), ok, 0) // no limit

	s.write("rules.yaml", strings.Replace(strategyRules(3, "always"), "key: gcra", "key: other", 1))
	s.inForce("all.other")
	s.want("all", desc("other", "x"), ok, 2)
}
