package memcached_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/memcached"
)

// warm opens connections: as many as n calls at once need.
func warm(t *testing.T, s *memcached.Store, n int) {
	t.Helper()
	testenv.Eventually(t, patience, func() bool {
		return errors.Join(together(n, func(i int) error {
			return s.Apply(context.Background(), batch(hit(fmt.Sprint("warm", i), 1, -1)))
		})...) == nil
	}, "all calls are answered")
}

// connections is how many clients a server has now, apart from the one who asks.
func connections(t *testing.T, addr string) int {
	t.Helper()
	stats := answer(t, addr, "stats")
	_, rest, _ := strings.Cut(stats, "curr_connections ")
	number, _, _ := strings.Cut(rest, "\r\n")
	open, err := strconv.Atoi(number)
	if err != nil {
		t.Fatalf("stats: %q", stats)
	}
	return open - 1
}

func TestRestartIsNotNoticed(t *testing.T) {
	for name, certs := range map[string]*testenv.TLS{"plain": nil, "tls": testenv.Certs(t)} {
		t.Run(name, func(t *testing.T) {
			o, args := memcached.Options{}, []string(nil)
			if certs != nil {
				o.TLS, args = certs.ForClient, certs.MemcachedArgs()
			}
			server := testenv.Memcached(t, args...)
			o.Servers = []string{server.Addr}
			s := open(t, o)
			warm(t, s, 20)
			server.Restart()
			if err := errors.Join(together(20, func(int) error {
				return s.Apply(context.Background(), batch(hit("after", 1, -1)))
			})...); err != nil {
				t.Fatalf("first calls after the restart: %v", err)
			}
			if got := apply(t, s, hit("after", 0, -1)).Value.Whole; got != 20 {
				t.Fatalf("20 hits count %d", got)
			}
		})
	}
}

func TestKilledServerIsAnErrorAtOnce(t *testing.T) {
	s, server := start(t)
	warm(t, s, 5)
	server.Kill()
	late := open(t, memcached.Options{Servers: []string{server.Addr}})
	quickest := patience
	for range 10 {
		start := time.Now()
		if err := s.Apply(context.Background(), batch(hit("key", 1, -1))); !errors.Is(err, backends.ErrUnavailable) || !strings.Contains(err.Error(), server.Addr) {
			t.Fatalf("got %v, want ErrUnavailable that names %s", err, server.Addr)
		}
		quickest = min(quickest, time.Since(start))
		if err := s.Ping(context.Background()); !errors.Is(err, backends.ErrUnavailable) {
			t.Fatalf("Ping: %v, want ErrUnavailable", err)
		}
	}
	if quickest > 50*time.Millisecond {
		t.Fatalf("the quickest of ten refusals took %v", quickest)
	}
	server.Restart()
	for want, s := range []*memcached.Store{s, late} {
		testenv.Within(t, time.Second, func() bool { return s.Ping(context.Background()) == nil }, "the store answers")
		if got := apply(t, s, hit("key", 1, -1)).Value.Whole; got != int64(want)+1 {
			t.Fatalf("call %d after its return counts %d", want+1, got)
		}
	}
}

func TestFrozenServer(t *testing.T) {
	server := testenv.Memcached(t)
	const timeout, wait = 300 * time.Millisecond, 150 * time.Millisecond
	s := open(t, memcached.Options{Servers: []string{server.Addr}, Timeout: timeout})
	warm(t, s, 10)
	apply(t, s, hit("frozen", 1, -1))
	before := runtime.NumGoroutine()
	server.Pause()
	// 10 waves of 300 callers, each with the patience of Envoy.
	for range 10 {
		for _, err := range together(300, func(i int) error {
			ctx, cancel := context.WithTimeout(context.Background(), wait)
			defer cancel()
			b := batch(hit("frozen", 1, -1))
			if i%4 == 0 {
				b = batch(hit("frozen", 1, -1), hit("frozen-too", 1, 5))
			}
			start := time.Now()
			err := s.Apply(ctx, b)
			if d := time.Since(start); d > wait+time.Second {
				err = fmt.Errorf("answered only after %v", d)
			}
			return err
		}) {
			if !errors.Is(err, backends.ErrUnavailable) {
				t.Fatalf("got %v, want ErrUnavailable in time", err)
			}
		}
		// The 64 workers, and goroutines that gomemcache starts for calls on several keys. Goroutines
		// of callers that have their answer may be about to end.
		testenv.Eventually(t, patience, func() bool { return runtime.NumGoroutine() <= before+100 }, "there are at most 100 goroutines more than before")
	}
	server.Resume()
	testenv.Eventually(t, patience, func() bool {
		return s.Apply(context.Background(), batch(hit("awake", 1, 5))) == nil
	}, "the server is used again")
	// The hit before the freeze, the calls on the 10 connections that were open
	// then, and the calls that waited for an answer at the end of the freeze.
	if got := apply(t, s, hit("frozen", 0, -1)).Value.Whole; got > 1+10+64 {
		t.Fatalf("%d of the 3000 calls that failed were charged later", got)
	}
	testenv.Eventually(t, patience, func() bool { return connections(t, server.Addr) <= 64 }, "at most 64 connections")
}

// TestTooManyCallsAreRefusedAtOnce: 64 calls are on the wire and the others wait for
// them, up to the breaker's bound; the store does not accept more.
func TestTooManyCallsAreRefusedAtOnce(t *testing.T) {
	server := testenv.Memcached(t)
	const callers, most = 700, 300
	s := open(t, memcached.Options{Servers: []string{server.Addr}, Watch: &breaker.Watch{MaxInFlight: most}})
	server.Pause()
	errs := make(chan error, callers)
	ctx, giveUp := context.WithCancel(context.Background())
	defer giveUp()
	for range callers {
		go func() { errs <- s.Apply(ctx, batch(hit("key", 1, -1))) }()
	}
	for range callers - most {
		select {
		case err := <-errs:
			if !errors.Is(err, backends.ErrUnavailable) || !strings.Contains(err.Error(), "more than 300") {
				t.Fatalf("got %v, want a refusal", err)
			}
		case <-time.After(patience / 2):
			t.Fatal("a call beyond the bound waits")
		}
	}
	server.Resume()
	for range most {
		if err := <-errs; err != nil {
			t.Fatalf("a call within the bound: %v", err)
		}
	}
}

// TestFrozenServerDelaysNoOther: calls to two servers that answer go on while
// many callers ask the third one, which does not.
func TestFrozenServerDelaysNoOther(t *testing.T) {
	frozen := testenv.Memcached(t)
	live := []*testenv.Server{testenv.Memcached(t), testenv.Memcached(t)}
	const timeout = time.Second
	s := open(t, memcached.Options{
		Servers: []string{frozen.Addr, live[0].Addr, live[1].Addr}, Timeout: timeout, Watch: &breaker.Watch{Slow: timeout},
	})
	stalls := testenv.WatchStalls(t, os.Getpid(), live[0].Pid(), live[1].Pid())
	onFrozen, onLive := keysOn(t, s, frozen, 50, 100)
	frozen.Pause()
	var flood sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	defer flood.Wait()
	defer stop()
	for _, key := range onFrozen {
		for range 4 { // 200 callers, more than workers
			flood.Go(func() {
				pace := time.NewTicker(20 * time.Millisecond) // 10,000 calls a second together
				defer pace.Stop()
				for ctx.Err() == nil {
					if err := s.Apply(ctx, batch(hit(key, 1, -1))); err == nil {
						t.Error("the frozen server has answered")
					}
					<-pace.C
				}
			})
		}
	}
	for deadline := time.Now().Add(2 * timeout); time.Now().Before(deadline); {
		for _, key := range onLive {
			start := time.Now()
			if err := s.Apply(context.Background(), batch(hit(key, 1, -1))); err != nil && stalls.Since(start) < timeout/2 {
				t.Fatalf("a call to a server that answers: %v", err)
			}
		}
	}
}

// TestFrozenServerIsTriedByOneCallAtATime: once a call has timed out the other
// calls fail at once, and the server is used again as soon as it answers.
func TestFrozenServerIsTriedByOneCallAtATime(t *testing.T) {
	server := testenv.Memcached(t)
	const timeout = 300 * time.Millisecond
	s := open(t, memcached.Options{Servers: []string{server.Addr}, Timeout: timeout})
	warm(t, s, 3)
	server.Pause()
	call := func() error { return s.Apply(context.Background(), batch(hit("key", 1, -1))) }
	if call() == nil {
		t.Fatal("the frozen server has answered")
	}
	var waited, atOnce atomic.Int64
	var callers sync.WaitGroup
	for range 20 {
		callers.Go(func() {
			for end := time.Now().Add(3 * timeout); time.Now().Before(end); {
				if err := call(); err != nil && strings.Contains(err.Error(), "away") {
					atOnce.Add(1)
				} else {
					waited.Add(1)
				}
			}
		})
	}
	callers.Wait()
	// The 20 callers may all begin before the first time-out is known. From
	// then on one call at a time waits for a time-out; side by side the callers
	// would have made 40 more.
	if n := waited.Load(); n > 20+5 || atOnce.Load() < 1000 {
		t.Fatalf("%d calls tried the frozen server and %d failed at once", n, atOnce.Load())
	}
	server.Resume()
	testenv.Eventually(t, patience, func() bool { return call() == nil }, "the server is used again")
	for range 100 {
		apply(t, s, hit("key", 1, -1))
	}
}

// TestHalfAnsweredBatch: when one server is away, the operations on the other
// server are decided. The replies for the first have an error that names it.
func TestHalfAnsweredBatch(t *testing.T) {
	up, down := testenv.Memcached(t), testenv.Memcached(t)
	s := open(t, memcached.Options{Servers: []string{down.Addr, up.Addr}})
	onUp, onDown := twoKeys(t, s, up)
	down.Kill()
	b := batch(hit(onDown, 1, -1), hit(onUp, 1, -1))
	err := s.Apply(context.Background(), b)
	if !errors.Is(err, backends.ErrUnavailable) || !errors.Is(b.Replies[0].Err, backends.ErrUnavailable) || !strings.Contains(b.Replies[0].Err.Error(), down.Addr) {
		t.Errorf("the operation on the server that is gone: %v, Apply: %v", b.Replies[0].Err, err)
	}
	if r := b.Replies[1]; r.Err != nil || r.Admitted != 1 || r.Value.Whole != 2 {
		t.Errorf("the operation on the server that is there: %+v", r)
	}
	if err := s.Ping(context.Background()); err != nil {
		t.Errorf("Ping: %v, though one server decides for its keys", err)
	}
}

// TestLostConnectionsCostOneCall: after one call has broken off, later calls open
// new connections and do not use the idle ones. (A second call may break off, if
// it began before the first was over.)
func TestLostConnectionsCostOneCall(t *testing.T) {
	server := testenv.Memcached(t)
	network := testenv.NewRelay(t, server.Addr)
	s := open(t, memcached.Options{Servers: []string{network.Addr}, Timeout: 3 * time.Second})
	warm(t, s, 10)
	network.Forget()
	failed := 0
	testenv.Within(t, time.Second, func() bool {
		for s.Apply(context.Background(), batch(hit("key", 1, -1))) != nil {
			failed++
		}
		return true
	}, "the loss is noticed")
	if failed == 0 || failed > 2 {
		t.Fatalf("%d calls failed, want 1", failed)
	}
	for range 20 {
		apply(t, s, hit("key", 1, -1))
	}
}

func TestCallersWhoGiveUpDisturbNobody(t *testing.T) {
	server := testenv.Memcached(t)
	network := testenv.NewRelay(t, server.Addr)
	s := open(t, memcached.Options{Servers: []string{network.Addr}})
	warm(t, s, 30)
	opened := network.Opened()
	for range 20 {
		if err := errors.Join(together(30, func(i int) error {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if i%2 == 0 {
				go cancel()
				_ = s.Apply(ctx, batch(hit("key", 1, -1)))
				return nil
			}
			return s.Apply(ctx, batch(hit("key", 1, -1)))
		})...); err != nil {
			t.Fatalf("a patient caller: %v", err)
		}
	}
	if now := network.Opened(); now > max(opened, 64) {
		t.Fatalf("%d connections opened, %d before", now, opened)
	}
}

// TestAbandonedBatchIsNotTouched: the store does not touch the batch of a caller
// that has given up.
func TestAbandonedBatchIsNotTouched(t *testing.T) {
	s, server := start(t)
	server.Pause()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	b := batch(hit("key", 3, -1))
	err := s.Apply(ctx, b)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, backends.ErrUnavailable) {
		t.Fatalf("got %v, want ErrUnavailable, deadline exceeded", err)
	}
	b.Ops[0], b.Replies[0] = backends.Op{}, backends.Reply{} // the race detector watches
	server.Resume()
	testenv.Eventually(t, patience, func() bool { return apply(t, s, hit("key", 0, -1)).Value.Whole == 3 }, "the call outlives its caller")
	if b.Replies[0] != (backends.Reply{}) {
		t.Fatalf("reply written afterwards: %+v", b.Replies[0])
	}
}

func TestTLS(t *testing.T) {
	certs := testenv.Certs(t)
	server := testenv.Memcached(t, certs.MemcachedArgs()...)
	s := open(t, memcached.Options{Servers: []string{server.Addr}, TLS: certs.ForClient})
	for want := range int64(5) {
		if got := apply(t, s, hit("key", 1, 5)).Value.Whole; got != want+1 {
			t.Fatalf("hit %d counts %d", want+1, got)
		}
	}
	plain := testenv.Memcached(t)
	for _, c := range []struct {
		name   string
		server *testenv.Server
		tls    func() *tls.Config
		want   string
	}{
		{"no TLS to a port for TLS", server, nil, "it may speak TLS on this port"},
		{"TLS to a port without", plain, certs.ForClient, "does the server speak TLS on this port? else use no TLS"},
		{"an authority that the client does not know", server, func() *tls.Config { return &tls.Config{MinVersion: tls.VersionTLS12} }, "unknown authority"},
	} {
		s := open(t, memcached.Options{Servers: []string{c.server.Addr}, TLS: c.tls, Timeout: 2 * time.Second})
		if err := s.Ping(context.Background()); !errors.Is(err, backends.ErrUnavailable) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestComingsAndGoingsAreLogged: one line when a server goes, one when it is
// back, however many calls fail.
func TestComingsAndGoingsAreLogged(t *testing.T) {
	server := testenv.Memcached(t)
	var log strings.Builder
	watch := &breaker.Watch{Log: slog.New(slog.NewTextHandler(&log, nil)), Role: "main"}
	s := open(t, memcached.Options{Servers: []string{server.Addr}, Watch: watch})
	apply(t, s, hit("key", 1, -1))
	server.Kill()
	for range 20 {
		_ = s.Apply(context.Background(), batch(hit("key", 1, -1)))
	}
	if watch.Away() != 1 {
		t.Errorf("%d servers are away, want 1", watch.Away())
	}
	server.Restart()
	testenv.Eventually(t, patience, func() bool {
		return s.Apply(context.Background(), batch(hit("key", 1, -1))) == nil && watch.Away() == 0
	}, "the server is used again")
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "is away") || !strings.Contains(lines[0], server.Addr) || !strings.Contains(lines[1], "is back") {
		t.Errorf("the log:\n%s", log.String())
	}
}

func TestUnixSocket(t *testing.T) {
	server := testenv.Memcached(t)
	socket := filepath.Join(t.TempDir(), "memcached.sock")
	testenv.RelayAt(t, "unix", socket, server.Addr)
	s := open(t, memcached.Options{Servers: []string{socket}})
	if got := apply(t, s, hit("key", 2, 5)).Value.Whole; got != 2 {
		t.Fatalf("counts %d, want 2", got)
	}
}

func TestBadOptions(t *testing.T) {
	for want, o := range map[string]memcached.Options{
		"either Servers or SRV": {},
		"both":                  {Servers: []string{"a:1"}, SRV: "_memcache._tcp.example"},
		`"localhost"`:           {Servers: []string{"localhost"}},
		`":11211"`:              {Servers: []string{":11211"}},
		`"a:0"`:                 {Servers: []string{"a:0"}},
		`"a:70000"`:             {Servers: []string{"b:1", "a:70000"}},
	} {
		if want == "both" {
			want = "either Servers or SRV"
		}
		if _, err := memcached.Open(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want an error about %s", o, err, want)
		}
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	server := testenv.Memcached(t)
	before := runtime.NumGoroutine()
	s, err := memcached.Open(memcached.Options{Servers: []string{server.Addr}})
	if err != nil {
		t.Fatal(err)
	}
	warm(t, s, 20)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, patience, func() bool { return runtime.NumGoroutine() <= before }, "all goroutines end")
	testenv.Eventually(t, patience, func() bool { return connections(t, server.Addr) == 0 }, "all connections end")
	if err := s.Apply(context.Background(), batch(hit("key", 1, -1))); !errors.Is(err, backends.ErrUnavailable) {
		t.Fatalf("Apply on a closed store: %v", err)
	}
}

// TestEachOperationIsToldWhenItIsDecided: a key on a server that answers is
// told at once, a key on a frozen server when the call to it ends.
func TestEachOperationIsToldWhenItIsDecided(t *testing.T) {
	up, frozen := testenv.Memcached(t), testenv.Memcached(t)
	s := open(t, memcached.Options{Servers: []string{frozen.Addr, up.Addr}})
	onUp, onFrozen := twoKeys(t, s, up)
	frozen.Pause()
	b := batch(hit(onFrozen, 1, -1), hit(onUp, 1, -1))
	ctx, giveUp := context.WithCancel(context.Background())
	told := make(chan *backends.Op, 2)
	ended := make(chan error, 1)
	go func() { ended <- s.ApplyEach(ctx, b, func(op *backends.Op) { told <- op }) }()
	select {
	case op := <-told:
		if op != &b.Ops[1] {
			t.Fatalf("told of %s first", op.Key)
		}
	case <-time.After(patience / 2):
		t.Fatal("the operation on the server that answers is not told")
	}
	giveUp()
	if err := <-ended; !errors.Is(err, backends.ErrUnavailable) || len(told) != 1 || <-told != &b.Ops[0] {
		t.Fatalf("error %v", err)
	}
	frozen.Resume()
}
