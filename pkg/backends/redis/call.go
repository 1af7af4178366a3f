package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/pkg/backends"
)

// A call is one script on its way to one server.
type call struct {
	eval   eval
	lane   *lane
	cmd    *goredis.IntSliceCmd
	future goredis.AutoFuture
	err    error // it could not be sent
}

const (
	// maxRedirects bounds how often a call follows slots that move.
	maxRedirects = 3
	// tryAgainPause is how long the rest of a call's keys gets to move.
	tryAgainPause = 5 * time.Millisecond
)

// tryStart sends the call unless its lane is full.
func (c *call) tryStart(ctx context.Context, to servers) {
	if c.lane, c.err = to.lane(ctx, c.eval.key()); c.err == nil && c.lane.tryEnter() {
		c.send(c.eval.args)
	}
}

// start sends the call if it was not sent yet, waiting for room in its lane.
func (c *call) start(ctx context.Context, to servers) {
	if c.cmd != nil || c.err != nil {
		return
	}
	if c.lane == nil {
		if c.lane, c.err = to.lane(ctx, c.eval.key()); c.err != nil {
			return
		}
	}
	if c.err = c.lane.enter(ctx); c.err == nil {
		c.send(c.eval.args)
	}
}

func (c *call) send(args []any) {
	c.cmd = goredis.NewIntSliceCmd(context.Background(), args...)
	c.future = c.lane.send(c.cmd)
}

// again sends the call anew. It must not have been carried out.
func (c *call) again(ctx context.Context, args []any) error {
	if err := c.lane.enter(ctx); err != nil {
		return err
	}
	c.send(args)
	return c.lane.wait(ctx, c.future)
}

// finish waits for the answer and decodes it into b. A server that does not
// have the script, or no longer has the slot, or not all of its keys, has not
// charged anything: the script is sent along, or the call is sent on, or sent
// again as long as ctx allows.
func (c *call) finish(ctx context.Context, to servers, b *backends.Batch) error {
	if c.err != nil {
		to.failed(c.err)
		return c.err
	}
	args, send := c.eval.args, c.again
	err := c.lane.wait(ctx, c.future)
	for redirects := 0; err != nil && ctx.Err() == nil; {
		if goredis.IsTryAgainError(err) {
			redirects, send = 0, c.again // it sets out anew
			err = c.tryAgain(ctx, to, args)
			continue
		}
		if goredis.HasErrorPrefix(err, "NOSCRIPT") {
			args = c.eval.bySource()
			err = send(ctx, args)
			continue
		}
		next, asking := to.redirect(err)
		if next == nil || redirects == maxRedirects {
			break
		}
		redirects++
		to.failed(err)
		c.lane, send = next, c.again
		if asking {
			send = c.ask
		}
		err = send(ctx, args)
	}
	if err != nil {
		to.failed(err)
		return err
	}
	return c.eval.fill(b, c.cmd.Val())
}

// tryAgain sends the call anew, where its slot is by then.
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
	return c.again(ctx, args)
}

// ask sends the call, announced by ASKING, to the server to which its slot is
// moving. The two must share a connection, which a lane cannot promise.
func (c *call) ask(ctx context.Context, args []any) error {
	if err := c.lane.enter(ctx); err != nil {
		return err
	}
	lane, cmd := c.lane, goredis.NewIntSliceCmd(context.Background(), args...)
	done := make(chan error, 1)
	go func() {
		defer lane.leave()
		pipe := lane.client.Pipeline()
		pipe.Do(context.Background(), "asking")
		_ = pipe.Process(context.Background(), cmd)
		_, err := pipe.Exec(context.Background())
		done <- err
	}()
	select {
	case err := <-done:
		c.cmd = cmd
		if err != nil && !errors.Is(err, cmd.Err()) {
			return fmt.Errorf("asking: %w", err)
		}
		return cmd.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
