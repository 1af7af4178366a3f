package integration

import (
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"example.org/rls/internal/testenv"
)

const onError = `
domain: d
descriptors:
  - {key: error, rate_limit: {unit: year, requests_per_unit: 9}}
  - {key: allow, rate_limit: {unit: year, requests_per_unit: 9, on_error: allow}}
  - {key: deny, rate_limit: {unit: year, requests_per_unit: 9, on_error: deny}}
  - {key: local, rate_limit: {unit: year, requests_per_unit: 20, on_error: local}}
  - {key: zero, rate_limit: {unit: year, requests_per_unit: 0, on_error: allow}}
`

// TestPoliciesOfAFrozenStore: while the server does not answer, the policy of each
// limit decides. Hits that this process admitted are charged to the server when it is
// back.
func TestPoliciesOfAFrozenStore(t *testing.T) {
	t.Parallel()
	for _, remote := range remotes {
		t.Run(remote.name, func(t *testing.T) {
			server := remote.start(t)
			s := serve(t, onError, append(remote.at(server.Addr), "REPLICAS=2", "RESPONSE_DYNAMIC_METADATA=true")...)
			if st := s.hit("d", costing(10, desc("local", "x"))); st.Code != ok || st.LimitRemaining != 10 {
				t.Fatalf("counted: %v", st)
			}
			server.Pause()

			decided := func(key string, want pb.RateLimitResponse_Code, policy string) {
				t.Helper()
				resp := s.call("d", desc(key, "x"))
				if got := resp.DynamicMetadata.AsMap()["policy"]; resp.OverallCode != want || got != policy {
					t.Errorf("%s: %v; want %v by %s", key, resp, want, policy)
				}
			}
			decided("allow", ok, "allow")
			decided("deny", over, "deny")
			decided("zero", over, "allow")
			// 10 of 20 were used, and there are two replicas: 5 more.
			for range 5 {
				decided("local", ok, "local")
			}
			decided("local", over, "local")
			s.undecided("d", desc("error", "x"), "")
			// A denial wins over the limit that is undecided.
			if resp := s.call("d", desc("error", "x"), desc("deny", "x")); resp.OverallCode != over {
				t.Errorf("error and deny: %v", resp)
			}

			server.Resume()
			began := time.Now()
			testenv.Eventually(t, patience, func() bool {
				resp, err := s.try(time.Second, "d", costing(0, desc("local", "x")))
				// Calls that were on the wire when the server froze may count twice.
				return err == nil && resp.DynamicMetadata.AsMap()["policy"] == nil && resp.Statuses[0].LimitRemaining <= 5
			}, "the store has the hits that were admitted here")
			t.Logf("charged %v after the return", time.Since(began).Round(time.Millisecond))
		})
	}
}

// TestPoliciesOfOneServerOfSeveral: the limit per second is on a Redis that is
// frozen. The other limit of the descriptor is counted on and charged.
func TestPoliciesOfOneServerOfSeveral(t *testing.T) {
	t.Parallel()
	main, seconds := testenv.Redis(t), testenv.Redis(t)
	s := serve(t, `
domain: d
descriptors:
  - key: k
    rate_limits:
      - {unit: second, requests_per_unit: 1000, on_error: allow}
      - {unit: year, requests_per_unit: 5}
`, perSecondAt(main.Addr, seconds.Addr)...)
	s.want("d", desc("k", "x"), ok, 4)
	seconds.Pause()
	for _, left := range []uint32{3, 2, 1, 0} {
		s.want("d", desc("k", "x"), ok, left)
	}
	s.want("d", desc("k", "x"), over, 0)
	seconds.Resume()
}
