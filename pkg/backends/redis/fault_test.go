package redis_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/redis"
)

// hit is a charge of one in the fixed window of an hour named key.
func hit(key string) backends.Op {
	now := time.Now().UnixMicro()
	return backends.Op{Key: key, Now: now, Until: now + time.Hour.Microseconds(), Den: 1, Times: 1,
		By: backends.Amount{Whole: 1}, Max: backends.NoMax}
}

// try applies ops within timeout and returns the replies.
func try(s backends.Store, timeout time.Duration, ops ...backends.Op) ([]backends.Reply, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	b := backends.Batch{Ops: ops, Replies: make([]backends.Reply, len(ops))}
	err := s.Apply(ctx, &b)
	return b.Replies, err
}

// must applies ops at the first attempt.
func must(t *testing.T, s backends.Store, ops ...backends.Op) []backends.Reply {
	t.Helper()
	replies, err := try(s, 5*time.Second, ops...)
	if err != nil {
		t.Fatal(err)
	}
	return replies
}

// soon applies ops within a second of the server's return.
func soon(t *testing.T, s backends.Store, ops ...backends.Op) {
	t.Helper()
	testenv.Within(t, time.Second, func() bool {
		_, err := try(s, time.Second, ops...)
		return err == nil
	}, "calls succeed again")
}

func count(t *testing.T, s backends.Store, key string) int64 {
	t.Helper()
	op := hit(key)
	return must(t, s, op.Look())[0].Value.Whole
}

// load runs callers that each make one call after the other with a deadline of
// 20 ms, a millisecond after a failed one, until stop is called. Stop returns how long
// the slowest failed call took, apart from stalls.
func load(t *testing.T, s backends.Store, callers int) (stop func() time.Duration) {
	t.Helper()
	stalls := testenv.WatchStalls(t, os.Getpid())
	var slowest atomic.Int64
	var wg sync.WaitGroup
	done := make(chan struct{})
	for i := range callers {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				start := time.Now()
				_, err := try(s, 20*time.Millisecond, hit(fmt.Sprint("load", i%10)))
				if err != nil {
					<-time.After(time.Millisecond) // failed calls end at once
					raise(&slowest, int64(time.Since(start)-stalls.Since(start)))
				}
			}
		})
	}
	return func() time.Duration {
		close(done)
		wg.Wait()
		return time.Duration(slowest.Load())
	}
}

func TestFrozenServer(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redis.Options{URL: server.Addr})
	must(t, s, hit("a"))
	before := runtime.NumGoroutine()
	server.Pause()
	const callers = 100
	stop := load(t, s, callers)
	most := 0
	end := time.Now().Add(2500 * time.Millisecond) // past the second in which the connection is given up
	testenv.Eventually(t, 5*time.Second, func() bool {
		most = max(most, runtime.NumGoroutine())
		return time.Now().After(end)
	}, "the server was frozen long enough")
	slowest := stop()
	server.Resume()
	soon(t, s, hit("a"))
	if slowest > 500*time.Millisecond {
		t.Errorf("a call with a deadline of 20 ms took %v", slowest)
	}
	// A timer that ends a context runs in a goroutine of its own.
	if most > before+2*callers+30 {
		t.Errorf("%d goroutines, %d before", most, before)
	}
	if got := count(t, s, "a"); got != 2 {
		t.Errorf("charged %d times, want 2", got)
	}
}

// TestCloseFrozen: closing does not wait for a server that does not answer.
func TestCloseFrozen(t *testing.T) {
	server := testenv.Redis(t)
	before := runtime.NumGoroutine()
	s := open(t, redis.Options{URL: server.Addr})
	must(t, s, hit("a"))
	server.Pause()
	_, _ = try(s, 20*time.Millisecond, hit("a"))
	testenv.Within(t, 4*time.Second, func() bool {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		return true
	}, "the store is closed")
	server.Resume()
	testenv.Eventually(t, 5*time.Second, func() bool { return runtime.NumGoroutine() <= before }, "its goroutines end")
}

// TestTooManyCalls: calls beyond the bound fail at once. None of them piles up: the
// first probe after the server's return succeeds.
func TestTooManyCalls(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redis.Options{URL: server.Addr, Watch: &breaker.Watch{MaxInFlight: 64, Slow: time.Second}})
	must(t, s, hit("a"))
	server.Pause()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	busy := 0
	for range 1000 {
		b := backends.Batch{Ops: []backends.Op{hit("gone")}, Replies: make([]backends.Reply, 1)}
		err := s.Apply(ctx, &b)
		if !errors.Is(err, backends.ErrUnavailable) {
			t.Fatalf("%v, want ErrUnavailable", err)
		}
		if errors.Is(err, breaker.ErrBusy) {
			busy++
		}
	}
	if busy != 1000-64 {
		t.Errorf("%d calls found no room, want %d", busy, 1000-64)
	}
	server.Resume()
	soon(t, s, hit("a"))
	if got := count(t, s, "gone"); got > 64 {
		t.Errorf("%d calls were kept, want at most 64", got)
	}
}

func TestRestartedServer(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redis.Options{URL: server.Addr})
	must(t, s, hit("a"))
	server.Kill()
	stop := load(t, s, 30) // many failed attempts to connect
	for range 50 {
		if _, err := try(s, time.Second, hit("a")); !errors.Is(err, backends.ErrUnavailable) {
			t.Fatalf("%v, want ErrUnavailable", err)
		}
	}
	stop()
	server.Restart()
	soon(t, s, hit("a"))
	server.Restart() // in between calls
	if _, err := try(s, time.Second, hit("a")); err != nil {
		t.Fatalf("first call after the second restart: %v", err)
	}
}

func TestOpenBeforeTheServer(t *testing.T) {
	server := testenv.Redis(t)
	server.Kill()
	s := open(t, redis.Options{URL: server.Addr})
	if err := s.Ping(context.Background()); !errors.Is(err, backends.ErrUnavailable) {
		t.Fatalf("Ping: %v, want ErrUnavailable", err)
	}
	server.Restart()
	testenv.Within(t, time.Second, func() bool { return s.Ping(context.Background()) == nil }, "the server is asked again", server.Pid())
	must(t, s, hit("a"))
}

func TestCallWithoutDeadline(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redis.Options{URL: server.Addr, Timeout: 300 * time.Millisecond})
	must(t, s, hit("a"))
	server.Pause()
	testenv.Within(t, 2*time.Second, func() bool {
		b := backends.Batch{Ops: []backends.Op{hit("a")}, Replies: make([]backends.Reply, 1)}
		err := s.Apply(context.Background(), &b)
		if !errors.Is(err, backends.ErrUnavailable) || !strings.Contains(err.Error(), "redis: apply 1 operations") {
			t.Errorf("got %v", err)
		}
		return true
	}, "the call ends")
	server.Resume()
}

// TestSilentConnection: a connection that stays open but gets no answers is closed
// within a second, and a new one is opened.
func TestSilentConnection(t *testing.T) {
	server := testenv.Redis(t)
	network := testenv.NewRelay(t, server.Addr)
	s := open(t, redis.Options{URL: network.Addr})
	must(t, s, hit("a"))
	network.Forget()
	testenv.Within(t, 4*time.Second, func() bool {
		_, err := try(s, 50*time.Millisecond, hit("b"))
		return err == nil
	}, "the silent connection is replaced", server.Pid())
}

// TestDemotedMaster: a master that has become a replica answers READONLY. The
// store closes its connections and finds the successor at the same address.
func TestDemotedMaster(t *testing.T) {
	old, successor := testenv.Redis(t), testenv.Redis(t)
	network := testenv.NewRelay(t, old.Addr)
	s := open(t, redis.Options{URL: network.Addr})
	must(t, s, hit("a"))
	host, port, _ := strings.Cut(successor.Addr, ":")
	admin(t, old, "REPLICAOF", host, port)
	network.To(successor.Addr)
	op := hit("a")
	failed := 0
	testenv.Within(t, 3*time.Second, func() bool {
		// The batch begins with a look, which a replica answers, too.
		_, err := try(s, time.Second, op.Look(), hit("a"))
		if err != nil {
			failed++
		}
		return err == nil
	}, "the store finds the successor")
	if failed > 1 {
		t.Errorf("%d calls failed, want at most 1, which was answered READONLY", failed)
	}
}

func TestScriptFlush(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redis.Options{URL: server.Addr})
	const callers, rounds = 8, 25
	var wg sync.WaitGroup
	var failures atomic.Int64
	limited := func() backends.Op {
		op := hit("limited")
		op.Max = backends.Amount{Whole: 1 << 30}
		return op
	}
	for range callers {
		wg.Go(func() {
			for range rounds {
				if _, err := try(s, 5*time.Second, hit("counted"), hit("counted2")); err != nil {
					failures.Add(1)
				}
				if _, err := try(s, 5*time.Second, limited()); err != nil {
					failures.Add(1)
				}
			}
		})
	}
	for range 10 {
		admin(t, server, "SCRIPT", "FLUSH")
	}
	wg.Wait()
	if n := failures.Load(); n > 0 {
		t.Errorf("%d calls failed", n)
	}
	for _, key := range []string{"counted", "counted2", "limited"} {
		if got := count(t, s, key); got != callers*rounds {
			t.Errorf("%s: %d, want %d", key, got, callers*rounds)
		}
	}
}

// TestCallersThatGiveUp: callers that give up close no connection, and their hits
// count.
func TestCallersThatGiveUp(t *testing.T) {
	const gone = 4000
	server := testenv.Redis(t)
	s := open(t, redis.Options{URL: server.Addr, Watch: &breaker.Watch{MaxInFlight: 2 * gone, Slow: time.Second}})
	must(t, s, hit("warm"))
	// The clock asks three times at first and may open a connection for it.
	testenv.Eventually(t, 5*time.Second, func() bool {
		return strings.Contains(admin(t, server, "INFO", "commandstats").(string), "cmdstat_time:calls=3,")
	}, "the store knows the time")
	connections := func() string { return info(t, server, "total_connections_received") }
	before := connections()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range gone / 4 {
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				b := backends.Batch{Ops: []backends.Op{hit("gone")}, Replies: make([]backends.Reply, 1)}
				_ = s.Apply(ctx, &b)
			}
		})
	}
	for range 200 {
		if _, err := try(s, time.Second, hit("stays")); err != nil {
			t.Errorf("a caller that stays: %v", err)
		}
	}
	wg.Wait()
	if got := count(t, s, "stays"); got != 200 {
		t.Errorf("the callers that stay were counted %d times, want 200", got)
	}
	testenv.Eventually(t, 5*time.Second, func() bool { return count(t, s, "gone") == gone }, "calls outlive their callers")
	// The lane may open the rest of its ten connections, and info opens one.
	if after := connections(); atoi(t, after) > atoi(t, before)+10+1 {
		t.Errorf("connections: %s before, %s after", before, after)
	}
}

func TestClocksThatDiffer(t *testing.T) {
	server := testenv.Redis(t)
	skewed := func(by time.Duration) func() time.Time { return func() time.Time { return time.Now().Add(by) } }
	ahead := open(t, redis.Options{URL: server.Addr, Clock: skewed(2 * time.Second)})
	behind := open(t, redis.Options{URL: server.Addr, Clock: skewed(-time.Hour)})
	testenv.Eventually(t, 5*time.Second, func() bool {
		d := ahead.Now() - behind.Now()
		return max(d, -d) < 20_000
	}, "two processes agree on the time within 20 ms")
	if d := time.Since(time.UnixMicro(ahead.Now())).Abs(); d > 100*time.Millisecond {
		t.Errorf("the store's clock is off by %v", d)
	}
}
