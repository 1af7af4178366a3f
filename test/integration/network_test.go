package integration

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"example.org/rls/internal/testenv"
)

// TestResetReplies: the network resets a connection in place of each hundredth
// reply. About so many calls fail, the others are decided, and at most the calls
// that failed were charged without having been admitted.
func TestResetReplies(t *testing.T) {
	t.Parallel()
	const rules = `
domain: d
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 2000}}
`
	const limit, callers, calls, every = 2000, 4, 600, 100
	for _, store := range remotes {
		t.Run(store.name, func(t *testing.T) {
			t.Parallel()
			network, settings := store.relayed(t)
			s := serve(t, rules, settings...)
			s.want("d", costing(0, desc("user", "x")), ok, limit)
			network.CutEvery(every)
			got := together(callers, calls, func(int, int) sample { return check(s.client, patience, "d", desc("user", "x")) })
			network.Heal()
			lost, admitted := len(got.only(failed)), len(got.only(verdict(ok)))
			t.Logf("%d admitted, %d failed of %d", admitted, lost, len(got))
			// One reply may carry the results of all callers that wait.
			if lost == 0 || lost > callers*len(got)/every {
				t.Errorf("%d of %d calls failed, want about one in %d", lost, len(got), every)
			}
			if admitted > limit || admitted+lost < limit {
				t.Errorf("%d admitted and %d not answered, of a limit of %d", admitted, lost, limit)
			}
			if n := len(got.only(func(a sample) bool { return failed(a) && a.code != codes.Unavailable })); n > 0 {
				t.Errorf("%d calls failed otherwise than UNAVAILABLE", n)
			}
			s.want("d", desc("user", "x"), over, 0)
		})
	}
}

// TestVanishedPeer: the store's peer vanishes without RST, as when a firewall
// forgets its connections. New connections are opened within a second.
func TestVanishedPeer(t *testing.T) {
	t.Parallel()
	for _, store := range remotes {
		t.Run(store.name, func(t *testing.T) {
			t.Parallel()
			network, settings := store.relayed(t)
			s := serve(t, plenty, settings...)
			flow := s.pass(200, envoysTimeout, users(10)...)
			settle(s, flow)
			opened, vanished := network.Opened(), time.Now()
			network.Forget()
			testenv.Eventually(t, patience, func() bool {
				return len(flow.since(vanished.Add(noticed)).only(verdict(ok))) > 300
			}, "calls are decided on new connections")
			got := flow.end()
			meanwhile, after := got.only(sentBetween(vanished, vanished.Add(noticed))), got.only(sentAfter(vanished.Add(noticed)))
			t.Logf("%d of %d failed within %v, then %d of %d", len(meanwhile.only(failed)), len(meanwhile), noticed, len(after.only(failed)), len(after))
			if network.Opened() == opened {
				t.Error("no connection was opened: the peer has not vanished")
			}
			flow.atLeast(t, 0.99, verdict(ok), after, "calls after that are decided")
		})
	}
}

// noticed is the time in which a peer that has vanished is noticed: a second,
// and the time that a busy machine takes to open connections.
const noticed = 1300 * time.Millisecond

// settle returns when the calls of the last fifth of a second were decided.
func settle(s *service, f *traffic) {
	s.t.Helper()
	testenv.Eventually(s.t, patience, func() bool {
		recent := f.since(time.Now().Add(-200 * time.Millisecond))
		return len(recent) > 10 && len(recent.only(failed)) == 0
	}, "calls are decided")
}

// TestScriptFlush: somebody removes the scripts from Redis, again and again,
// and no caller notices.
func TestScriptFlush(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	s := serve(t, strategyRules(50, "admitted"), redisAt(server.Addr)...)
	o := operate(t, server.Addr, "")
	for _, strategy := range strategies {
		for left := range uint32(50) {
			if left%10 == 0 {
				o.does("SCRIPT", "FLUSH")
			}
			s.want("all", desc(strategy, "x"), ok, 49-left)
		}
		s.want("all", desc(strategy, "x"), over, 0)
	}
	if lines := s.log.With("is away"); len(lines) > 0 {
		t.Errorf("the log has %q", lines)
	}
}

// TestOneOfThreeMemcachedsIsFrozen: the limits on the others are decided as ever.
func TestOneOfThreeMemcachedsIsFrozen(t *testing.T) {
	t.Parallel()
	servers := []*testenv.Server{testenv.Memcached(t), testenv.Memcached(t), testenv.Memcached(t)}
	s := serve(t, plenty, memcachedAt(servers[0].Addr, servers[1].Addr, servers[2].Addr)...)
	crowd := users(60)
	flow := s.pass(300, envoysTimeout, crowd...)
	settle(s, flow)
	servers[0].Pause()
	froze := time.Now()
	testenv.Eventually(t, patience, func() bool { return s.stat(`rls_store_servers_away{role="main"}`) == 1 }, "one server is away")
	var on [2][]string // users on the frozen server, and on the others
	for _, d := range crowd {
		where := 0
		if _, err := s.try(patience, "d", d); err == nil {
			where = 1
		}
		on[where] = append(on[where], d.Entries[0].Value)
	}
	if len(on[0]) < 5 || len(on[1]) < 20 {
		t.Fatalf("%d of %d users are on the frozen server", len(on[0]), len(crowd))
	}
	testenv.Eventually(t, patience, func() bool { return len(flow.since(froze)) > 900 }, "calls go on")
	servers[0].Resume()
	back := time.Now()
	testenv.Eventually(t, patience, func() bool {
		return len(flow.since(back.Add(time.Second))) > 300
	}, "calls go on")
	got := flow.end()
	frozen, live, after := got.only(sentBetween(froze, back), of(on[0])), got.only(sentBetween(froze, back), of(on[1])), got.only(sentAfter(back.Add(time.Second)))
	t.Logf("%d of %d failed on the frozen server, %d of %d on the others, %d of %d after", len(frozen.only(failed)), len(frozen),
		len(live.only(failed)), len(live), len(after.only(failed)), len(after))
	flow.atLeast(t, 0.99, verdict(ok), live, "calls on the live servers are decided")
	flow.atLeast(t, 0.95, failed, frozen, "calls on the frozen server fail")
	flow.atLeast(t, 0.99, verdict(ok), after, "calls are decided a second after the server's return")
	if lines := s.log.With(servers[0].Addr); len(lines) != 2 {
		t.Errorf("the log has %q, want a line when the server goes and one when it is back", lines)
	}
}
