package redis

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	clockEvery = 5 * time.Second        // between measurements
	clockRetry = 250 * time.Millisecond // after a failed one
	samples    = 3                      // per measurement, of which the quickest counts
)

// A clock is the local one moved to the server's. Between measurements it
// runs monotonically, whatever happens to the local wall clock.
type clock struct {
	local  func() time.Time
	start  time.Time
	offset atomic.Int64 // µs
}

func newClock(local func() time.Time) *clock { return &clock{local: local, start: local()} }

func (c *clock) unmoved() int64 {
	return c.start.UnixMicro() + c.local().Sub(c.start).Microseconds()
}

func (c *clock) now() int64 { return c.unmoved() + c.offset.Load() }

// follow measures until ctx ends. serverTime asks the server.
func (c *clock) follow(ctx context.Context, serverTime func(context.Context) (time.Time, error)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		pause := clockEvery
		if !c.measure(ctx, serverTime) {
			pause = clockRetry
		}
		timer.Reset(pause)
	}
}

// measure takes the server's time to lie in the middle of the quickest of a
// few round trips. Within half of that trip the old offset may be as right as
// the new one and is kept, so that the clock does not flutter.
func (c *clock) measure(ctx context.Context, serverTime func(context.Context) (time.Time, error)) bool {
	var offset, doubt int64
	for i := range samples {
		before := c.unmoved()
		t, err := serverTime(ctx)
		if err != nil {
			return false
		}
		trip := c.unmoved() - before
		if i == 0 || trip/2 < doubt {
			offset, doubt = t.UnixMicro()-before-trip/2, trip/2
		}
	}
	if d := offset - c.offset.Load(); d > doubt || -d > doubt {
		c.offset.Store(offset)
	}
	return true
}
