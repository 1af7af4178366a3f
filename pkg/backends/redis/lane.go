package redis

import (
	"context"
	"fmt"
	"sync"

	goredis "github.com/redis/go-redis/v9"
)

// queueLimit bounds the calls that wait for one server, those whose callers
// have given up included.
const queueLimit = 4096

// A lane is the way to one server: one pipeline, in which the calls that come
// while a batch is on the wire make up the next batch. A call outlives its
// caller; a caller who finds the lane full waits for room as long as its context
// allows.
type lane struct {
	client *goredis.Client
	pipe   *goredis.AutoPipeliner
	room   chan struct{} // holds one element per call under way

	mu       sync.Mutex
	orphans  []goredis.AutoFuture // calls whose callers have given up
	watching bool                 // a goroutine waits for the orphans
}

func newLane(client *goredis.Client) (*lane, error) {
	pipe, err := client.AsyncAutoPipelineWithOptions(&goredis.AutoPipelineOptions{
		// One batch at a time, of whatever has queued: with callers waiting,
		// deep batches cost the least; alone, a call is sent at once.
		MaxBatchSize:  queueLimit,
		MaxBatchBytes: 1 << 30,
	})
	if err != nil {
		return nil, fmt.Errorf("pipeline: %w", err)
	}
	return &lane{client: client, pipe: pipe, room: make(chan struct{}, queueLimit)}, nil
}

// tryEnter takes a place in the lane if there is one.
func (l *lane) tryEnter() bool {
	select {
	case l.room <- struct{}{}:
		return true
	default:
		return false
	}
}

// enter takes a place in the lane, at once if there is one, also for a caller
// that has given up: its hit counts whenever it did.
func (l *lane) enter(ctx context.Context) error {
	if l.tryEnter() {
		return nil
	}
	select {
	case l.room <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("queue of %d calls is full: %w", queueLimit, ctx.Err())
	}
}

func (l *lane) leave() { <-l.room }

// send puts cmd on its way; the caller has entered the lane and must wait.
func (l *lane) send(cmd goredis.Cmder) goredis.AutoFuture {
	return l.pipe.Submit(context.Background(), cmd)
}

// wait waits for a call that was sent and leaves the lane, now or, if ctx ends
// first, when the call has.
func (l *lane) wait(ctx context.Context, f goredis.AutoFuture) error {
	err := f.WaitContext(ctx)
	if err != nil && ctx.Err() != nil {
		l.adopt(f)
		return ctx.Err()
	}
	l.leave()
	return err
}

// adopt leaves the lane in place of a caller that has given up.
func (l *lane) adopt(f goredis.AutoFuture) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.orphans = append(l.orphans, f)
	if !l.watching {
		l.watching = true
		go l.watch()
	}
}

// watch waits for orphans, which end in the order in which they were sent.
func (l *lane) watch() {
	for {
		l.mu.Lock()
		batch := l.orphans
		l.orphans = nil
		l.watching = len(batch) > 0
		l.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		for _, f := range batch {
			_ = f.Wait()
			l.leave()
		}
	}
}

// do sends cmd and waits for it.
func (l *lane) do(ctx context.Context, cmd goredis.Cmder) error {
	if err := l.enter(ctx); err != nil {
		return err
	}
	return l.wait(ctx, l.send(cmd))
}
