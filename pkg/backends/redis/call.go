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
	c := call{eval: newEval(b, jitter.Microseconds())}
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
// to another server when the slot has moved, later when some of the call's keys
// have moved. Its errors name the server.
func (c *call) finish(ctx context.Context, to servers, b *backends.Batch) error {
	if c.err == nil {
		c.err = c.settle(ctx, to)
	}
	switch {
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

func (c *call) settle(ctx context.Context, to servers) error {
	args, asking := c.eval.args, false
	err := c.lane.wait(ctx, c.trip)
	for redirects := 0; err != nil && ctx.Err() == nil; {
		if goredis.IsTryAgainError(err) {
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
