package breaker_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/breaker"
)

// crowd is callers of a server, each of whom waits for its call until the server falls
// silent.
type crowd struct {
	*breaker.Breaker
	answers chan struct{} // closed when the server answers

	mu              sync.Mutex
	refused, gaveUp int
	reason          error // of the last that gave up
	longest         time.Duration
	waiting         sync.WaitGroup
}

func (c *crowd) call() {
	call, err := c.Allow()
	if err != nil {
		c.count(&c.refused)
		return
	}
	start := time.Now()
	go func() {
		<-c.answers
		call.Done(time.Since(start), nil)
	}()
	c.waiting.Go(func() {
		err := call.Wait(context.Background(), c.answers)
		c.mu.Lock()
		if err != nil {
			c.gaveUp++
			c.reason = err
		}
		c.longest = max(c.longest, time.Since(start))
		c.mu.Unlock()
	})
}

func (c *crowd) count(n *int) {
	c.mu.Lock()
	*n++
	c.mu.Unlock()
}

// usually has the server take so long for some calls.
func usually(b *breaker.Breaker, took time.Duration) {
	for range 50 {
		call(b, took, nil)
	}
}

// TestSilentServer: a crowd need not wait until calls time out, and few wait from
// then on. The first answer ends the silence.
func TestSilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, lines := watch()
		c := crowd{Breaker: heard(w), answers: make(chan struct{})}
		usually(c.Breaker, time.Millisecond)
		for range 60 {
			pass(500 * time.Microsecond)
			c.call()
		}
		pass(85 * time.Millisecond) // after the 51st call
		c.waiting.Wait()
		if c.gaveUp != 60 || c.longest > 125*time.Millisecond {
			t.Errorf("%d of 60 callers gave up, after %v at the latest", c.gaveUp, c.longest)
		}
		_, allowed := c.Allow()
		_, joined := c.Join()
		for name, err := range map[string]error{"Allow": allowed, "Join": joined, "Wait": c.reason} {
			if !errors.Is(err, backends.ErrUnavailable) || !errors.Is(err, breaker.ErrBusy) {
				t.Errorf("%s of a silent server with 60 calls: %v", name, err)
			}
		}
		if condition(w) != breaker.Closed || len(lines()) > 0 {
			t.Errorf("the server is away: %q", lines())
		}
		close(c.answers)
		synctest.Wait()
		for range 100 {
			if _, err := c.Allow(); err != nil {
				t.Fatalf("after the first answer: %v", err)
			}
		}
	})
}

// TestFewWaitForASilentServer: they may be on a hot key and wait for the call of
// another caller.
func TestFewWaitForASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := watch()
		b := heard(w)
		usually(b, time.Millisecond)
		first, err := b.Allow()
		if err != nil {
			t.Fatal(err)
		}
		var callers sync.WaitGroup
		for range 1000 {
			follower, err := b.Join()
			if err != nil {
				t.Fatalf("while the server is not silent: %v", err)
			}
			callers.Go(func() { _ = follower.Wait(context.Background(), nil) })
		}
		pass(90 * time.Millisecond)
		callers.Wait() // for ever, if one of them waits on
		n := 0
		for _, err = b.Join(); err == nil; _, err = b.Join() {
			n++
		}
		if n != 49 { // and one call
			t.Errorf("%d callers wait for a silent server, want 49", n)
		}
		first.Done(40*time.Millisecond, errRefused)
		if _, err = b.Join(); err != nil {
			t.Error("there is no room for another caller although one call has ended")
		}
	})
}

// TestNotSilent has servers that answer late to a crowd.
func TestNotSilent(t *testing.T) {
	for name, c := range map[string]struct {
		usual, takes time.Duration // usual is 0 for a process that has just started
		callers      int
	}{
		"50 ms each way":               {100 * time.Millisecond, 140 * time.Millisecond, 1000},
		"20 ms each way":               {40 * time.Millisecond, 75 * time.Millisecond, 1000},
		"nearby, for a moment 20 ms":   {time.Millisecond, 20 * time.Millisecond, 1000},
		"nearby, a few wait 140 ms":    {time.Millisecond, 140 * time.Millisecond, 50},
		"the first calls of a process": {0, 140 * time.Millisecond, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, _ := watch()
				all := crowd{Breaker: w.Server("10.0.0.1:6379"), answers: make(chan struct{})}
				if c.usual > 0 {
					usually(all.Breaker, c.usual)
				}
				for range c.callers {
					all.call()
				}
				pass(c.takes)
				close(all.answers)
				all.waiting.Wait()
				if all.refused+all.gaveUp > 0 {
					t.Errorf("%d refused, %d gave up", all.refused, all.gaveUp)
				}
			})
		})
	}
}
