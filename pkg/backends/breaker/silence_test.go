package breaker_test

import (
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
	longest         time.Duration
	waiting         sync.WaitGroup
}

func (c *crowd) call() {
	if err := c.Enter(); err != nil {
		c.count(&c.refused)
		return
	}
	start := time.Now()
	go func() {
		<-c.answers
		c.Leave(time.Since(start), nil)
	}()
	c.waiting.Go(func() {
		select {
		case <-c.answers:
		case <-c.Silence():
			c.count(&c.gaveUp)
		}
		c.mu.Lock()
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
		for name, err := range map[string]error{"Enter": c.Enter(), "Join": c.Join(), "Silent": c.Silent()} {
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
			if err := c.Enter(); err != nil {
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
		if err := b.Enter(); err != nil {
			t.Fatal(err)
		}
		var joined []error
		for range 1000 {
			joined = append(joined, b.Join())
		}
		if err := errors.Join(joined...); err != nil {
			t.Fatalf("while the server is not silent: %v", err)
		}
		silence := b.Silence()
		pass(90 * time.Millisecond)
		select {
		case <-silence:
		default:
			t.Fatal("the callers still wait")
		}
		for range joined {
			b.Part()
		}
		n := 0
		for b.Join() == nil {
			n++
		}
		if n != 49 { // and one call
			t.Errorf("%d callers wait for a silent server, want 49", n)
		}
		b.Leave(40*time.Millisecond, errRefused)
		if b.Join() != nil {
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
