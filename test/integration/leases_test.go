package integration

import (
	"strings"
	"testing"

	"example.org/rls/internal/testenv"
)

// TestLeasesAndLocal: a limit with a lease and on_error: local. When the store freezes,
// hits that the process holds pass first, and then its policy admits the rest of its
// share: together never more than the limit, also after the store's return.
func TestLeasesAndLocal(t *testing.T) {
	t.Parallel()
	const limit, before = 200, 120
	for _, remote := range remotes {
		t.Run(remote.name, func(t *testing.T) {
			t.Parallel()
			server, settings := remote.open(t)
			s := serve(t, `
domain: d
descriptors:
  - {key: k, rate_limit: {unit: year, requests_per_unit: 200, on_error: local, lease: {share: 20%, ttl: 10s}}}
`, append(settings, "REPLICAS=1")...)
			admitted := 0
			hit := func(times int) (passed int) {
				for range times {
					if s.hit("d", desc("k", "x")).Code == ok {
						passed++
					}
				}
				admitted += passed
				return passed
			}
			local := func() (n float64) {
				for _, m := range s.metrics("rls_decisions_total{") {
					if m.label("policy") == "local" && m.label("decision") == "allowed" {
						n += m.value
					}
				}
				return n
			}
			if n := hit(before); n != before {
				t.Fatalf("%d of %d hits passed", n, before)
			}
			testenv.Eventually(t, patience, func() bool { return s.stat("rls_lease_hits") > 0 || hit(1) == 0 }, "the process holds hits")
			used := s.stat(`rls_lease_hits_total{event="used"}`)
			server.Pause()
			hit(2 * limit)
			if n := s.stat(`rls_lease_hits_total{event="used"}`) - used; n == 0 {
				t.Error("no hit came from a lease during the outage")
			}
			if local() == 0 {
				t.Error("the policy local admitted no hit")
			}
			during := admitted
			server.Resume()
			s.logs("for hits admitted during the outage")
			hit(limit)
			t.Logf("%d of %d admitted: %d before and during the outage, %v of them by the policy", admitted, limit, during, local())
			if admitted > limit {
				t.Errorf("%d hits passed a limit of %d", admitted, limit)
			}
			if admitted < limit*9/10 {
				t.Errorf("only %d of %d hits passed", admitted, limit)
			}
		})
	}
}

// TestPoliciesOfOneMasterOfThree: a master of a cluster freezes. Limits on the other
// masters are counted all the while, and each limit on the frozen one is decided by its
// policy, also in one request with a counted limit.
func TestPoliciesOfOneMasterOfThree(t *testing.T) {
	t.Parallel()
	cluster := testenv.RedisCluster(t, 3, 0)
	s := serve(t, `
domain: d
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: allow, rate_limit: {unit: year, requests_per_unit: 10, on_error: allow}}
  - {key: deny, rate_limit: {unit: year, requests_per_unit: 10, on_error: deny}}
  - {key: local, rate_limit: {unit: year, requests_per_unit: 10, on_error: local}}
`, append(clusterAt(cluster), "REPLICAS=2")...)
	policies := []string{"user", "allow", "deny", "local"}
	names := strings.Fields("a b c d e f g h i j k l m n o p q r s t u v w x y z")
	for _, policy := range policies {
		for _, name := range names {
			s.want("d", desc(policy, name), ok, 9)
		}
	}
	frozen := map[string]bool{}
	for key := range keysOf(t, cluster.Masters[0].Addr) {
		for _, policy := range policies {
			if _, name, found := strings.Cut(key, policy+"="); found {
				frozen[policy+name[:1]] = true
			}
		}
	}
	of := func(policy string, lost bool) string {
		for _, name := range names {
			if frozen[policy+name] == lost {
				return name
			}
		}
		t.Fatalf("no user of %s with frozen %v", policy, lost)
		return ""
	}
	cluster.Masters[0].Pause()
	defer cluster.Masters[0].Resume()

	for _, policy := range policies {
		name := of(policy, false)
		for left := uint32(9); left > 0; left-- {
			s.want("d", desc(policy, name), ok, left-1)
		}
		s.want("d", desc(policy, name), over, 0)
	}
	lost := func(policy string) *descriptor { return desc(policy, of(policy, true)) }
	admitted := 0
	for range 30 {
		if s.hit("d", lost("allow")).Code != ok {
			t.Fatal("on_error: allow denies")
		}
		if s.hit("d", lost("deny")).Code != over {
			t.Fatal("on_error: deny allows")
		}
		if s.hit("d", lost("local")).Code == ok {
			admitted++
		}
		if _, err := s.try(patience, "d", lost("user")); err == nil {
			t.Fatal("on_error: error has a verdict")
		}
	}
	if admitted != 5 { // of 10, 1 is used, and there are two replicas
		t.Errorf("on_error: local admitted %d hits, want 5", admitted)
	}
	if full := desc("user", of("user", false)); s.call("d", full, lost("allow")).OverallCode != over {
		t.Error("a request passes by policy although a counted limit denies it")
	}
}
