package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/redis/lane"
)

// servers are the servers that hold a store's cells: one server, or the masters
// of a cluster.
type servers interface {
	// lane is the way to the server that has key.
	lane(ctx context.Context, key string) (*lane.Lane, error)
	// breaker is the breaker of the server that has key, or nil if none is known.
	breaker(key string) *breaker.Breaker
	// redirect is the way to the server that a MOVED or ASK error names, or
	// nil; asking says that the call must follow an ASKING there.
	redirect(err error) (l *lane.Lane, asking bool)
	// failed takes note of the error of a call.
	failed(err error)
	// time is the time on the one server whose clock counts.
	time(ctx context.Context) (time.Time, error)
	// ping succeeds when the store can decide for some keys.
	ping(ctx context.Context) error
	// scan calls each with the keys that match a glob, some at a time.
	scan(ctx context.Context, match string, each func(keys []string) error) error
	close() error
}

// A call is one script, or plain commands, for one server.
type call struct {
	eval  eval
	apart bool                    // one operation on two cells, which can be asked one after the other
	ended func()                  // is called when the first answer has come or cannot come any more; may be nil
	late  func(*lane.Trip, error) // is called when an answer comes after finish has returned; may be nil
	lane  *lane.Lane
	trip  *lane.Trip
	err   error // why it could not be sent
}

const (
	// maxRedirects bounds how often a call follows a slot that moves.
	maxRedirects = 3
	// tryAgainPause is how long a call waits for the rest of its keys to move.
	tryAgainPause = 5 * time.Millisecond
)

// newCall is the call that applies b.
func newCall(b *backends.Batch, jitter time.Duration) call {
	c := call{eval: newEval(b, jitter.Microseconds()), apart: len(b.Ops) == 1 && b.Ops[0].Prev != ""}
	if b.Late != nil {
		eval := c.eval
		c.late = func(t *lane.Trip, err error) {
			answered := &backends.Batch{Ops: b.Ops, AllOrNothing: b.AllOrNothing, Replies: make([]backends.Reply, len(b.Ops))}
			if err == nil && eval.fill(answered, t.Answer()) == nil {
				b.Late(answered)
			}
		}
	}
	return c
}

// start sends the call, unless its lane refuses it.
func (c *call) start(ctx context.Context, to servers) {
	if c.lane, c.err = to.lane(ctx, c.eval.key()); c.err != nil {
		c.err = backends.NotSent(c.err)
		return
	}
	c.err = c.send(c.eval.args, false)
}

func (c *call) send(args []any, asking bool) error {
	t := &lane.Trip{Key: c.eval.key(), Asking: asking, Ended: c.ended}
	if late := c.late; late != nil { // c stays on the stack
		t.Late = func(err error) { late(t, err) }
	}
	if c.eval.script != nil {
		t.Cmd = goredis.NewIntSliceCmd(context.Background(), args...)
	} else {
		t.Before, t.Cmd = c.eval.plain.commands()
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

// finish waits for the answer and decodes it into b. It sends the call anew,
// as long as ctx allows, when the answer says that the server has charged
// nothing: with the script's source when the server does not know the script,
// to another server when the slot has moved, and when some of the call's keys
// have moved, later or cell by cell. Its errors name the server.
func (c *call) finish(ctx context.Context, to servers, b *backends.Batch, jitter time.Duration) error {
	if c.err == nil {
		c.err = c.settle(ctx, to)
	}
	switch {
	case c.apart && goredis.IsTryAgainError(c.err):
		return cellByCell(ctx, to, b, jitter)
	case c.eval.script == nil && c.trip != nil:
		var n int64
		if n, c.err = c.count(ctx, to); c.err == nil {
			return c.eval.fill(b, []int64{n})
		}
	case c.err == nil:
		return c.eval.fill(b, c.trip.Answer())
	}
	to.failed(c.err)
	if c.lane == nil {
		return c.err
	}
	return c.lane.Named(c.err)
}

// cellByCell applies the operation of b, which has a previous cell, while its slot moves.
// No server can look at both cells if one of them does not exist. The previous window is
// over, so its count, which is read first, is as good a moment later.
func cellByCell(ctx context.Context, to servers, b *backends.Batch, jitter time.Duration) error {
	op := b.Ops[0]
	prev := op.Look()
	if op.Verb == backends.Reset {
		prev = op.Reset()
	}
	prev.Key, prev.Prev, op.Prev = op.Prev, "", ""
	before := backends.Batch{Ops: []backends.Op{prev}, Replies: make([]backends.Reply, 1)}
	if err := apply(ctx, to, &before, jitter); err != nil {
		return err
	}
	count := max(0, before.Replies[0].Value.Whole)
	if op.Max != backends.NoMax {
		op.Max.Whole -= backends.Weighted(count, op.WeightNum, op.WeightDen)
	}
	now := backends.Batch{Ops: []backends.Op{op}, Replies: b.Replies, Late: b.Late}
	err := apply(ctx, to, &now, jitter)
	b.Replies[0].Prev = count
	b.Decide()
	return err
}

// apply applies a batch whose cells live on one server.
func apply(ctx context.Context, to servers, b *backends.Batch, jitter time.Duration) error {
	c := newCall(b, jitter)
	c.start(ctx, to)
	return c.finish(ctx, to, b, jitter)
}

// count is the count that plain commands have answered; noCount if the key does not
// hold a count. It has count.lua look at a key whose count is too large, or which may have
// no expiry because SET was refused and INCRBY was not.
func (c *call) count(ctx context.Context, to servers) (int64, error) {
	if c.err != nil {
		if lane.Answered(c.err) && isForeign(c.err.Error()) {
			return noCount, nil
		}
		return 0, c.err
	}
	n := max(noCount, c.trip.Cmd.(*goredis.IntCmd).Val())
	if n > backends.MaxValue || c.trip.Before[0].Err() != nil {
		p := &c.eval.plain
		look := call{eval: eval{script: &countScript, args: []any{"evalsha", countScript.sha, 1, p.key, 0, p.lifetime}}}
		if look.start(ctx, to); look.err == nil {
			_ = look.settle(ctx, to) // the charge is done all the same
		}
	}
	return min(n, backends.MaxValue), nil
}

func (c *call) settle(ctx context.Context, to servers) error {
	args, asking := c.eval.args, false
	err := c.lane.Wait(ctx, c.trip)
	for redirects := 0; err != nil && ctx.Err() == nil; {
		if goredis.IsTryAgainError(err) {
			if c.apart {
				break
			}
			redirects, asking = 0, false
			err = c.tryAgain(ctx, to, args)
			continue
		}
		if goredis.HasErrorPrefix(err, "NOSCRIPT") {
			args = c.eval.bySource()
			err = c.again(ctx, args, asking)
			continue
		}
		var next *lane.Lane
		next, asking = to.redirect(err)
		if next == nil || redirects == maxRedirects {
			break
		}
		redirects++
		to.failed(err)
		c.lane = next
		err = c.again(ctx, args, asking)
	}
	return err
}

// tryAgain sends the call anew after a pause, to the server that has its slot
// by then.
func (c *call) tryAgain(ctx context.Context, to servers, args []any) error {
	pause := time.NewTimer(tryAgainPause)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	var err error
	if c.lane, err = to.lane(ctx, c.eval.key()); err != nil {
		return err
	}
	return c.again(ctx, args, false)
}

// fail sets err in every reply of b and returns it.
func fail(b *backends.Batch, err error) error {
	return b.Fail(fmt.Errorf("redis: apply %d operations: %w", len(b.Ops), unavailable(err)))
}

// unavailable is err as one that wraps backends.ErrUnavailable.
func unavailable(err error) error {
	if errors.Is(err, backends.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", backends.ErrUnavailable, err)
}
