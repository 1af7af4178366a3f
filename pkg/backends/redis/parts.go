package redis

import (
	"context"
	"sync"

	"example.org/rls/pkg/backends/split"
)

// partCall is the call for one part of a batch.
type partCall struct {
	call
	part   *split.Part
	landed func()
	done   bool
}

// applyParts sends one script for each part, all before it waits for any, and
// takes the answers in the order in which they come. It calls landed once for
// each part: when that part's server has answered, else when its call fails.
func (s *Store) applyParts(ctx context.Context, parts []*split.Part, landed func(*split.Part)) {
	calls := make([]partCall, len(parts))
	ended := make(chan *partCall, len(parts))
	for i, p := range parts {
		c := &calls[i]
		c.part = p
		c.landed = sync.OnceFunc(func() { landed(p) })
		c.ended = func() {
			c.landed()
			ended <- c
		}
		c.eval = newEval(&p.Batch, s.randomJitter())
		c.tryStart(ctx, s.servers)
	}
	for i := range calls {
		c := &calls[i]
		c.start(ctx, s.servers) // if its lane was full
		if c.err != nil {       // it was not sent
			ended <- c
		}
	}
	for range parts {
		select {
		case c := <-ended:
			s.finishPart(ctx, c)
		case <-ctx.Done():
			for i := range calls {
				s.finishPart(ctx, &calls[i])
			}
			return
		}
	}
}

func (s *Store) finishPart(ctx context.Context, c *partCall) {
	if c.done {
		return
	}
	c.done = true
	if err := c.finish(ctx, s.servers, &c.part.Batch); err != nil {
		_ = fail(&c.part.Batch, err)
	}
	c.landed()
}
