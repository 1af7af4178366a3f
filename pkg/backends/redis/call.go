package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/redis/lane"
	"example.org/rls/pkg/backends/split"
)

// A call is one script, or plain commands, for operations whose keys share a server.
type call struct {
	*Store
	batch  *backends.Batch
	script *script // nil for plain commands
	args   []any   // EVALSHA's: name, sha, number of keys, keys, arguments; or INCRBY's
	life   int64   // PEXPIRE's, which follows INCRBY, in ms
	ended  func()  // is called when the first answer has come or cannot come any more; may be nil
	lane   *lane.Lane
	trip   *lane.Trip
	err    error // why it could not be sent
}

const (
	maxRedirects  = 3                    // how often a call follows a slot that moves
	tryAgainPause = 5 * time.Millisecond // the wait for the rest of the keys to move
)

// newCall encodes b.
//
// The charge of one counter whatever its count is needs no script: INCRBY, and PEXPIRE, which sets the
// same end each time (see life), also of a key that has lost it (PERSIST, a restored dump). These
// commands cost Redis less than count.lua.
func (s *Store) newCall(b *backends.Batch) call {
	c := call{Store: s, batch: b}
	jitter, op, counts := s.jitter(), &b.Ops[0], !b.Together()
	for i := range b.Ops {
		counts = counts && isCount(&b.Ops[i])
	}
	switch {
	case counts && len(b.Ops) == 1 && op.By.Whole > 0:
		c.args, c.life = []any{"incrby", StoredKey(op.Key), op.By.Whole * op.Times}, lifetime(op, jitter)
	case counts:
		c.script, c.args = newCount(b, jitter)
	default:
		c.script, c.args = newApply(b, jitter)
	}
	return c
}

// jitter is the longest time in µs that the key of a fixed window lives beyond its window.
func (s *Store) jitter() int64 { return s.target.ExpirationJitter.Microseconds() }

// key is the first of the keys, which all live in one slot.
func (c *call) key() string {
	if c.script == nil {
		return c.args[1].(string)
	}
	return c.args[3].(string)
}

// start sends the call, unless its lane refuses it.
func (c *call) start(ctx context.Context) {
	if c.lane, c.err = c.servers.lane(ctx, c.key()); c.err != nil {
		c.err = backends.NotSent(c.err)
		return
	}
	c.err = c.send(c.args, false)
}

func (c *call) send(args []any, asking bool) error {
	t, ctx := &lane.Trip{Key: c.key(), Asking: asking, Ended: c.ended}, context.Background()
	switch c.script {
	case nil:
		t.Cmd, t.After = goredis.NewIntCmd(ctx, args...), []goredis.Cmder{goredis.NewBoolCmd(ctx, "pexpire", t.Key, c.life)}
	case &countScript:
		t.Cmd = goredis.NewIntSliceCmd(ctx, args...)
	default:
		t.Cmd = goredis.NewStringCmd(ctx, args...)
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
	var n int64
	if c.script == nil && c.trip != nil {
		n, c.err = c.count(ctx)
	}
	if c.err == nil {
		switch answer := c.trip.Cmd.(type) {
		case *goredis.IntCmd:
			c.err = fillCounts(c.batch, []int64{n})
		case *goredis.IntSliceCmd:
			c.err = fillCounts(c.batch, answer.Val())
		case *goredis.StringCmd:
			c.err = fillReplies(c.batch, answer.Val())
		}
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
	if c.script != nil && c.script != &countScript {
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
	anew.script, anew.args = newApply(&part.Batch, c.jitter())
	anew.start(ctx)
	err := anew.finish(ctx)
	part.Answer(c.batch)
	c.batch.Decide()
	return err
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
		args := []any{"evalsha", countScript.sha, 1, c.key(), 0, c.life}
		look := call{Store: c.Store, batch: &backends.Batch{}, script: &countScript, args: args}
		if look.start(ctx); look.err == nil {
			_ = look.settle(ctx) // the charge is done all the same
		}
	}
	return min(n, backends.MaxValue), nil
}

func (c *call) settle(ctx context.Context) error {
	args, asking := c.args, false
	err := c.lane.Wait(ctx, c.trip)
	for redirects := 0; err != nil && ctx.Err() == nil; err = c.again(ctx, args, asking) {
		next, ask := c.servers.redirect(err, c.lane)
		switch {
		case goredis.IsTryAgainError(err):
			redirects, asking = 0, false
			if err = backends.Pause(ctx, tryAgainPause); err == nil {
				c.lane, err = c.servers.lane(ctx, c.key()) // which has the slot by now
			}
			if err != nil {
				return err
			}
		case c.script != nil && goredis.HasErrorPrefix(err, "NOSCRIPT"):
			args = slices.Clone(c.args) // the call that also loads the script
			args[0], args[1] = "eval", c.script.source
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
