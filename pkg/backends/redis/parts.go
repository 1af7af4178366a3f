package redis

import (
	"context"
	"time"

	"example.org/rls/pkg/backends/split"
)

// partCall is the call for one part of a batch.
type partCall struct {
	call
	part *split.Part
	done bool
}

// askSlots sends one script for each part, before it waits for the first answer,
// and takes the answers in the order in which they come. It is the Ask of
// split.Places.
func askSlots(ctx context.Context, to servers, parts []*split.Part, answered func(*split.Part), jitter time.Duration) {
	calls := make([]partCall, len(parts))
	ended := make(chan *partCall, len(parts))
	for i, p := range parts {
		c := &calls[i]
		c.call, c.part = newCall(&p.Batch, jitter), p
		c.ended = func() { ended <- c }
		c.start(ctx, to)
		if c.err != nil { // it was not sent
			c.ended()
		}
	}
	finish := func(c *partCall) {
		if c.done {
			return
		}
		c.done = true
		if err := c.finish(ctx, to, &c.part.Batch, jitter); err != nil {
			_ = fail(&c.part.Batch, err)
		}
		answered(c.part)
	}
	for range parts {
		select {
		case c := <-ended:
			finish(c)
		case <-ctx.Done():
			for i := range calls {
				finish(&calls[i])
			}
			return
		}
	}
}
