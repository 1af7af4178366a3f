package redis_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
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
	return backends.Op{Limit: &backends.Limit{Den: 1}, Key: key, Now: now, Until: now + time.Hour.Microseconds(), Times: 1,
		By: backends.Amount{Whole: 1}, Max: backends.NoMax}
}

// apply applies ops as one batch.
func apply(ctx context.Context, s backends.Store, all bool, ops ...backends.Op) (*backends.Batch, error) {
	b := &backends.Batch{Ops: ops, Replies: make([]backends.Reply, len(ops)), AllOrNothing: all}
	return b, s.Apply(ctx, b)
}

// try applies ops within timeout and returns the replies.
func try(s backends.Store, timeout time.Duration, ops ...backends.Op) ([]backends.Reply, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	b, err := apply(ctx, s, false, ops...)
	return b.Replies, err
}

// giveUp applies ops for a caller that has given up before.
func giveUp(s backends.Store, ops ...backends.Op) error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := apply(ctx, s, false, ops...)
	return err
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
// 20 ms until stop is called.
func load(s backends.Store, callers int) (stop func()) {
	var wg sync.WaitGroup
	var done atomic.Bool
	for i := range callers {
		wg.Go(func() {
			for !done.Load() {
				if _, err := try(s, 20*time.Millisecond, hit(fmt.Sprint("load", i%10))); err != nil {
					<-time.After(time.Millisecond) // failed calls end at once
				}
			}
		})
	}
	return func() {
		done.Store(true)
		wg.Wait()
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
	busy := 0
	for range 1000 {
		err := giveUp(s, hit("gone"))
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
	stop := load(s, 30) // many failed attempts to connect
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
		_, err := apply(context.Background(), s, false, hit("a"))
		if !errors.Is(err, backends.ErrUnavailable) || !strings.Contains(err.Error(), "redis: store unavailable: ") {
			t.Errorf("got %v", err)
		}
		return true
	}, "the call ends")
	server.Resume()
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
				_ = giveUp(s, hit("gone"))
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

// newSlowServer answers each SET, and each INCRBY with 1 after a millisecond. It knows
// no other command.
func newSlowServer(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { answerSlowly(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		conns.Wait()
	})
	return l.Addr().String()
}

func answerSlowly(c net.Conn) {
	defer func() { _ = c.Close() }()
	answers := map[string]string{"set": "+OK\r\n", "pexpire": ":1\r\n", "incrby": ":1\r\n"}
	begins := false // the next text is the name of a command
	for in := bufio.NewScanner(c); in.Scan(); {
		switch line := in.Text(); {
		case strings.HasPrefix(line, "*"): // the length of a command
			begins = true
		case begins && !strings.HasPrefix(line, "$"): // that of a text
			begins = false
			if line == "incrby" {
				<-time.After(time.Millisecond)
			}
			_, _ = io.WriteString(c, cmp.Or(answers[line], "-ERR unknown command\r\n"))
		}
	}
}

// TestManyCallersOfASlowServer: the server takes longer for the commands of all
// callers than a connection may be silent. Callers that have the time are
// answered.
func TestManyCallersOfASlowServer(t *testing.T) {
	s := open(t, redis.Options{URL: newSlowServer(t), Watch: &breaker.Watch{MaxInFlight: 4096, Slow: 5 * time.Second}})
	var failed atomic.Int64
	var calls sync.WaitGroup
	for range 2000 {
		calls.Go(func() {
			if _, err := try(s, 30*time.Second, hit("a")); err != nil {
				failed.Add(1)
			}
		})
	}
	calls.Wait()
	if n := failed.Load(); n > 0 {
		t.Errorf("%d of 2000 calls failed", n)
	}
}

// TestCommandsBehindASilentServer: commands that wait for a batch fail as soon
// as the batch before them is given up, and are not charged later.
func TestCommandsBehindASilentServer(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redis.Options{URL: server.Addr})
	for range 20 {
		must(t, s, hit("a"))
	}
	server.Pause()
	const callers = 2000
	var calls sync.WaitGroup
	var failed atomic.Int64
	for range callers {
		calls.Go(func() {
			if _, err := try(s, 30*time.Second, hit("waits")); err != nil {
				failed.Add(1)
			}
		})
	}
	testenv.Within(t, time.Second, func() bool { calls.Wait(); return true }, "all calls have ended")
	server.Resume()
	if n := failed.Load(); n != callers {
		t.Errorf("%d of %d calls failed", n, callers)
	}
	// A connection holds one command each until the first batch is given up.
	soon(t, s, hit("a"))
	if n := count(t, s, "waits"); n > 20 {
		t.Errorf("%d calls that failed were charged when the server woke up", n)
	}
}
