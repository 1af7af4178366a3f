package redis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/pkg/backends/breaker"
)

const (
	// queueLimit bounds the commands that are under way to one server or wait
	// for their batch, including commands whose callers have given up.
	queueLimit = 4096
	// directLimit is how many commands are under way to one server before
	// further ones wait for a batch. Below it a command waits for nobody.
	directLimit = 4
	// batchLimit bounds the commands of a batch. The whole batch must be answered
	// before its connection counts as silent, also when each command is slow.
	batchLimit = 256
)

// A lane is the way to one server.
//
// While few commands are under way, each is sent at once on a connection of
// its own. The commands that come while more are under way form batches, and each
// batch is sent as one pipeline when a connection is free. While batches have
// more commands than connections, one batch goes at a time. So a lone caller
// waits for one round trip, and many callers share system calls, here and in
// Redis.
//
// When the server has been silent for so long that a batch fails, the waiting
// commands fail with the batch. They were not sent, so the server does not charge
// them when it wakes up.
//
// A command outlives its caller: a caller that gives up ends only its wait, so
// the connection keeps its order of replies and stays open.
type lane struct {
	client *goredis.Client
	name   func() string    // names the server in errors
	server *breaker.Breaker // is told whether the server answers
	direct int              // directLimit, or the size of the pool if that is less
	room   chan struct{}    // holds one element for each command that has not ended
	heard  atomic.Bool      // the server has answered once

	mu     sync.Mutex
	queue  []*trip // the next batches
	flying int     // commands on the wire
	deep   bool    // the last batch had, or the next one has, more than direct commands
	closed bool

	batches sync.WaitGroup // goroutines that send
}

// A trip is one command on its way to a server and back.
type trip struct {
	cmd    goredis.Cmder
	asking bool          // ASKING goes before it on the same connection
	ended  func()        // is called when the trip has ended; nil for nobody
	err    error         // why there is no answer, or the answer if it is an error
	done   chan struct{} // closed when cmd and err are set
}

func newLane(client *goredis.Client, name func() string, server *breaker.Breaker) *lane {
	return &lane{
		client: client, name: name, server: server,
		direct: min(directLimit, client.Options().PoolSize),
		room:   make(chan struct{}, queueLimit),
	}
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

// enter takes a place in the lane. If there is one it succeeds, even when ctx
// has ended: the hit of a caller that has given up counts all the same.
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

// send sends t, now or with the next batch. The caller has entered the lane; t
// leaves it when it ends.
func (l *lane) send(t *trip) {
	t.done = make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		l.end(t, goredis.ErrClosed)
	case l.busy():
		l.queue = append(l.queue, t)
	default:
		l.flying++
		l.batches.Add(1)
		go l.work([]*trip{t})
	}
}

// busy reports whether a command has to wait for the next batch.
func (l *lane) busy() bool {
	if l.deep {
		return l.flying > 0
	}
	return l.flying >= l.direct
}

// work sends batch, and then the batches that have formed meanwhile.
func (l *lane) work(batch []*trip) {
	defer l.batches.Done()
	for len(batch) > 0 {
		if err := l.exchange(batch); err != nil {
			l.giveUp(err)
		}
		batch = l.next(len(batch))
	}
}

// next returns the batch that is to be sent after a batch of n trips has ended.
// It is empty while enough is under way.
func (l *lane) next(n int) []*trip {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flying -= n
	l.deep = max(n, len(l.queue)) > l.direct
	if l.busy() {
		return nil
	}
	size := min(len(l.queue), batchLimit)
	batch := l.queue[:size:size]
	if l.queue = l.queue[size:]; len(l.queue) == 0 {
		l.queue = nil
	}
	l.flying += size
	return batch
}

// giveUp ends the commands that wait for their batch.
func (l *lane) giveUp(err error) {
	l.mu.Lock()
	waiting := l.queue
	l.queue = nil
	l.mu.Unlock()
	for _, t := range waiting {
		l.end(t, err)
	}
}

// exchange sends batch as one pipeline, waits for the answers and ends the
// trips. go-redis bounds the wait by its timeouts, and closes a connection that
// has failed or stayed silent. exchange returns the error of a batch whose
// connection was silent for all of that time.
func (l *lane) exchange(batch []*trip) error {
	start := time.Now()
	pipe := l.client.Pipeline()
	ctx := context.Background()
	for _, t := range batch {
		if t.asking {
			pipe.Do(ctx, "asking")
		}
		_ = pipe.Process(ctx, t.cmd)
	}
	cmds, err := pipe.Exec(ctx)
	if err != nil {
		err = l.failure(cmds, err)
	}
	l.report(batch, err)
	for _, t := range batch {
		l.end(t, err)
	}
	last := batch[len(batch)-1].err
	if last == nil || answered(last) || time.Since(start) < l.client.Options().ReadTimeout {
		return nil
	}
	return last
}

// failure is err if the batch as a whole failed: Exec also returns errors that
// are answers to single commands, and leaves commands without error when a new
// connection was refused by an answer (WRONGPASS).
func (l *lane) failure(cmds []goredis.Cmder, err error) error {
	for _, cmd := range cmds {
		if cmd.Err() != nil {
			return nil
		}
	}
	return err
}

// report tells l.server whether the server serves.
func (l *lane) report(batch []*trip, err error) {
	if err == nil {
		err = batch[0].cmd.Err()
		if answered(err) && !cannotServe(err) {
			err = nil
		}
	}
	switch {
	case err == nil:
		if !l.heard.Load() {
			l.heard.Store(true)
		}
		tell(l.server, nil)
	case !errors.Is(err, goredis.ErrClosed):
		tell(l.server, l.explain(err))
	}
}

// tell tells b the outcome of a call.
func tell(b *breaker.Breaker, err error) {
	if b.Enter() == nil {
		b.Leave(0, err)
	}
}

// end ends a trip. err, if any, is why its whole batch failed.
func (l *lane) end(t *trip, err error) {
	if t.err = err; err == nil {
		t.err = t.cmd.Err()
	}
	close(t.done)
	if t.ended != nil {
		t.ended()
	}
	<-l.room
}

// wait waits until t has ended. If ctx ends first, t goes on without it.
func (l *lane) wait(ctx context.Context, t *trip) error {
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
	}
	select {
	case <-t.done: // both have happened
		return t.err
	default:
		return ctx.Err()
	}
}

// ping asks the server for a sign of life. Its errors name the server.
func (l *lane) ping(ctx context.Context) error {
	err := l.enter(ctx)
	if err == nil {
		t := &trip{cmd: goredis.NewStatusCmd(context.Background(), "ping")}
		l.send(t)
		err = l.wait(ctx, t)
	}
	if err != nil {
		return l.named(err)
	}
	return nil
}

// named is err with the server's name and, if a setting is wrong, with advice.
func (l *lane) named(err error) error { return fmt.Errorf("%s: %w", l.name(), l.explain(err)) }

func (l *lane) explain(err error) error { return explain(err, !l.heard.Load()) }

// close refuses further commands.
func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

// drain waits, after close, until every command has ended.
func (l *lane) drain() { l.batches.Wait() }
