package stack_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/memcached"
	"example.org/rls/pkg/backends/near"
	"example.org/rls/pkg/backends/redis"
	"example.org/rls/pkg/backends/stack"
)

// counting counts the operations that reach Redis.
type counting struct {
	backends.Store
	ops atomic.Int64
}

func (c *counting) Apply(ctx context.Context, b *backends.Batch) error {
	c.ops.Add(int64(len(b.Ops)))
	return c.Store.Apply(ctx, b)
}

// leasing is a stack on the server at an address, as one process has it.
type leasing struct {
	backends.Store
	below counting
	near  *near.Store
}

func openLeasing(t *testing.T, url string, timeout time.Duration) *leasing {
	t.Helper()
	store, err := redis.Open(redis.Options{URL: url, Timeout: timeout, Watch: &breaker.Watch{Slow: timeout}})
	if err != nil {
		t.Fatal(err)
	}
	return leasingOn(t, store, timeout)
}

// leasingOn is a stack on a store. Operations are counted where all of them pass,
// those of background work, too.
func leasingOn(t *testing.T, store backends.Store, timeout time.Duration) *leasing {
	l := &leasing{}
	l.below.Store = store
	l.Store = build(t, stack.Options{Main: stack.Tier{Store: &l.below, Timeout: timeout}, Decision: timeout, Near: func(s *near.Store) { l.near = s }})
	return l
}

// caller asks one process for one hit at a time.
type caller struct {
	limit *algorithms.Limit
	store backends.Store
	id    algorithms.Identity
	batch backends.Batch
}

func newCaller(t testing.TB, s backends.Store, id string, spec algorithms.Spec) *caller {
	l, err := algorithms.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return &caller{limit: l, store: s, id: algorithms.Identity{ID: []byte(id)},
		batch: backends.Batch{Ops: make([]backends.Op, 1), Replies: make([]backends.Reply, 1)}}
}

func (c *caller) ask() (allowed bool, err error) {
	c.limit.Plan(&c.batch.Ops[0], c.id, algorithms.Charge{Now: c.store.Now(), Cost: 1})
	if err := c.store.Apply(context.Background(), &c.batch); err != nil {
		return false, err
	}
	return c.limit.Judge(&c.batch.Ops[0], &c.batch.Replies[0]).Allowed, nil
}

var lease5 = algorithms.Lease{Share: 50_000, TTL: 250 * time.Millisecond}

// TestAHotKeyWithALease: with 64 callers a hot key costs Redis at most one
// operation for 100 requests.
func TestAHotKeyWithALease(t *testing.T) {
	process := openLeasing(t, testenv.Redis(t).Addr, patience)
	for _, spec := range []algorithms.Spec{
		{Requests: 1_000_000_000, Window: time.Hour},
		{Requests: 1_000_000_000, Window: time.Hour, Strategy: algorithms.SlidingWindow},
		{Requests: 1_000_000_000, Window: time.Hour, Strategy: algorithms.TokenBucket},
	} {
		spec.Lease = lease5
		var asked atomic.Int64
		before := process.below.ops.Load()
		var callers sync.WaitGroup
		for range 64 {
			c := newCaller(t, process, spec.Strategy.String(), spec)
			callers.Go(func() {
				for range 3000 {
					asked.Add(1)
					if ok, err := c.ask(); !ok {
						t.Error("a hit was not admitted", err)
						return
					}
				}
			})
		}
		callers.Wait()
		ops := process.below.ops.Load() - before
		t.Logf("%s: %d operations for %d requests", spec.Strategy, ops, asked.Load())
		if ops*100 > asked.Load() {
			t.Errorf("%s: %d operations for %d requests", spec.Strategy, ops, asked.Load())
		}
	}
}

// TestALeaseThatCannotPay costs Redis at most a tenth more commands than no lease: on
// cold keys, and on a hot key where each second request brings another limit along.
func TestALeaseThatCannotPay(t *testing.T) {
	server := testenv.Redis(t)
	client := goredis.NewClient(&goredis.Options{Addr: server.Addr})
	defer client.Close()
	for name, ask := range map[string]func(each func(id string, requests uint32)){
		"cold keys": func(each func(string, uint32)) {
			for i := range 600 {
				each(fmt.Sprint("cold", i%300), 1000)
			}
		},
		"another limit": func(each func(string, uint32)) {
			for i := range 2000 {
				each("hot", 1_000_000+uint32(i%2))
			}
		},
	} {
		commands := map[bool]int64{}
		for _, leased := range []bool{false, true} {
			process := openLeasing(t, server.Addr, patience)
			before := processed(t, client)
			ask(func(id string, requests uint32) {
				spec := algorithms.Spec{Requests: requests, Window: time.Hour}
				if leased {
					id += "leased"
					spec.Lease = algorithms.Lease{Share: 500_000, TTL: 250 * time.Millisecond}
				}
				if _, err := newCaller(t, process, id, spec).ask(); err != nil {
					t.Fatal(err)
				}
			})
			commands[leased] = processed(t, client) - before
		}
		t.Logf("%s: %d commands with a lease, %d without", name, commands[true], commands[false])
		if 10*commands[true] > 11*commands[false] {
			t.Errorf("%s: %d commands with a lease, %d without", name, commands[true], commands[false])
		}
	}
}

// processed is the number of commands that Redis has processed, also those of scripts.
func processed(t *testing.T, client *goredis.Client) (n int64) {
	t.Helper()
	info, err := client.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile(`calls=(\d+)`).FindAllStringSubmatch(info, -1) {
		calls, _ := strconv.ParseInt(match[1], 10, 64)
		n += calls
	}
	return n
}

// TestThreeProcessesShareALimit: 64 callers in each of three processes get the
// limit exactly, and nearly all of it within a second.
func TestThreeProcessesShareALimit(t *testing.T) {
	t.Run("redis", func(t *testing.T) {
		url := testenv.Redis(t).Addr
		shareALimit(t, func() *leasing { return openLeasing(t, url, patience) })
	})
	t.Run("memcached", func(t *testing.T) {
		server := testenv.Memcached(t).Addr
		shareALimit(t, func() *leasing {
			store, err := memcached.Open(memcached.Options{Servers: []string{server}, Timeout: patience, Watch: &breaker.Watch{Slow: patience}})
			if err != nil {
				t.Fatal(err)
			}
			return leasingOn(t, store, patience)
		})
	})
}

func shareALimit(t *testing.T, open func() *leasing) {
	processes := []*leasing{open(), open(), open()}
	for _, limit := range []uint32{1000, 10_000} {
		spec := algorithms.Spec{Requests: limit, Window: time.Hour, FromFirstHit: true, Lease: lease5}
		var admitted atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		for _, p := range processes {
			for range 64 {
				c := newCaller(t, p, fmt.Sprint("shared", limit), spec)
				callers.Go(func() {
					for ctx.Err() == nil {
						ok, err := c.ask()
						if err != nil {
							t.Error(err)
							return
						}
						if ok {
							admitted.Add(1)
						}
					}
				})
			}
		}
		begin := time.Now()
		testenv.Within(t, 1500*time.Millisecond, func() bool { return admitted.Load() >= int64(limit)*98/100 }, "98 % of the limit is admitted")
		soon := time.Since(begin)
		testenv.Eventually(t, patience, func() bool { return admitted.Load() >= int64(limit) }, "all of the limit is admitted")
		t.Logf("98%% of %d after %v, all after %v", limit, soon, time.Since(begin))
		cancel()
		callers.Wait()
		if got := admitted.Load(); got != int64(limit) {
			t.Errorf("%d of %d admitted", got, limit)
		}
	}
}

// TestAStoreInAnotherRegion: with the store 80 ms away, nearly all hits of a hot
// key are decided without a question to it.
func TestAStoreInAnotherRegion(t *testing.T) {
	relay := testenv.NewRelay(t, testenv.Redis(t).Addr)
	process := openLeasing(t, relay.Addr, patience)
	spec := algorithms.Spec{Requests: 1_000_000, Window: time.Hour, FromFirstHit: true, Lease: lease5}
	if ok, err := newCaller(t, process, "far", spec).ask(); !ok {
		t.Fatal(err)
	}
	const trip = 80 * time.Millisecond
	relay.Slow(trip/2, 0)
	stalls := testenv.WatchStalls(t, os.Getpid())
	const ticks, each, tick = 1000, 10, 5 * time.Millisecond
	var asked [ticks * each]struct{ from, to time.Time }
	var callers sync.WaitGroup
	ticker := time.NewTicker(tick) // 2,000 a second
	defer ticker.Stop()
	for i := range asked {
		if i%each == 0 {
			<-ticker.C
		}
		callers.Go(func() {
			c := newCaller(t, process, "far", spec)
			asked[i].from = time.Now()
			ok, err := c.ask()
			asked[i].to = time.Now()
			if !ok && i >= len(asked)/5 {
				t.Error("a hit was not admitted", err)
			}
		})
	}
	callers.Wait()
	all := asked[len(asked)/5:] // until then the key is leased
	calm, slow := 0, 0
	for _, hit := range all {
		if !stalls.Calm(hit.from, hit.to) {
			continue
		}
		calm++
		if hit.to.Sub(hit.from) >= trip {
			slow++
		}
	}
	behind := 0 // a stall may delay the fetch of the hits that callers need after it, for one trip
	if calm < len(all) {
		behind = each * int(trip/tick)
	}
	t.Logf("%d of %d hits took as long as the store; something stalled during %d others", slow, calm, len(all)-calm)
	switch {
	case 10*calm < 9*len(all):
		t.Log("not measured, because the machine stalled during more than a tenth of the hits")
	case slow > calm/100+behind:
		t.Errorf("%d of %d hits took as long as the store", slow, calm)
	}
}

// TestALeaseOutlivesItsStore: when Redis dies or freezes, the held hits pass, also
// after their ttl, and then callers get an error. When Redis is back, they are
// decided again.
func TestALeaseOutlivesItsStore(t *testing.T) {
	for name, fail := range map[string]func(*testenv.Server) (heal func()){
		"frozen": func(s *testenv.Server) func() { s.Pause(); return s.Resume },
		"killed": func(s *testenv.Server) func() { s.Kill(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			server := testenv.Redis(t)
			process := openLeasing(t, server.Addr, 200*time.Millisecond)
			c := newCaller(t, process, "outlives", algorithms.Spec{Requests: 1_000_000, Window: time.Hour, FromFirstHit: true, Lease: lease5})
			testenv.Eventually(t, patience, func() bool {
				for range 20 {
					if ok, err := c.ask(); !ok {
						t.Fatal(err)
					}
				}
				return process.near.Leases().Held > 50
			}, "the key is leased")
			heal := fail(server)
			before := process.near.Leases()
			// Hits that are about to be given back are not held for a moment.
			died := time.Now()
			testenv.Eventually(t, patience, func() bool {
				return time.Since(died) > 2*lease5.TTL && process.near.Leases().Held == before.Held
			}, "hits are kept after their ttl")
			passed := uint64(0)
			for ; passed <= before.Held; passed++ {
				if ok, _ := c.ask(); !ok {
					break
				}
			}
			if passed != before.Held {
				t.Errorf("%d hits passed without Redis, want the %d held", passed, before.Held)
			}
			if _, err := c.ask(); !errors.Is(err, backends.ErrUnavailable) {
				t.Errorf("without hits and without Redis the error is %v", err)
			}
			if heal != nil {
				heal()
				testenv.Eventually(t, patience, func() bool { ok, _ := c.ask(); return ok }, "Redis decides again")
			}
		})
	}
}
