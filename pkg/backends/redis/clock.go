package redis

import (
	"cmp"
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/redis/lane"
)

const (
	clockEvery = 5 * time.Second        // between measurements
	clockRetry = 250 * time.Millisecond // after a failed measurement, and the least time between two
	samples    = 3                      // round trips per measurement; the quickest counts
)

// A clock is the local one moved to the server's. Between measurements it
// runs monotonically, whatever happens to the local wall clock.
type clock struct {
	local  func() time.Time
	start  time.Time
	offset atomic.Int64 // µs

	wake    chan struct{}
	failed  func(error) // is told of each measurement that failed
	log     *slog.Logger
	refused bool // the server answered the last measurement with an error
}

func newClock(t *target) *clock {
	log := cmp.Or(t.Watch.Log, slog.New(slog.DiscardHandler)).With("role", t.Watch.Role)
	return &clock{local: t.Clock, start: t.Clock(), wake: make(chan struct{}, 1), failed: t.ClockError, log: log}
}

func (c *clock) unmoved() int64 {
	return c.start.UnixMicro() + c.local().Sub(c.start).Microseconds()
}

func (c *clock) now() int64 { return c.unmoved() + c.offset.Load() }

// follow measures until ctx ends. serverTime asks the server for its time.
func (c *clock) follow(ctx context.Context, serverTime func(context.Context) (time.Time, error)) {
	for {
		next := clockEvery
		if err := c.measure(ctx, serverTime); ctx.Err() == nil {
			c.report(err)
			if err != nil && !lane.Answered(err) {
				next = clockRetry
			}
		}
		_ = backends.Pause(ctx, clockRetry)
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		case <-time.After(next - clockRetry):
		}
	}
}

// soon has the server's clock measured before the next measurement is due,
// because another server may have taken over.
func (c *clock) soon() {
	select {
	case c.wake <- struct{}{}:
	default: // a measurement is already requested
	}
}

// report reports the outcome of a measurement. It logs only the refusal of a
// server to tell its time; package breaker logs that a server is away.
func (c *clock) report(err error) {
	if err != nil && c.failed != nil {
		c.failed(err)
	}
	switch refused := err != nil && lane.Answered(err) && !lane.CannotServe(err) && lane.WrongKind(err) == ""; {
	case refused && !c.refused:
		c.refused = true
		c.log.Warn("the store refuses to tell its time, so replicas go by their own clocks: allow TIME", "err", err)
	case err == nil && c.refused:
		c.refused = false
		c.log.Info("the store tells its time again")
	}
}

// measure takes the server's time to lie in the middle of the quickest of a few round
// trips. An old offset that differs by less than half of that round trip may be as exact
// and is kept, so that the clock does not jitter.
func (c *clock) measure(ctx context.Context, serverTime func(context.Context) (time.Time, error)) error {
	var offset, doubt int64
	for i := range samples {
		before := c.unmoved()
		t, err := serverTime(ctx)
		if err != nil {
			return err
		}
		trip := c.unmoved() - before
		if i == 0 || trip/2 < doubt {
			offset, doubt = t.UnixMicro()-before-trip/2, trip/2
		}
	}
	if d := offset - c.offset.Load(); d > doubt || -d > doubt {
		c.offset.Store(offset)
	}
	return nil
}
