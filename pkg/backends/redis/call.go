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
	key    string  // the first of the keys
	script *script // nil for plain commands
	args   []any   // of EVALSHA (name, sha, number of keys, keys, arguments), or of one plain command
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
// The charge of a counter whatever its count is needs no script: INCRBY, and PEXPIRE, which sets the
// same end each time (see life), also of a key that has lost it (PERSIST, a restored dump). These
// commands cost Redis a third less than a script. In a cluster a slot may move between two
// operations of a batch, so there only one goes so.
func (s *Store) newCall(b *backends.Batch) call {
	c := call{Store: s, batch: b, key: StoredKey(b.Ops[0].Key)}
	plain := !b.Together() && (len(b.Ops) == 1 || s.slots == nil)
	for i := range b.Ops {
		plain = plain && isCount(&b.Ops[i])
	}
	if !plain {
		c.script, c.args = newApply(b, s.jitter())
	}
	return c
}

// jitter is the longest time in µs that the key of a fixed window lives beyond its window.
func (s *Store) jitter() int64 { return s.target.ExpirationJitter.Microseconds() }

// start sends the call, unless its lane refuses it.
func (c *call) start(ctx context.Context) {
	if c.lane, c.err = c.servers.lane(ctx, c.key); c.err != nil {
		c.err = backends.NotSent(c.err)
		return
	}
	c.err = c.send(c.args, false)
}

func (c *call) send(args []any, asking bool) error {
	t, ctx := &lane.Trip{Key: c.key, Asking: asking, Ended: c.ended}, context.Background()
	switch {
	case c.script != nil:
		t.Cmds = []goredis.Cmder{goredis.NewStringCmd(ctx, args...)}
	case args != nil:
		t.Cmds = []goredis.Cmder{goredis.NewIntCmd(ctx, args...)}
	default:
		t.Cmds = c.counts()
	}
	c.trip = t
	return c.lane.Send(t)
}

// counts are INCRBY and PEXPIRE for each operation.
func (c *call) counts() []goredis.Cmder {
	ctx, n, jitter := context.Background(), len(c.batch.Ops), c.jitter()
	cmds, args := make([]goredis.Cmder, 0, 2*n), make([]any, 0, 6*n)
	for i := range c.batch.Ops {
		op := &c.batch.Ops[i]
		var key any = StoredKey(op.Key)
		args = append(args, "incrby", key, op.By.Whole*op.Times, "pexpire", key, lifetime(op, jitter))
		of := args[6*i:]
		cmds = append(cmds, goredis.NewIntCmd(ctx, of[:3]...), goredis.NewIntCmd(ctx, of[3:]...))
	}
	return cmds
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
	case c.script == nil && c.trip != nil:
		c.err = c.counted(ctx)
	case c.err == nil:
		c.err = fillReplies(c.batch, c.trip.Cmds[0].(*goredis.StringCmd).Val())
	}
	if c.err == nil {
		return nil
	}
	c.servers.failed(c.err)
	if c.lane == nil {
		return c.err
	}
	return c.lane.Named(c.err)
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

// counted takes the answers to plain commands into the batch. It applies by apply.lua the operations
// whose keys do not hold a plain count: on such a counter reservations may be open.
func (c *call) counted(ctx context.Context) error {
	if c.err != nil && (!lane.Answered(c.err) || len(c.batch.Ops) == 1 && !isForeign(c.err)) {
		return c.err
	}
	var refused backends.Part
	for i := range c.batch.Ops {
		op, count, expiry := &c.batch.Ops[i], c.trip.Cmds[2*i].(*goredis.IntCmd), c.trip.Cmds[2*i+1]
		n, err := count.Result()
		switch {
		case err != nil && isForeign(err), n < -backends.MaxValue:
			refused.Add(c.batch, i)
			continue
		case err != nil:
			c.batch.Replies[i] = backends.Reply{Err: fmt.Errorf("redis: %w", unavailable(c.lane.Named(err)))}
			c.servers.failed(err)
			continue
		}
		if expiry.Err() != nil { // but INCRBY was not refused
			c.also(ctx, expiry.Args())
		}
		if n > backends.MaxValue { // each of several charges at once takes back its own part
			c.also(ctx, []any{"incrby", StoredKey(op.Key), -min(n-backends.MaxValue, op.By.Whole*op.Times)})
			n = backends.MaxValue
		}
		c.batch.Replies[i] = backends.Reply{
			Now: op.Now, Admitted: op.Fitting(op.Max.Whole, n), Value: backends.Amount{Whole: n}, Until: op.Until,
		}
	}
	if len(refused.Ops) > 0 {
		anew := call{Store: c.Store, batch: &refused.Batch, key: StoredKey(refused.Ops[0].Key)}
		anew.script, anew.args = newApply(&refused.Batch, c.jitter())
		anew.start(ctx)
		if err := anew.finish(ctx); err != nil {
			fail(&refused.Batch, err)
		}
		refused.Answer(c.batch)
	}
	c.batch.Decide()
	return nil
}

// also sends a command with these arguments after a charge, which is done whatever becomes of it.
func (c *call) also(ctx context.Context, args []any) {
	more := call{Store: c.Store, key: args[1].(string), args: args}
	if more.start(ctx); more.err == nil {
		_ = more.settle(ctx)
	}
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
				c.lane, err = c.servers.lane(ctx, c.key) // which has the slot by now
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
