package integration

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
)

// usersOf are the users whose counters a Redis holds.
func usersOf(t *testing.T, server *testenv.Server) (names []string) {
	t.Helper()
	for key := range keysOf(t, server.Addr) {
		if _, name, found := strings.Cut(key, "user="); found {
			names = append(names, name[:strings.IndexAny(name, "|}")])
		}
	}
	return names
}

// TestClusterLosesMasters: one master freezes and another dies. Limits on other
// masters are decided all the while, and those on the lost one as soon as its
// replica has taken over.
func TestClusterLosesMasters(t *testing.T) {
	t.Parallel()
	cluster := testenv.RedisCluster(t, 3, 1)
	s := serve(t, plenty, clusterAt(cluster)...)
	crowd := users(60)
	flow := s.pass(300, 100*time.Millisecond, crowd...)
	testenv.Eventually(t, patience, func() bool { return len(flow.since(time.Time{})) > 2*len(crowd) }, "each user has a counter")
	for i, c := range []struct {
		how  string
		lose func(*testenv.Server)
	}{
		{"frozen", (*testenv.Server).Pause},
		{"killed", (*testenv.Server).Kill},
	} {
		lost, replica := usersOf(t, cluster.Masters[i]), operate(t, cluster.Replicas[i].Addr, "")
		if len(lost) < len(crowd)/10 {
			t.Fatalf("%d users on master %d", len(lost), i)
		}
		c.lose(cluster.Masters[i])
		gone := time.Now()
		testenv.Eventually(t, patience, func() bool { return replica.does("ROLE").([]any)[0] == "master" }, "the replica is promoted")
		promoted := time.Now()
		testenv.Eventually(t, patience, func() bool {
			return len(flow.since(promoted.Add(time.Second)).only(of(lost))) > 50
		}, "calls go on")
		got := flow.since(gone)
		others := got.only(func(a sample) bool { return !of(lost)(a) })
		outage, after := got.only(sentBetween(gone, promoted), of(lost)), got.only(sentAfter(promoted.Add(time.Second)), of(lost))
		t.Logf("%s: promoted after %v; failed: %d of %d meanwhile, %d of %d on other masters, %d of %d a second later", c.how, promoted.Sub(gone),
			len(outage.only(failed)), len(outage), len(others.only(failed)), len(others), len(after.only(failed)), len(after))
		flow.atLeast(t, 0.99, verdict(ok), others, "calls on other masters are decided")
		flow.atLeast(t, 0.80, failed, outage, "calls on the lost master fail")
		flow.atLeast(t, 0.99, verdict(ok), after, "calls are decided a second after the promotion")
		if len(s.log.With(cluster.Masters[i].Addr)) == 0 {
			t.Errorf("the log does not name %s", cluster.Masters[i].Addr)
		}
		testenv.Eventually(t, patience, func() bool { return s.stat(`rls_store_servers_away{role="main"}`) == 0 }, "a master that has lost its slots is not away")
	}
}

// TestSlotMovesUnderLoad: the slot of a hot key moves to another master and back.
// No call fails, and exactly the limit is admitted.
func TestSlotMovesUnderLoad(t *testing.T) {
	t.Parallel()
	const rules = `
domain: d
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 1000}}
`
	const limit, callers = 1000, 4
	cluster := testenv.RedisCluster(t, 2, 0)
	s := serve(t, rules, append(clusterAt(cluster), "DECISION_TIMEOUT=0s")...)
	s.want("d", costing(0, desc("user", "x")), ok, limit)
	s.want("d", desc("user", "x"), ok, limit-1)
	from, to := operate(t, cluster.Masters[0].Addr, ""), operate(t, cluster.Masters[1].Addr, "")
	if len(keysOf(t, cluster.Masters[0].Addr)) == 0 {
		from, to = to, from
	}
	var mu sync.Mutex
	var got samples
	moved := make(chan struct{})
	var running sync.WaitGroup
	for range callers {
		running.Go(func() {
			for {
				select {
				case <-moved:
					return
				default:
				}
				a := check(s.client, patience, "d", desc("user", "x"))
				mu.Lock()
				got = append(got, a)
				mu.Unlock()
			}
		})
	}
	called := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(got)
	}
	const moves = 6
	for i := range moves {
		before := called()
		testenv.Eventually(t, patience, func() bool { return called() > before+2*limit/moves }, "calls go on")
		from.moveSlot(to)
		from, to = to, from
		if i == 0 && called() >= limit {
			t.Error("the limit was reached before the slot moved")
		}
	}
	close(moved)
	running.Wait()
	if n := len(got.only(failed)); n > 0 {
		t.Errorf("%d of %d calls failed: %v", n, len(got), got.ends())
	}
	if n := len(got.only(verdict(ok))); n != limit-1 {
		t.Errorf("%d of %d calls were admitted, want %d", n, len(got), limit-1)
	}
}

// moveSlot moves the slot of this master's only key to another master.
func (o *operator) moveSlot(to *operator) {
	o.t.Helper()
	host, port, err := net.SplitHostPort(to.client.Options().Addr)
	if err != nil {
		o.t.Fatal(err)
	}
	key := o.does("KEYS", "*").([]any)[0]
	slot := o.does("CLUSTER", "KEYSLOT", key)
	id, toID := o.does("CLUSTER", "MYID"), to.does("CLUSTER", "MYID")
	to.does("CLUSTER", "SETSLOT", slot, "IMPORTING", id)
	o.does("CLUSTER", "SETSLOT", slot, "MIGRATING", toID)
	o.does("MIGRATE", host, port, key, 0, 5000)
	to.does("CLUSTER", "SETSLOT", slot, "NODE", toID)
	o.does("CLUSTER", "SETSLOT", slot, "NODE", toID)
}
