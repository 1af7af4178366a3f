// Package exact_test proves that decisions are exact: what many callers of
// several processes are told on one store is the answer of one caller after the
// other, in some order that respects time (linearizability, checked by porcupine).
//
// The definition is backendtest.Model: Cell.Step, Log.Step and Batch.Decide. A
// call whose answer was lost may have been charged or not, from its begin on.
package exact_test

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/memcached"
	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/backends/redis"
	"example.org/rls/pkg/backends/stack"
)

var rounds = flag.Int("rounds", 1, "histories of each strategy on each store")

// patience is the timeout of every store, and how long its servers may be silent: the machine may
// be busy.
const patience = 5 * time.Second

// place is a store that processes share: open opens it for one more process.
type place struct {
	name string
	// open is called once for each process. cut is the share of answers that are
	// lost, one in cut; 0 loses none.
	open func(t *testing.T, cut int) func() stack.Options
	// bare is the store without decorators.
	bare bool
	// alone: only one process can use the store.
	alone bool
	// whole: several limits are decided in one step, and so is a reservation that two windows of the
	// clock share.
	whole bool
	cache int
	terms bool // the store knows debts and parts
}

func tier(t *testing.T, s backends.Store, err error) stack.Tier {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return stack.Tier{Store: s, Timeout: patience}
}

func onRedis(t *testing.T, o redis.Options) stack.Tier {
	t.Helper()
	o.Timeout, o.Watch = patience, &breaker.Watch{Slow: patience}
	s, err := redis.Open(o)
	return tier(t, s, err)
}

// cut returns the address of a network before a server that resets the connection in
// place of every nth answer; 0 loses none. The server has then carried out the call,
// and its caller is not told.
func cut(t *testing.T, server *testenv.Server, n int) string {
	t.Helper()
	network := testenv.NewRelay(t, server.Addr)
	network.CutEvery(n)
	return network.Addr
}

func single(server func(testing.TB, ...string) *testenv.Server) func(*testing.T, int) func() stack.Options {
	return func(t *testing.T, n int) func() stack.Options {
		t.Helper()
		o := redis.Options{URL: cut(t, server(t), n)}
		return func() stack.Options { return stack.Options{Main: onRedis(t, o)} }
	}
}

func inMemory(t *testing.T, _ int) func() stack.Options {
	return func() stack.Options {
		s, err := memory.New(memory.Options{MaxKeys: 100_000})
		if err != nil {
			t.Fatal(err)
		}
		return stack.Options{Main: stack.Tier{Store: s}}
	}
}

func onMemcached(t *testing.T, n int) func() stack.Options {
	t.Helper()
	addr := cut(t, testenv.Memcached(t), n)
	return func() stack.Options {
		s, err := memcached.Open(memcached.Options{Servers: []string{addr}, Timeout: patience, Watch: &breaker.Watch{Slow: patience}})
		return stack.Options{Main: tier(t, s, err)}
	}
}

// onCluster cuts nothing: a cluster tells its clients the addresses of its nodes.
func onCluster(t *testing.T, _ int) func() stack.Options {
	t.Helper()
	o := redis.Options{Type: "cluster", URL: strings.Join(testenv.RedisCluster(t, 3, 0).Addrs(), ",")}
	return func() stack.Options { return stack.Options{Main: onRedis(t, o)} }
}

func perSecond(t *testing.T, n int) func() stack.Options {
	t.Helper()
	main, seconds := single(testenv.Redis)(t, n), single(testenv.Redis)(t, n)
	return func() stack.Options {
		return stack.Options{Main: main().Main, PerSecond: seconds().Main}
	}
}

var places = []place{
	{name: "memory", open: inMemory, alone: true, whole: true, terms: true},
	{name: "Redis, bare", open: single(testenv.Redis), bare: true, whole: true, terms: true},
	{name: "Redis", open: single(testenv.Redis), whole: true, terms: true},
	{name: "Redis with a cache", open: single(testenv.Redis), whole: true, terms: true, cache: 1 << 20},
	{name: "Valkey", open: single(testenv.Valkey), whole: true, terms: true},
	{name: "Redis beside one for limits per second", open: perSecond, whole: true, terms: true},
	{name: "Redis Cluster", open: onCluster, whole: true, terms: true},
	{name: "memcached, bare", open: onMemcached, bare: true, terms: true},
	{name: "memcached", open: onMemcached, terms: true},
	{name: "memcached with a cache", open: onMemcached, cache: 1 << 20, terms: true},
}

// processes opens the store as so many processes would.
func (p *place) processes(t *testing.T, n, cut int) []backends.Store {
	t.Helper()
	if p.alone {
		n = 1
	}
	open := p.open(t, cut)
	var all []backends.Store
	for range n {
		o := open()
		s := o.Main.Store
		if !p.bare {
			o.LocalCache = p.cache
			var err error
			if s, err = stack.Build(o); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() { _ = s.Close() })
		testenv.Eventually(t, 2*patience, func() bool { return s.Ping(t.Context()) == nil }, "the store answers")
		all = append(all, s)
	}
	return all
}

// TestLinearizable has two processes share each store: four callers of each, so that operations on
// one key are merged. In a second run, one answer in twenty is lost.
//
// Two answers promise less. A denial from the local cache shows its cell as it
// was at some time in the second before. Refunds that were merged all show the cell
// after the last of them.
func TestLinearizable(t *testing.T) {
	for _, p := range places {
		for _, lose := range []int{0, 20} {
			if lose > 0 && (p.alone || p.name == "Redis Cluster") {
				continue
			}
			t.Run(fmt.Sprintf("%s, one answer in %d lost", p.name, lose), func(t *testing.T) {
				t.Parallel()
				random := testenv.Random(t)
				processes := p.processes(t, 2, lose)
				all := slices.Clone(kinds)
				if p.terms {
					all = append(all, terms...)
				}
				all = append(all, holds...)
				if p.whole {
					all = append(append(all, together...), heldTogether...)
				}
				var sum tally
				for range *rounds {
					for _, k := range all {
						t.Run(k.name, func(t *testing.T) {
							seed := random.Uint64()
							h := newHistory(t, k, !p.bare)
							h.run(processes, seed)
							sum.add(h.check(t, seed))
						})
					}
				}
				t.Logf("%d histories of %d requests, %d without an answer, %d denied from memory; no verdict on %d histories",
					sum.histories, sum.requests, sum.lost, sum.recalled, sum.open)
				if lose > 0 && sum.lost == 0 || p.cache > 0 && sum.recalled == 0 || 2*sum.open > sum.histories {
					t.Error("the run proves too little")
				}
			})
		}
	}
}
