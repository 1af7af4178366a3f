package memcached_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/memcached"
)

// timeout is the default of MEMCACHE_TIMEOUT.
const timeout = 500 * time.Millisecond

// memory is the size of the heap and of all stacks in bytes.
func memory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// TestOneOfThreeFrozen: while one server of three is frozen, its calls fail at once
// and need next to nothing, whatever the number and the patience of the callers;
// calls to the others go on, and the server is used again within a second.
func TestOneOfThreeFrozen(t *testing.T) {
	frozen, others := testenv.Memcached(t), []*testenv.Server{testenv.Memcached(t), testenv.Memcached(t)}
	watch := &breaker.Watch{}
	s := open(t, memcached.Options{
		Servers: []string{frozen.Addr, others[0].Addr, others[1].Addr}, Timeout: timeout, Watch: watch,
	})
	lost, live := keysOn(t, s, frozen, 50, 100)
	stalls := testenv.WatchStalls(t, os.Getpid(), others[0].Pid(), others[1].Pid())
	goroutines, before := runtime.NumGoroutine(), memory()
	frozen.Pause()
	gone := time.Now()

	// 2,000 callers with a patience of 30 s come at once, half of them with two cells.
	patient, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var longest atomic.Int64
	flood := func(callers int) {
		var wave sync.WaitGroup
		for i := range callers {
			wave.Go(func() {
				b := batch(hit(lost[i%len(lost)], 1, -1))
				if i%2 == 0 {
					b = batch(hit(lost[i%len(lost)], 1, -1), hit(lost[(i+1)%len(lost)], 1, 5))
				}
				start := time.Now()
				if err := s.Apply(patient, b); !errors.Is(err, backends.ErrUnavailable) {
					t.Errorf("got %v, want ErrUnavailable", err)
				}
				longest.Store(max(longest.Load(), int64(time.Since(start))))
			})
		}
		wave.Wait()
	}
	flood(2000)
	t.Logf("the first callers waited for %v at most", time.Duration(longest.Load()))
	testenv.Eventually(t, patience, func() bool { return watch.Away() == 1 }, "the frozen server is away")
	for time.Since(gone) < 3*time.Second {
		longest.Store(0)
		flood(100)
		for _, key := range live[:10] {
			start := time.Now()
			err := s.Apply(context.Background(), batch(hit(key, 1, -1)))
			took, stalled := time.Since(start), stalls.Since(start)
			switch {
			case err != nil && stalled < breaker.DefaultSlow/2:
				t.Fatalf("a call to a server that answers: %v", err)
			case err != nil:
				t.Logf("not measured, because the machine stalled for %v of %v: a call to a server that answers", stalled, took)
			case took > 200*time.Millisecond+stalled:
				t.Errorf("a call to a server that answers took %v", took)
			}
		}
		// The goroutines of callers that have their answer may be about to end.
		testenv.Eventually(t, patience, func() bool { return runtime.NumGoroutine() <= goroutines+100 }, "there are at most 100 goroutines more than before")
	}
	grown := memory() - before
	t.Logf("%d goroutines and %d KiB more than before", runtime.NumGoroutine()-goroutines, grown>>10)
	if grown > 16<<20 {
		t.Errorf("%d KiB more than before the freeze, want at most 16 MiB", grown>>10)
	}

	frozen.Resume()
	testenv.Within(t, time.Second, func() bool { return s.Apply(patient, batch(hit("back", 0, -1), hit(lost[0], 1, -1))) == nil },
		"the server is used again", frozen.Pid())
	testenv.Eventually(t, patience, func() bool {
		for range 20 {
			if s.Apply(patient, batch(hit(lost[0], 1, -1))) != nil {
				return false
			}
		}
		return true
	}, "all of 20 calls are decided")
}

// TestCallsThatWaitFailTogether: calls that wait for others when the server goes away
// do not try it one after another.
func TestCallsThatWaitFailTogether(t *testing.T) {
	server := testenv.Memcached(t)
	s := open(t, memcached.Options{Servers: []string{server.Addr}, Timeout: 10 * time.Second})
	warm(t, s, 64)
	server.Pause()
	testenv.Within(t, time.Second, func() bool {
		for _, err := range together(1000, func(int) error {
			return s.Apply(context.Background(), batch(hit("key", 1, -1)))
		}) {
			if !errors.Is(err, backends.ErrUnavailable) {
				t.Fatalf("got %v, want ErrUnavailable", err)
			}
		}
		return true
	}, "the last of 1,000 calls has failed")
}

// TestSlowServer: a server 5 ms ± 5 ms away, each way, decides nearly all calls with
// the patience of Envoy. A server 50 ms away decides those of patient callers, and is
// not taken to be away.
func TestSlowServer(t *testing.T) {
	server := testenv.Memcached(t)
	for _, c := range []struct {
		name          string
		delay, jitter time.Duration
		patience      time.Duration
		pause         time.Duration // between calls
		calls         int
		want          float64 // share of the calls that are decided
	}{
		{"5 ± 5 ms", 5 * time.Millisecond, 5 * time.Millisecond, 18 * time.Millisecond, 2 * time.Millisecond, 2000, 0.9},
		{"50 ms", 50 * time.Millisecond, 0, 150 * time.Millisecond, 4 * time.Millisecond, 500, 0.99},
	} {
		t.Run(c.name, func(t *testing.T) {
			network := testenv.NewRelay(t, server.Addr)
			watch := &breaker.Watch{}
			s := open(t, memcached.Options{Servers: []string{network.Addr}, Timeout: timeout, Watch: watch})
			warm(t, s, 64)
			stalls := testenv.WatchStalls(t, os.Getpid(), server.Pid())
			const keys = 100
			for i := range keys {
				testenv.Eventually(t, patience, func() bool {
					return s.Apply(context.Background(), batch(hit(fmt.Sprint("key", i), 1, -1))) == nil
				}, "the server answers")
			}
			network.Slow(c.delay, c.jitter)
			calm, decided, away := slowly(s, watch, stalls, c.calls, keys, c.pause, c.patience)
			t.Logf("%d of %d calls were decided; something stalled during %d others", decided, calm, c.calls-calm)
			switch {
			case 10*calm < 9*c.calls:
				t.Log("not measured, because the machine stalled during more than a tenth of the calls")
			case float64(decided) < c.want*float64(calm) || away > 0:
				t.Errorf("%d of %d calls were decided, want %.0f %%; the server was away for %d", decided, calm, 100*c.want, away)
			}
		})
	}
}

// slowly makes calls with a pause between them. It returns the number of calls during
// which nothing stalled, how many of them were decided, and how many of all calls ended
// while the server was away.
func slowly(s *memcached.Store, watch *breaker.Watch, stalls *testenv.Stalls, n, keys int, pause, patience time.Duration) (calm, decided int, away int64) {
	type ended struct {
		from, to time.Time
		err      error
	}
	made := make([]ended, n)
	var opened atomic.Int64
	var calls sync.WaitGroup
	pace := time.NewTicker(pause)
	defer pace.Stop()
	for i := range made {
		<-pace.C
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			from := time.Now()
			err := s.Apply(ctx, batch(hit(fmt.Sprint("key", i%keys), 1, -1)))
			made[i] = ended{from, time.Now(), err}
			opened.Add(int64(watch.Away()))
		})
	}
	calls.Wait()
	for _, c := range made {
		if !stalls.Calm(c.from, c.to) {
			continue
		}
		calm++
		if c.err == nil {
			decided++
		}
	}
	return calm, decided, opened.Load()
}

// TestVanishedServer: the server is gone without FIN or RST, and so are the SYNs of
// new connections. Calls fail at once soon, and decisions are right again within a
// second of its return.
func TestVanishedServer(t *testing.T) {
	server := testenv.Memcached(t)
	network := testenv.NewRelay(t, server.Addr)
	watch := &breaker.Watch{}
	s := open(t, memcached.Options{Servers: []string{network.Addr}, Timeout: timeout, Watch: watch})
	warm(t, s, 10)
	network.BlackHole()
	testenv.Within(t, time.Second, func() bool {
		together(10, func(int) error { return s.Apply(context.Background(), batch(hit("key", 1, -1))) })
		return watch.Away() == 1
	}, "the breaker opens")
	network.Heal()
	testenv.Within(t, time.Second, func() bool { return s.Apply(context.Background(), batch(hit("key", 1, -1))) == nil },
		"decisions are right again", server.Pid())
}
