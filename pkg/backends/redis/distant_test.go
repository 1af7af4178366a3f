package redis_test

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/redis"
	"example.org/rls/pkg/backends/stack"
)

// each calls f at a rate per second for a while, each in a goroutine, and waits for
// all of them.
func each(rate int, during time.Duration, f func(i int)) {
	var calls sync.WaitGroup
	defer calls.Wait()
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for i := range int(during.Seconds() * float64(rate)) {
		<-tick.C
		calls.Go(func() { f(i) })
	}
}

// bounded is s as the stack uses it.
func bounded(t *testing.T, s backends.Store) backends.Store {
	t.Helper()
	d := stack.Deadline(s, 150*time.Millisecond)
	return d
}

// TestOpenOverASlowNetwork: connecting takes two round trips more than a call.
func TestOpenOverASlowNetwork(t *testing.T) {
	relay := testenv.NewRelay(t, testenv.Redis(t, "--requirepass", "secret").Addr)
	relay.Slow(50*time.Millisecond, 0)
	watch, log := watched()
	s := open(t, redis.Options{URL: "redis://:secret@" + relay.Addr, Watch: watch})
	must(t, s, hit("a"))
	if lines := log.With("away"); len(lines) > 0 {
		t.Errorf("the breaker opened: %q", lines)
	}
}

// TestPatientCallersOfAFrozenServer: the first callers are answered by the bound on
// a decision, later ones at once; nothing piles up.
func TestPatientCallersOfAFrozenServer(t *testing.T) {
	relay := testenv.NewRelay(t, testenv.Redis(t).Addr)
	s := bounded(t, open(t, redis.Options{URL: relay.Addr}))
	for i := range 20 {
		must(t, s, hit(fmt.Sprint("k", i)))
	}
	stalls := testenv.WatchStalls(t, os.Getpid())
	goroutines, heap := runtime.NumGoroutine(), heapInUse()
	relay.Freeze()
	start := time.Now()
	var first, later, most atomic.Int64
	const rate = 1000
	each(rate, 3*time.Second, func(i int) {
		begin := time.Now()
		if _, err := try(s, 30*time.Second, hit(fmt.Sprint("k", i%100))); err == nil {
			t.Error("a frozen server answered")
		}
		longest := &first
		if begin.Sub(start) > 300*time.Millisecond {
			longest = &later
			// Calls that come during a stall pile up.
			late := stalls.Since(begin.Add(-250 * time.Millisecond))
			raise(&most, int64(runtime.NumGoroutine())-int64(rate*late.Seconds()))
		}
		if i%500 != 0 { // not the probes, which are few
			raise(longest, int64(time.Since(begin)-stalls.Since(begin)))
		}
	})
	t.Logf("first %v, later %v, goroutines %d before and %d at most, heap %d KiB more", time.Duration(first.Load()), time.Duration(later.Load()),
		goroutines, most.Load(), (heapInUse()-heap)/1024)
	if d := time.Duration(first.Load()); d > 250*time.Millisecond {
		t.Errorf("a caller was answered after %v", d)
	}
	if d := time.Duration(later.Load()); d > 250*time.Millisecond {
		t.Errorf("a caller was answered after %v, although the server was away", d)
	}
	if n := int(most.Load()); n > goroutines+100 {
		t.Errorf("%d goroutines, %d before", n, goroutines)
	}
	if more := heapInUse() - heap; more > 16<<20 {
		t.Errorf("%d MiB more memory", more>>20)
	}
	relay.Heal()
	soon(t, s, hit("a"))
}

func raise(to *atomic.Int64, n int64) {
	for old := to.Load(); n > old && !to.CompareAndSwap(old, n); old = to.Load() {
	}
}

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}

// TestVanishedPeer: no connection is told that its peer has gone. The first calls
// time out, and fresh connections take over.
func TestVanishedPeer(t *testing.T) {
	relay := testenv.NewRelay(t, testenv.Redis(t).Addr)
	s := bounded(t, open(t, redis.Options{URL: relay.Addr}))
	each(1000, 200*time.Millisecond, func(i int) { _, _ = try(s, time.Second, hit(fmt.Sprint("k", i))) })
	relay.Forget()
	soon(t, s, hit("a"))
	relay.BlackHole()
	each(500, time.Second, func(i int) { _, _ = try(s, time.Second, hit(fmt.Sprint("k", i))) })
	relay.Heal()
	soon(t, s, hit("a"))
}
