package redis

import (
	"context"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/pkg/backends"
)

// A call is one script, or plain commands, for one server.
type call struct {
	eval  eval
	apart bool        // one operation on two cells, which can be asked one after the other
	ended func()      // is called when the first answer has come or cannot come any more; may be nil
	late  func(*trip) // is called when an answer comes after finish has returned; may be nil
	lane  *lane
	trip  *trip
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
		c.late = func(t *trip) {
			answered := &backends.Batch{Ops: b.Ops, AllOrNothing: b.AllOrNothing, Replies: make([]backends.Reply, len(b.Ops))}
			if t.err == nil && eval.fill(answered, t.answer()) == nil {
				b.Late(answered)
			}
		}
	}
	return c
}

// start sends the call, unless its lane refuses it.
func (c *call) start(ctx context.Context, to servers) {
	c.lane, c.err = to.lane(ctx, c.eval.key())
	if c.err == nil {
		c.err = c.lane.enter()
	}
	if c.err != nil {
		c.err = backends.NotSent(c.err)
		return
	}
	c.send(c.eval.args, false)
}

func (c *call) send(args []any, asking bool) {
	c.trip = &trip{key: c.eval.key(), asking: asking, ended: c.ended, late: c.late}
	if c.eval.script != nil {
		c.trip.cmd = goredis.NewIntSliceCmd(context.Background(), args...)
	} else {
		c.trip.before, c.trip.cmd = c.eval.plain.commands()
	}
	c.lane.send(c.trip)
}

// again sends the call anew and waits for the answer. The call must not have
// been carried out.
func (c *call) again(ctx context.Context, args []any, asking bool) error {
	if err := c.lane.enter(); err != nil {
		return err
	}
	c.ended = nil
	c.send(args, asking)
	return c.lane.wait(ctx, c.trip)
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
		return c.eval.fill(b, c.trip.answer())
	}
	to.failed(c.err)
	if c.lane == nil {
		return c.err
	}
	return c.lane.named(c.err)
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
		op.Max.Whole -= backends.Share(count, op.WeightNum, op.WeightDen)
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

func (c *call) settle(ctx context.Context, to servers) error {
	args, asking := c.eval.args, false
	err := c.lane.wait(ctx, c.trip)
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
		var next *lane
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
