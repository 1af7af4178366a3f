package breaker_test

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/breaker"
)

// firstPause is the longest pause before the first probe.
const firstPause = 50 * time.Millisecond

var errRefused = errors.New("connection refused")

// watch returns a Watch and the lines that it has logged so far.
func watch() (*breaker.Watch, func() []string) {
	var out bytes.Buffer
	w := &breaker.Watch{Log: slog.New(slog.NewTextHandler(&out, nil)), Role: "main"}
	return w, func() []string { return slices.Collect(strings.Lines(out.String())) }
}

// call makes a call that ends with err after the time took. It reports whether the
// breaker allowed the call.
func call(b *breaker.Breaker, took time.Duration, err error) bool {
	c, refused := b.Allow()
	if refused != nil {
		return false
	}
	<-time.After(took) // of the bubble's fake clock
	c.Done(took, err)
	return true
}

func condition(w *breaker.Watch) breaker.Condition { return w.States()[0].Condition }

// pass has the bubble's fake clock go on.
func pass(d time.Duration) { <-time.After(d) }

// heard returns the breaker of a server that has answered.
func heard(w *breaker.Watch) *breaker.Breaker {
	b := w.Server("10.0.0.1:6379")
	call(b, time.Millisecond, nil)
	return b
}

func TestServerThatNeverAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, lines := watch()
		b := w.Server("10.0.0.1:6379")
		if !call(b, 0, errRefused) || condition(w) != breaker.Open || w.Away() != 1 {
			t.Errorf("state %v, %d away after the first failure, want open and 1", condition(w), w.Away())
		}
		_, err := b.Allow()
		if !errors.Is(err, backends.ErrUnavailable) || errors.Is(err, errRefused) ||
			!strings.Contains(err.Error(), "10.0.0.1:6379 is away: connection refused") {
			t.Errorf("Allow: %v", err)
		}
		pass(3 * time.Second)
		if !call(b, time.Millisecond, nil) || condition(w) != breaker.Closed || w.Away() != 0 {
			t.Errorf("state %v, %d away after a probe that succeeded", condition(w), w.Away())
		}
		got := lines()
		if len(got) != 2 ||
			!strings.Contains(got[0], `level=WARN msg="a server of the store is away" server=10.0.0.1:6379 role=main err="connection refused"`) ||
			!strings.Contains(got[1], `level=WARN msg="a server of the store is back" server=10.0.0.1:6379 role=main away=3.001s`) {
			t.Errorf("got %q", got)
		}
	})
}

// TestWhatOpens has a server at 1,000 calls a second that has answered for a
// second.
func TestWhatOpens(t *testing.T) {
	for _, c := range []struct {
		name   string
		bad    func(i int) bool // the calls after the second that do not succeed at once
		took   time.Duration    // bad calls
		err    error            // of bad calls
		within time.Duration    // 0: it stays closed
	}{
		{"refused connections", func(int) bool { return true }, 0, errRefused, 110 * time.Millisecond},
		{"six of ten fail", func(i int) bool { return i%10 < 6 }, 0, errRefused, time.Second},
		{"six of ten are slow", func(i int) bool { return i%10 < 6 }, 151 * time.Millisecond, nil, time.Second},
		{"one of a hundred fails", func(i int) bool { return i%100 == 0 }, 0, errRefused, 0},
		{"a pipeline of 64 breaks off", func(i int) bool { return i < 64 }, 0, errRefused, 0},
		{"50 ms each way", func(int) bool { return true }, 100 * time.Millisecond, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, _ := watch()
				b := heard(w)
				for range 1000 {
					pass(time.Millisecond)
					call(b, 0, nil)
				}
				var calls sync.WaitGroup
				defer calls.Wait()
				start := time.Now()
				for i := range 3000 {
					pass(time.Millisecond)
					if c.bad(i) {
						calls.Go(func() { call(b, c.took, c.err) })
					} else {
						call(b, 0, nil)
					}
					synctest.Wait()
					if condition(w) == breaker.Closed {
						continue
					}
					if took := time.Since(start); took > c.within {
						t.Errorf("opened after %v, want %v", took, c.within)
					}
					return
				}
				if c.within > 0 {
					t.Error("it never opened")
				}
			})
		})
	}
}

// TestFrozenServer: 150 calls wait when the first of them times out.
func TestFrozenServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := watch()
		b := heard(w)
		var calls sync.WaitGroup
		defer calls.Wait()
		for range 150 {
			calls.Go(func() { call(b, 150*time.Millisecond, errors.New("time-out")) })
			pass(time.Millisecond)
		}
		pass(10 * time.Millisecond)
		if condition(w) != breaker.Open {
			t.Error("not open after the first time-outs")
		}
		pass(140 * time.Millisecond) // the others time out
		// They began before the circuit opened, so they do not delay the probe.
		if !call(b, time.Millisecond, nil) || condition(w) != breaker.Closed {
			t.Error("no probe")
		}
	})
}

// TestOldCalls: calls that were allowed before the breaker opened and closed again say
// nothing about the server of now.
func TestOldCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, lines := watch()
		b := heard(w)
		var old []breaker.Call
		for range 20 {
			c, err := b.Allow()
			if err != nil {
				t.Fatal(err)
			}
			old = append(old, c)
		}
		end := func(n int, err error) {
			for _, c := range old[:n] {
				c.Done(time.Millisecond, err) // however short the wait was for the answer
			}
			old = old[n:]
		}
		for condition(w) == breaker.Closed {
			pass(30 * time.Millisecond)
			call(b, 0, errRefused)
		}
		if end(5, nil); condition(w) != breaker.Open {
			t.Errorf("state %v after answers to calls of before, want open", condition(w))
		}
		pass(firstPause)
		probe, err := b.Allow()
		if err != nil {
			t.Fatal(err)
		}
		if end(5, nil); condition(w) != breaker.HalfOpen {
			t.Errorf("state %v before the probe's outcome, want half-open", condition(w))
		}
		probe.Done(time.Millisecond, nil)
		pass(200 * time.Millisecond)
		end(10, errRefused)
		call(b, 0, errRefused) // the first failure of this generation
		if condition(w) != breaker.Closed || len(lines()) != 2 {
			t.Errorf("state %v, want closed; log %q", condition(w), lines())
		}
	})
}

// TestLostProbe: a probe without an outcome is forgotten, and an outcome that comes later does
// not matter.
func TestLostProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := watch()
		b := w.Server("a:1")
		call(b, 0, errRefused)
		pass(firstPause)
		lost, err := b.Allow()
		if err != nil {
			t.Fatal(err)
		}
		pass(3 * time.Second)
		if !call(b, 0, nil) || condition(w) != breaker.Closed {
			t.Errorf("state %v after 3 s, want closed by another probe", condition(w))
		}
		if lost.Done(3*time.Second, errRefused); condition(w) != breaker.Closed {
			t.Errorf("state %v after the lost probe failed, want closed", condition(w))
		}
	})
}

// TestSlowProbe: a server that answers a probe late is still away.
func TestSlowProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := watch()
		b := w.Server("a:1")
		call(b, 0, errRefused)
		pass(2 * time.Second)
		if !call(b, 151*time.Millisecond, nil) || condition(w) != breaker.Open {
			t.Errorf("state %v, want open", condition(w))
		}
		if err := b.Away(); err == nil || !strings.HasSuffix(err.Error(), "a:1 is away: answered only after 151ms") {
			t.Errorf("away: %v", err)
		}
	})
}

// TestWindow: every other call fails, and five calls of a second are enough to open.
func TestWindow(t *testing.T) {
	for every, want := range map[time.Duration]breaker.Condition{
		150 * time.Millisecond: breaker.Open,
		300 * time.Millisecond: breaker.Closed,
	} {
		synctest.Test(t, func(t *testing.T) {
			w, _ := watch()
			b := heard(w)
			for i := 0; i < 50 && condition(w) == breaker.Closed; i++ {
				pass(every)
				call(b, 0, []error{errRefused, nil}[i%2])
			}
			if condition(w) != want {
				t.Errorf("state %v with a call every %v, want %v", condition(w), every, want)
			}
		})
	}
}

// TestProbes: while a server is away, one call at a time tries it, at least twice a
// second.
func TestProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, lines := watch()
		b := w.Server("a:1")
		call(b, 0, errRefused)
		start, last := time.Now(), time.Now()
		probes := 0
		var longest time.Duration
		for time.Since(start) < 10*time.Second {
			pass(time.Millisecond)
			probe, err := b.Allow()
			if err != nil {
				continue
			}
			if condition(w) != breaker.HalfOpen {
				t.Fatalf("state %v while a probe is under way", condition(w))
			}
			if _, err := b.Allow(); err == nil {
				t.Fatal("two probes at a time")
			}
			probe.Done(0, errRefused)
			if longest = max(longest, time.Since(last)); probes < 2 && longest > 2*firstPause+time.Millisecond {
				t.Errorf("probe %d after %v", probes+1, longest)
			}
			last = time.Now()
			probes++
		}
		if probes < 20 || probes > 50 || longest > 501*time.Millisecond {
			t.Errorf("%d probes in 10 s, %v between two", probes, longest)
		}
		if got := lines(); len(got) != 1 {
			t.Errorf("the log has %q", got)
		}
	})
}

// TestJitter: breakers that open together do not probe together.
func TestJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := watch()
		var all []*breaker.Breaker
		for range 50 {
			b := w.Server("a:1")
			call(b, 0, errRefused)
			all = append(all, b)
		}
		pass(37 * time.Millisecond)
		early := 0
		for _, b := range all {
			if _, err := b.Allow(); err == nil {
				early++
			}
		}
		if early == 0 || early == len(all) {
			t.Errorf("%d of %d probes after three quarters of the pause", early, len(all))
		}
	})
}

// TestAbandonedCalls: calls that are not made say nothing about the server, and make
// room.
func TestAbandonedCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := watch()
		w.MaxInFlight = 64
		b := heard(w)
		if err := b.Away(); err != nil {
			t.Errorf("the server is away: %v", err)
		}
		for range 5 { // a call fails for each hundred that are not made
			for range 100 {
				if c, err := b.Allow(); err == nil {
					c.Done(0, breaker.ErrNotMade)
				}
			}
			call(b, 0, errRefused)
		}
		if condition(w) != breaker.Open || b.Away() == nil {
			t.Errorf("state %v, away: %v; want open", condition(w), b.Away())
		}
	})
}

// TestEveryOtherCallFails: a server that fails every other call does not fill the
// log.
func TestEveryOtherCallFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, lines := watch()
		b := heard(w)
		for i := range 2000 {
			pass(5 * time.Millisecond)
			var err error
			if i%2 == 0 {
				err = errRefused
			}
			call(b, 0, err)
		}
		if n := len(lines()); n > 20 || n < 1 {
			t.Errorf("%d lines in 10 s", n)
		}
		for range 500 {
			pass(5 * time.Millisecond)
			call(b, 0, errRefused)
		}
		if got := lines(); !strings.Contains(got[len(got)-1], "is away") {
			t.Errorf("the log ends with %q although the server stays away", got[len(got)-1])
		}
	})
}

func TestTooManyInFlight(t *testing.T) {
	w, _ := watch()
	w.MaxInFlight = 64
	b := w.Server("a:1")
	var last breaker.Call
	var err error
	for range 64 {
		if last, err = b.Allow(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Allow(); !errors.Is(err, backends.ErrUnavailable) || !errors.Is(err, breaker.ErrBusy) {
		t.Errorf("got %v", err)
	}
	last.Done(0, nil)
	if _, err := b.Allow(); err != nil {
		t.Error(err)
	}
	if condition(w) != breaker.Closed {
		t.Error("too many calls have opened the breaker")
	}
}

func TestLeftWhileAway(t *testing.T) {
	w, lines := watch()
	b := w.Server("a:1")
	call(b, 0, errRefused)
	b.Left()
	if got := lines(); len(w.States()) != 0 || w.Away() != 0 || len(got) != 2 || !strings.Contains(got[1], "has left") {
		t.Errorf("%v, %q", w.States(), got)
	}
}

// TestOneStateForEachAddress: metrics must not have two values for one server.
func TestOneStateForEachAddress(t *testing.T) {
	w, _ := watch()
	w.Server("b:1")
	w.Server("a:1")
	call(w.Server("b:1"), 0, errRefused)
	want := []breaker.State{{Address: "a:1"}, {Address: "b:1", Condition: breaker.Open}}
	if got := w.States(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestAWatchWithoutOptions(t *testing.T) {
	var none breaker.Watch
	b := none.Server("a:1")
	call(b, 0, errRefused)
	if _, err := b.Allow(); err == nil {
		t.Error("it did not open")
	}
	b.Left()
	if none.Away() != 0 || len(none.States()) != 0 {
		t.Error("it reports servers")
	}
}

// TestProbesOfManyCallers: while many callers ask at every moment, also at the moment
// at which a probe fails, each outage ends.
func TestProbesOfManyCallers(t *testing.T) {
	var w breaker.Watch
	b := w.Server("10.0.0.1:6379")
	var dead, done atomic.Bool
	var failed atomic.Int64
	var callers sync.WaitGroup
	defer callers.Wait()
	for range 20 {
		callers.Go(func() {
			for !done.Load() {
				c, refused := b.Allow()
				if refused != nil {
					continue
				}
				start := time.Now()
				var err error
				if dead.Load() {
					err = errRefused
					failed.Add(1)
				}
				c.Done(time.Since(start), err)
			}
		})
	}
	defer done.Store(true)
	for range 6 {
		dead.Store(true)
		testenv.Eventually(t, 10*time.Second, func() bool { return condition(&w) != breaker.Closed }, "the breaker opens")
		before := failed.Load()
		testenv.Eventually(t, 10*time.Second, func() bool { return failed.Load() >= before+3 }, "three probes fail")
		dead.Store(false)
		testenv.Eventually(t, 5*time.Second, func() bool { return condition(&w) == breaker.Closed }, "the breaker closes")
	}
}

// ask makes calls that end with err after the time took.
func ask(b *testing.B, s *breaker.Breaker, took time.Duration, err error) {
	b.ReportAllocs()
	for b.Loop() {
		if c, refused := s.Allow(); refused == nil {
			c.Done(took, err)
		}
	}
}

func BenchmarkClosed(b *testing.B) {
	ask(b, (&breaker.Watch{}).Server("a:1"), time.Millisecond, nil)
}

func BenchmarkOpen(b *testing.B) {
	s := (&breaker.Watch{}).Server("a:1")
	call(s, 0, errRefused)
	ask(b, s, 0, errRefused)
}

// BenchmarkCrowded has callers on all processors.
func BenchmarkCrowded(b *testing.B) {
	s := (&breaker.Watch{}).Server("a:1")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if c, err := s.Allow(); err == nil {
				c.Done(time.Millisecond, nil)
			}
		}
	})
}
