package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/redis/lane"
	"example.org/rls/pkg/backends/split"
)

// A call is one script, or plain commands, for one server.
type call struct {
	*Store
	batch *backends.Batch
	eval  eval
	ended func() // is called when the first answer has come or cannot come any more; may be nil
	lane  *lane.Lane
	trip  *lane.Trip
	err   error // why it could not be sent
}

const (
	maxRedirects  = 3                    // how often a call follows a slot that moves
	tryAgainPause = 5 * time.Millisecond // the wait for the rest of the keys to move
)

func (s *Store) newCall(b *backends.Batch) call {
	return call{Store: s, batch: b, eval: newEval(b, s.target.ExpirationJitter.Microseconds())}
}

// start sends the call, unless its lane refuses it.
func (c *call) start(ctx context.Context) {
	if c.lane, c.err = c.servers.lane(ctx, c.eval.key()); c.err != nil {
		c.err = backends.NotSent(c.err)
		return
	}
	c.err = c.send(c.eval.args, false)
}

func (c *call) send(args []any, asking bool) error {
	t := &lane.Trip{Key: c.eval.key(), Asking: asking, Ended: c.ended}
	switch c.eval.script {
	case nil:
		t.Cmd, t.After = c.eval.plain.commands()
	case &countScript:
		t.Cmd = goredis.NewIntSliceCmd(context.Background(), args...)
	default:
		t.Cmd = goredis.NewStringCmd(context.Background(), args...)
	}
	c.trip = t
	return c.lane.Send(t)
}

// again sends the call anew and waits for the answer. The call must not have
// been carried out.
func (c *call) again(ctx context.Context, args []any, asking bool) error {
	c.ended = nil
	if err := c.send(args, asking); err != nil {
		return err
	}
	return c.lane.Wait(ctx, c.trip)
}

// finish waits for the answer and decodes it into the batch. It sends the call anew,
// as long as ctx allows, when the answer says that the server has charged
// nothing: with the script's source when the server does not know the script,
// to another server when the slot has moved, and later when some of the call's keys
// have moved. Its errors name the server.
func (c *call) finish(ctx context.Context) error {
	if c.err == nil {
		c.err = c.settle(ctx)
	}
	switch {
	case c.eval.script == nil && c.trip != nil:
		var n int64
		if n, c.err = c.count(ctx); c.err == nil {
			c.err = fillCounts(c.batch, []int64{n})
		}
	case c.err == nil:
		c.err = c.eval.fill(c.batch, c.trip.Cmd)
	}
	if c.err == nil {
		return c.refused(ctx)
	}
	c.servers.failed(c.err)
	if c.lane == nil {
		return c.err
	}
	return c.lane.Named(c.err)
}

// refused applies by apply.lua the operations whose keys INCRBY refused: on such a counter
// reservations may be open.
func (c *call) refused(ctx context.Context) error {
	if c.eval.script != nil && c.eval.script != &countScript {
		return nil
	}
	var part backends.Part
	for i := range c.batch.Replies {
		if c.batch.Replies[i].Err != nil {
			part.Add(c.batch, i)
		}
	}
	if len(part.Ops) == 0 {
		return nil
	}
	anew := call{Store: c.Store, batch: &part.Batch}
	anew.eval.script, anew.eval.args = newApply(&part.Batch, c.target.ExpirationJitter.Microseconds())
	anew.start(ctx)
	err := anew.finish(ctx)
	part.Answer(c.batch)
	c.batch.Decide()
	return err
}

// apply applies a batch whose cells live on one server.
func (s *Store) apply(ctx context.Context, b *backends.Batch) error {
	c := s.newCall(b)
	c.start(ctx)
	return c.finish(ctx)
}

// applySlots sends one call for each part of a batch, before it waits for the first
// answer, and takes the answers in the order in which they come. It is the Ask of
// split.Places.
func (s *Store) applySlots(ctx context.Context, parts []*split.Part, answered func(*split.Part)) {
	calls := make([]call, len(parts))
	ended := make(chan int, len(parts))
	for i, p := range parts {
		c := &calls[i]
		*c = s.newCall(&p.Batch)
		c.ended = func() { ended <- i }
		if c.start(ctx); c.err != nil { // it was not sent
			ended <- i
		}
	}
	done := make([]bool, len(parts))
	finish := func(i int) {
		if done[i] {
			return
		}
		done[i] = true
		if err := calls[i].finish(ctx); err != nil {
			fail(&parts[i].Batch, err)
		}
		answered(parts[i])
	}
	for range parts {
		select {
		case i := <-ended:
			finish(i)
		case <-ctx.Done():
			for i := range parts {
				finish(i)
			}
			return
		}
	}
}

// count is the count that plain commands have answered; bad if the key does not
// hold a count. It has count.lua look at a key whose count is too large, or which may have
// no expiry because PEXPIRE was refused and INCRBY was not.
func (c *call) count(ctx context.Context) (int64, error) {
	if c.err != nil {
		if lane.Answered(c.err) && isForeign(c.err.Error()) {
			return bad, nil
		}
		return 0, c.err
	}
	n := max(bad, c.trip.Cmd.(*goredis.IntCmd).Val())
	if n > backends.MaxValue || c.trip.After[0].Err() != nil {
		p := &c.eval.plain
		look := call{Store: c.Store, batch: &backends.Batch{}}
		look.eval = eval{script: &countScript, args: []any{"evalsha", countScript.sha, 1, p.key, 0, p.lifetime}}
		if look.start(ctx); look.err == nil {
			_ = look.settle(ctx) // the charge is done all the same
		}
	}
	return min(n, backends.MaxValue), nil
}

func (c *call) settle(ctx context.Context) error {
	args, asking := c.eval.args, false
	err := c.lane.Wait(ctx, c.trip)
	for redirects := 0; err != nil && ctx.Err() == nil; err = c.again(ctx, args, asking) {
		next, ask := c.servers.redirect(err, c.lane)
		switch {
		case goredis.IsTryAgainError(err):
			redirects, asking = 0, false
			if pause(ctx, tryAgainPause); ctx.Err() != nil {
				return ctx.Err()
			}
			if c.lane, err = c.servers.lane(ctx, c.eval.key()); err != nil { // which has the slot by now
				return err
			}
		case goredis.HasErrorPrefix(err, "NOSCRIPT"):
			args = c.eval.bySource()
		case next == nil || redirects == maxRedirects:
			return err
		default:
			redirects++
			c.servers.failed(err)
			c.lane, asking = next, ask
		}
	}
	return err
}

// fail sets err in every reply of b.
func fail(b *backends.Batch, err error) {
	_ = b.Fail(fmt.Errorf("redis: %w", unavailable(err)))
}

// unavailable is err as one that wraps backends.ErrUnavailable.
func unavailable(err error) error {
	if errors.Is(err, backends.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", backends.ErrUnavailable, err)
}
