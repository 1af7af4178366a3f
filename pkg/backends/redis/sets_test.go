package redis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/redis"
)

// promote has s make calls on key until replica is the master.
func promote(t *testing.T, s backends.Store, key string, replica *testenv.Server) {
	t.Helper()
	c := client(t, replica)
	testenv.Eventually(t, 20*time.Second, func() bool {
		_, _ = try(s, 20*time.Millisecond, hit(key))
		role, err := c.Do(context.Background(), "ROLE").Slice()
		return err == nil && role[0] == "master"
	}, "the replica is promoted")
}

func TestSentinelFailover(t *testing.T) {
	set := testenv.Sentinel(t)
	s := open(t, redis.Options{Type: "sentinel", URL: set.MasterName + "," + strings.Join(set.Addrs(), ",")})
	must(t, s, hit("a"))
	set.Master.Kill()
	promote(t, s, "meanwhile", set.Replica)
	testenv.Eventually(t, 5*time.Second, func() bool {
		_, err := try(s, 200*time.Millisecond, hit("a"))
		return err == nil
	}, "the store follows")
}

// spread is n operations on keys in many slots.
func spread(name string, n int) []backends.Op {
	ops := make([]backends.Op, n)
	for i := range ops {
		ops[i] = hit(fmt.Sprintf("%s.%d", name, i))
	}
	return ops
}

func openCluster(t *testing.T, c *testenv.Cluster) *redis.Store {
	t.Helper()
	return open(t, redis.Options{Type: "cluster", URL: strings.Join(c.Addrs(), ",")})
}

// keyOn finds a key whose slot the given master has.
func keyOn(t *testing.T, master *testenv.Server, name string) string {
	t.Helper()
	c := client(t, master)
	for i := range 1000 {
		key := fmt.Sprintf("%s.%d", name, i)
		if err := c.Get(context.Background(), key).Err(); errors.Is(err, goredis.Nil) {
			return key
		}
	}
	t.Fatalf("no key for %s", master.Addr)
	return ""
}

func TestClusterBatches(t *testing.T) {
	cluster := testenv.RedisCluster(t, 3, 0)
	s := openCluster(t, cluster)

	t.Run("many slots", func(t *testing.T) {
		for round := range int64(3) {
			for i, r := range must(t, s, spread("many", 40)...) {
				if r.Value.Whole != round+1 {
					t.Fatalf("operation %d: %d, want %d", i, r.Value.Whole, round+1)
				}
			}
		}
	})

	t.Run("refused in one slot, given back in the others", func(t *testing.T) {
		ops := spread("refused", 6)
		for i := range ops {
			ops[i].Max.Whole, ops[i].By.Whole = 3, 2
		}
		ops[3].Max.Whole = 1 // refuses
		b, err := apply(context.Background(), s, true, ops...)
		if err != nil || !b.Refused {
			t.Fatalf("refused %v, %v", b.Refused, err)
		}
		ops[3].Max.Whole = 3
		if b, err = apply(context.Background(), s, true, ops...); err != nil || b.Refused {
			t.Fatalf("refused %v although every hit was given back, %v", b.Refused, err)
		}
		for i, r := range b.Replies {
			if got := count(t, s, ops[i].Key); got != 2 || r.Value.Whole != 2 {
				t.Errorf("operation %d: %d, want 2: %+v", i, got, r)
			}
		}
	})
}

// TestClusterExpiredContexts: the hit of a caller whose context has ended before
// its call is counted, too.
func TestClusterExpiredContexts(t *testing.T) {
	cluster := testenv.RedisCluster(t, 2, 0)
	s := openCluster(t, cluster)
	must(t, s, spread("warm", 20)...) // the topology is known
	const callers = 500
	for range callers {
		_ = giveUp(s, hit("a"), hit("b"))
	}
	testenv.Eventually(t, 5*time.Second, func() bool {
		return count(t, s, "a") == callers && count(t, s, "b") == callers
	}, "every hit is counted")
}

// TestClusterTellsWhatIsDecided: a key whose own master answers is reported as
// decided while another key of its batch waits for a frozen master. Each key is
// reported once.
func TestClusterTellsWhatIsDecided(t *testing.T) {
	cluster := testenv.RedisCluster(t, 3, 0)
	s := openCluster(t, cluster)
	dead, alive := keyOn(t, cluster.Masters[0], "dead"), keyOn(t, cluster.Masters[1], "alive")
	must(t, s, hit(dead), hit(alive))
	cluster.Masters[0].Pause()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b := backends.Batch{Ops: []backends.Op{hit(dead), hit(alive)}, Replies: make([]backends.Reply, 2)}
	decided, ended := make(chan *backends.Op, 10), make(chan error, 1)
	go func() { ended <- s.ApplyEach(ctx, &b, func(op *backends.Op) { decided <- op }) }()
	select {
	case op := <-decided:
		if op != &b.Ops[1] {
			t.Errorf("%s was decided, want %s", op.Key, alive)
		}
	case err := <-ended:
		t.Fatalf("it ended first: %v", err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, backends.ErrUnavailable) || !strings.Contains(err.Error(), cluster.Masters[0].Addr) {
		t.Errorf("%v, want ErrUnavailable of %s", err, cluster.Masters[0].Addr)
	}
	if b.Replies[0].Err == nil || b.Replies[1].Err != nil || b.Replies[1].Value.Whole != 2 {
		t.Errorf("got %+v", b.Replies)
	}
	cluster.Masters[0].Resume()
	testenv.Eventually(t, 5*time.Second, func() bool { return count(t, s, dead) == 2 }, "the call outlives its caller")
	if op := <-decided; op != &b.Ops[0] || len(decided) != 0 {
		t.Errorf("%s was decided last, and %d more", op.Key, len(decided))
	}
}

// TestClusterGivesBackBesideAFrozenMaster: requests over several slots, charged
// all or nothing, are given back on the masters that answer, and neither their
// goroutines nor their charges pile up while another master is frozen.
func TestClusterGivesBackBesideAFrozenMaster(t *testing.T) {
	cluster := testenv.RedisCluster(t, 3, 0)
	s := openCluster(t, cluster)
	dead, alive := keyOn(t, cluster.Masters[0], "dead"), keyOn(t, cluster.Masters[1], "alive")
	limited := func(key string) backends.Op {
		op := hit(key)
		op.Max = backends.Amount{Whole: 1 << 30}
		return op
	}
	must(t, s, hit(dead), hit(alive))
	before := runtime.NumGoroutine()
	cluster.Masters[0].Pause()
	const callers, rounds = 100, 5
	var most, late atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range rounds {
				// Long enough for the live master to answer on a busy machine.
				ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
				b, err := apply(ctx, s, true, limited(dead), limited(alive))
				if err == nil {
					t.Error("a frozen master answered")
				}
				if b.Replies[1].Err != nil {
					late.Add(1)
				}
				cancel()
				raise(&most, int64(runtime.NumGoroutine()))
			}
		})
	}
	wg.Wait()
	if n := most.Load(); n > int64(before+4*callers) {
		t.Errorf("%d goroutines for %d callers, %d before", n, callers, before)
	}
	testenv.Eventually(t, 5*time.Second, func() bool { return count(t, s, alive) <= 1+late.Load() }, "every charge that was answered in time is given back")
	cluster.Masters[0].Resume()
}

func TestClusterFailover(t *testing.T) {
	cluster := testenv.RedisCluster(t, 3, 1)
	s := openCluster(t, cluster)
	key := keyOn(t, cluster.Masters[0], "moves")
	must(t, s, hit(key))
	cluster.Masters[0].Kill()
	promote(t, s, key, cluster.Replicas[0])
	testenv.Within(t, time.Second, func() bool {
		_, err := try(s, 100*time.Millisecond, hit(key))
		return err == nil
	}, "its slots are back", cluster.Replicas[0].Pid())
}

// migrate begins to move the slot of key from one master to another, and returns the
// function that ends it.
func migrate(t *testing.T, key string, from, to *testenv.Server) (end func()) {
	t.Helper()
	slot := admin(t, from, "CLUSTER", "KEYSLOT", key)
	fromID, toID := admin(t, from, "CLUSTER", "MYID"), admin(t, to, "CLUSTER", "MYID")
	admin(t, to, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID)
	admin(t, from, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID)
	return func() {
		admin(t, to, "CLUSTER", "SETSLOT", slot, "NODE", toID)
		admin(t, from, "CLUSTER", "SETSLOT", slot, "NODE", toID)
	}
}

// TestClusterReshard: calls follow a slot while it is moving (ASK) and when it
// has moved (MOVED), also to a master to which no call has gone before.
func TestClusterReshard(t *testing.T) {
	cluster := testenv.RedisCluster(t, 2, 0)
	s := openCluster(t, cluster)
	from, to := cluster.Masters[0], cluster.Masters[1]
	key := keyOn(t, from, "moves")
	end := migrate(t, key, from, to)
	if r := must(t, s, hit(key))[0]; r.Value.Whole != 1 { // ASK: it is not there any more
		t.Errorf("while the slot is moving: %+v", r)
	}
	end()
	if r := must(t, s, hit(key))[0]; r.Value.Whole != 2 { // MOVED
		t.Errorf("after the slot has moved: %+v", r)
	}
}

// TestClusterReshardBetweenKeys: while some keys of a call have moved and others
// have not, no server can execute it (TRYAGAIN). The call waits until all have.
func TestClusterReshardBetweenKeys(t *testing.T) {
	cluster := testenv.RedisCluster(t, 2, 0)
	s := openCluster(t, cluster)
	from, to := cluster.Masters[0], cluster.Masters[1]
	tag := keyOn(t, from, "moves")
	here, there := "{"+tag+"}a", "{"+tag+"}b"
	must(t, s, hit(here))
	end := migrate(t, tag, from, to)

	if _, err := try(s, 50*time.Millisecond, hit(here), hit(there)); !errors.Is(err, backends.ErrUnavailable) {
		t.Errorf("a call that ends before: %v", err)
	}
	told := info(t, from, "errorstat_TRYAGAIN")
	got := make(chan error, 1)
	var replies []backends.Reply
	go func() {
		var err error
		replies, err = try(s, 10*time.Second, hit(here), hit(there))
		got <- err
	}()
	testenv.Eventually(t, 5*time.Second, func() bool { return info(t, from, "errorstat_TRYAGAIN") != told }, "it is told to try again")
	host, port, err := net.SplitHostPort(to.Addr)
	if err != nil {
		t.Fatal(err)
	}
	admin(t, from, "MIGRATE", host, port, here, 0, 5000)
	end()
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	if replies[0].Value.Whole != 2 || replies[1].Value.Whole != 1 {
		t.Errorf("%+v", replies)
	}
}

// TestClusterReshardOfLists: while a slot is moving, a list whose elements are all replaced keeps
// its hits.
func TestClusterReshardOfLists(t *testing.T) {
	cluster := testenv.RedisCluster(t, 2, 0)
	s := openCluster(t, cluster)
	from, to := cluster.Masters[0], cluster.Masters[1]
	tag := keyOn(t, from, "moves")
	const year = 365 * 24 * time.Hour
	list := func(key string, window time.Duration, cost int64, of backends.Limit) backends.Op {
		op := hit("{" + tag + "}" + key)
		op.By.Whole, op.Max.Whole = cost, 10
		of.Kind, of.Den, of.Window = backends.List, 1, window.Microseconds()
		op.Limit = &of
		return op
	}
	refund := func(op backends.Op) backends.Op {
		op.Verb = backends.Refund
		return op
	}
	log, parts, slots := backends.Limit{}, backends.Limit{Parts: 2}, backends.Limit{Oldest: true}
	steps := []struct {
		before, after []backends.Op
		want          int64
	}{
		// Hits of one part are one element.
		{[]backends.Op{list("parts", year, 2, parts)}, []backends.Op{list("parts", year, 1, parts), list("parts", year, 1, parts)}, 4},
		// All elements are old.
		{[]backends.Op{list("log", time.Millisecond, 2, log), list("log", time.Millisecond, 1, log)}, []backends.Op{list("log", time.Millisecond, 1, log)}, 1},
		// A part of the only element is given back, or all of two.
		{[]backends.Op{list("newest", year, 5, log)}, []backends.Op{refund(list("newest", year, 2, log))}, 3},
		{[]backends.Op{list("oldest", year, 5, slots)}, []backends.Op{refund(list("oldest", year, 2, slots))}, 3},
		{[]backends.Op{list("gone", year, 2, log), list("gone", year, 1, log)}, []backends.Op{refund(list("gone", year, 3, log))}, 0},
	}
	for _, step := range steps {
		must(t, s, step.before...)
	}
	migrate(t, tag, from, to)
	for _, step := range steps {
		for i, op := range step.after {
			op.Now = time.Now().Add(10 * time.Millisecond).UnixMicro()
			replies, err := try(s, 5*time.Second, op)
			switch {
			case err != nil:
				t.Errorf("%s: %v", op.Key, err)
			case i == len(step.after)-1 && (replies[0].Admitted != 1 || replies[0].Value.Whole != step.want):
				t.Errorf("%s: %+v, want %d", op.Key, replies[0], step.want)
			}
		}
	}
}

// TestClusterReshardOnward: a call that was told TRYAGAIN goes on waiting when
// its slot has got a new master and is moving on to a third one.
func TestClusterReshardOnward(t *testing.T) {
	cluster := testenv.RedisCluster(t, 3, 0)
	s := openCluster(t, cluster)
	from, via, to := cluster.Masters[0], cluster.Masters[1], cluster.Masters[2]
	tag := keyOn(t, from, "moves")
	here, there := "{"+tag+"}a", "{"+tag+"}b"
	must(t, s, hit(here))
	migrate(t, tag, from, via)
	slot := admin(t, from, "CLUSTER", "KEYSLOT", tag)
	viaID, toID := admin(t, via, "CLUSTER", "MYID"), admin(t, to, "CLUSTER", "MYID")
	admin(t, to, "CLUSTER", "SETSLOT", slot, "IMPORTING", viaID)

	got := make(chan error, 1)
	go func() {
		_, err := try(s, 10*time.Second, hit(here), hit(there))
		got <- err
	}()
	waits := func(at *testenv.Server) {
		testenv.Eventually(t, 5*time.Second, func() bool {
			return strings.Contains(admin(t, at, "INFO").(string), "errorstat_TRYAGAIN")
		}, "it is told to try again")
	}
	waits(from)
	_, err := client(t, via).TxPipelined(context.Background(), func(tx goredis.Pipeliner) error {
		tx.Do(context.Background(), "CLUSTER", "SETSLOT", slot, "NODE", viaID)
		tx.Do(context.Background(), "CLUSTER", "SETSLOT", slot, "MIGRATING", toID)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	waits(to)
	admin(t, to, "CLUSTER", "SETSLOT", slot, "NODE", toID)
	admin(t, via, "CLUSTER", "SETSLOT", slot, "NODE", toID)
	if err := <-got; err != nil {
		t.Error(err)
	}
}

func TestClusterBeforeItsNodes(t *testing.T) {
	cluster := testenv.RedisCluster(t, 2, 0)
	for _, m := range cluster.Masters {
		m.Pause()
	}
	s := openCluster(t, cluster)
	testenv.Within(t, 500*time.Millisecond, func() bool {
		if _, err := try(s, 20*time.Millisecond, hit("a")); err == nil {
			t.Error("frozen masters answered")
		}
		return true
	}, "a call with a deadline of 20 ms ends")
	for _, m := range cluster.Masters {
		m.Resume()
	}
	must(t, s, hit("a"))
}

// TestClusterCallersThatGiveUp: callers that go are no reason to read the
// topology again.
func TestClusterCallersThatGiveUp(t *testing.T) {
	c := testenv.RedisCluster(t, 1, 0)
	s := openCluster(t, c)
	must(t, s, hit("a"))
	reads := func() (n int) {
		for line := range strings.Lines(admin(t, c.Masters[0], "INFO", "commandstats").(string)) {
			if _, calls, ok := strings.Cut(line, "cluster|slots:calls="); ok {
				calls, _, _ = strings.Cut(calls, ",")
				n += atoi(t, calls)
			}
		}
		return n
	}
	stalls := testenv.WatchStalls(t, os.Getpid(), c.Masters[0].Pid())
	before, began := reads(), time.Now()
	for range 1000 {
		_ = giveUp(s, hit("gone"))
		<-time.After(100 * time.Microsecond)
	}
	took, stalled := time.Since(began), stalls.Since(began)
	// The topology is also read from time to time, and when a master seems to be silent.
	const silent = 75 * time.Millisecond
	if n := reads() - before; n > 1+int(took/(2*time.Second))+int(stalled/silent) {
		t.Errorf("%d topologies were read in %v, in which the machine stalled for %v", n, took, stalled)
	}
}

// TestClusterNodesInEachForm: a cluster may tell its nodes by address, by host name, by the host
// name that only some have, or not at all. Calls follow slots in each form.
func TestClusterNodesInEachForm(t *testing.T) {
	cluster := testenv.RedisCluster(t, 2, 0)
	from, to := cluster.Masters[0], cluster.Masters[1]
	for _, form := range []struct{ kind, name string }{{"ip", ""}, {"hostname", "localhost"}, {"hostname", ""}, {"unknown-endpoint", ""}} {
		t.Run(form.kind+" "+form.name, func(t *testing.T) {
			for _, node := range cluster.Masters {
				admin(t, node, "CONFIG", "SET", "cluster-announce-hostname", form.name)
				admin(t, node, "CONFIG", "SET", "cluster-preferred-endpoint-type", form.kind)
			}
			testenv.Eventually(t, 10*time.Second, func() bool { // each knows the other's name
				return strings.Count(fmt.Sprint(admin(t, from, "CLUSTER", "NODES")), ",localhost") == 2*len(form.name)/len("localhost")
			}, "the nodes know their names")
			for _, seed := range []string{from.Addr, strings.Replace(from.Addr, "127.0.0.1", "localhost", 1)} {
				s := open(t, redis.Options{Type: "cluster", URL: seed})
				for i, r := range must(t, s, spread(form.kind+form.name+seed, 40)...) {
					if r.Value.Whole != 1 {
						t.Fatalf("operation %d: %+v", i, r)
					}
				}
				admin(t, from, "FLUSHALL") // a slot with other keys cannot move
				key := keyOn(t, from, "moves."+form.kind+form.name+seed)
				end := migrate(t, key, from, to)
				if r := must(t, s, hit(key))[0]; r.Value.Whole != 1 { // ASK
					t.Errorf("while the slot is moving: %+v", r)
				}
				end()
				if r := must(t, s, hit(key))[0]; r.Value.Whole != 2 { // MOVED
					t.Errorf("after the slot has moved: %+v", r)
				}
			}
		})
	}
}

// TestClusterNodesInEachFormOverTLS: certificates name the host that was asked.
func TestClusterNodesInEachFormOverTLS(t *testing.T) {
	certs := testenv.Certs(t)
	server := testenv.Redis(t, append(certs.RedisArgs(), "--cluster-enabled", "yes", "--cluster-config-file", "{dir}/nodes.conf")...)
	side := goredis.NewClient(&goredis.Options{Addr: server.Addr, TLSConfig: certs.ForClient()})
	t.Cleanup(func() { _ = side.Close() })
	do := func(command ...any) any {
		t.Helper()
		answer, err := side.Do(t.Context(), command...).Result()
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	do("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
	testenv.Eventually(t, 10*time.Second, func() bool {
		return strings.Contains(do("CLUSTER", "INFO").(string), "cluster_state:ok")
	}, "the cluster serves")
	for _, form := range []struct{ kind, name string }{{"ip", ""}, {"hostname", "localhost"}, {"hostname", ""}, {"unknown-endpoint", ""}} {
		do("CONFIG", "SET", "cluster-announce-hostname", form.name)
		do("CONFIG", "SET", "cluster-preferred-endpoint-type", form.kind)
		s := open(t, redis.Options{Type: "cluster", URL: "rediss://" + server.Addr, TLS: certs.ForClient})
		must(t, s, hit(form.kind+form.name))
	}
}
