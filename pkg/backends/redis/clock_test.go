package redis

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends/breaker"
)

// TestClockOfASuccessor: when another server may have taken over, its clock is
// measured within a second and not when the next measurement is due.
func TestClockOfASuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ahead, measured atomic.Int64
		c := newClock(&target{Options: Options{Clock: time.Now, Watch: &breaker.Watch{}}})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go c.follow(ctx, func(context.Context) (time.Time, error) {
			measured.Add(1)
			return time.Now().Add(time.Duration(ahead.Load())), nil
		})
		off := func() time.Duration { return time.Until(time.UnixMicro(c.now())).Round(time.Millisecond) }
		testenv.Eventually(t, time.Second, func() bool { return measured.Load() == samples }, "the first measurement")
		ahead.Store(int64(time.Hour))
		for range 100 {
			c.soon() // calls fail
		}
		testenv.Eventually(t, time.Second, func() bool { return off() == time.Hour }, "the clock is the new server's, an hour ahead")
	})
}

// TestClockOfAServerThatIsAway: the clock of a server that is away is measured
// several times a second, and each failure is reported.
func TestClockOfAServerThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported atomic.Int64
		c := newClock(&target{Options: Options{Clock: time.Now, Watch: &breaker.Watch{}, ClockError: func(error) { reported.Add(1) }}})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second+time.Millisecond)
		defer cancel()
		c.follow(ctx, func(context.Context) (time.Time, error) { return time.Time{}, errors.New("refused") })
		if n := reported.Load(); n < 30 || n > 50 {
			t.Errorf("%d failures were reported in 10 s, want about 40", n)
		}
	})
}
