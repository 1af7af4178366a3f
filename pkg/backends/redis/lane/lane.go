// Package lane brings commands to one Redis server and back: over connections that it may
// close all at once, in batches while many are under way, and past a breaker.
package lane

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/breaker"
)

const (
	// directLimit is how many commands are under way before further ones wait for a batch.
	directLimit = 4
	// batchLimit bounds the commands of a batch, and so the time that the server takes for it.
	batchLimit = 256
	// minPace bounds the batches per second to a server that answers late only
	// because processors are busy.
	minPace = time.Millisecond
)

// A Lane is the way to one server.
//
// While few commands are under way, each is sent at once on a connection of
// its own. The commands that come while more are under way form batches, and each
// batch is sent as one pipeline. While batches have more than a few commands, one
// batch goes at a time, so that many callers share system calls, here and in
// Redis. To a distant server several batches are under way, spread over the round
// trip, so that a command does not wait for the round trip of another command.
//
// The breaker bounds the commands in the lane, and refuses commands while the
// server is away. When a batch fails because the server was silent, the waiting commands
// fail. They were not sent, so the server does not charge them when it wakes up.
//
// A command outlives its caller: a caller that gives up ends only its wait, so
// the connection keeps its order of replies and stays open.
type Lane struct {
	Breaker *breaker.Breaker
	Name    func() string // the name of the server, for errors

	client  *goredis.Client
	dialer  *Dialer
	demoted func()
	direct  int           // directLimit, or the size of the pool if that is less
	pace    backends.Pace // of batches to a distant server
	heard   atomic.Bool   // the server has answered once

	mu      sync.Mutex
	queue   []*Trip   // the next batches
	flying  int       // commands on the wire
	batches int       // the batches that they form
	sent    time.Time // when the last batch was sent
	deep    bool      // the last batch had, or the next one has, more than direct commands
	waking  bool      // a timer calls wake
	closed  bool
	retired bool // senders end after their work

	idle    []chan []*Trip // senders that wait for a batch
	senders sync.WaitGroup // goroutines that send
}

// New returns a lane to the server of client, whose connections d opens. name names the
// server in errors. demoted is called when the server has answered READONLY; it may be nil.
func New(client *goredis.Client, name func() string, d *Dialer, b *breaker.Breaker, demoted func()) *Lane {
	pool := client.Options().PoolSize
	l := &Lane{Breaker: b, Name: name, client: client, dialer: d, demoted: demoted, direct: min(directLimit, pool)}
	l.pace.Max, l.pace.Least = max(1, pool-1), minPace // the clock has the last connection
	return l
}

// Send sends t, now or with the next batch, or returns at once the reason why t is not
// sent, which wraps backends.ErrNotSent. It sends t for a caller that has given up, too:
// its hit counts all the same.
func (l *Lane) Send(t *Trip) (err error) {
	if t.call, err = l.Breaker.Allow(); err != nil {
		return backends.NotSent(err)
	}
	t.done = make(chan struct{})
	if t.call.Probe && t.Key != "" && !l.dialer.closesAt("", "setrange") {
		// A replica answers a probe that only reads, and would seem to be a master.
		t.writes = goredis.NewIntCmd(context.Background(), "setrange", t.Key, 0, "")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		t.call.Done(0, breaker.ErrNotMade)
		t.end(goredis.ErrClosed)
		return nil
	}
	l.queue = append(l.queue, t)
	batch := l.take()
	switch last := len(l.idle) - 1; {
	case batch == nil:
	case last >= 0:
		l.idle[last] <- batch
		l.idle = l.idle[:last]
	default:
		l.senders.Add(1)
		go l.work(batch)
	}
	return nil
}

// take takes the next batch from the queue, to be sent now. It returns nil if the
// queue is empty or has to wait.
func (l *Lane) take() []*Trip {
	if len(l.queue) == 0 || l.busy() {
		return nil
	}
	size := min(len(l.queue), batchLimit)
	batch := l.queue[:size:size]
	if l.queue = l.queue[size:]; len(l.queue) == 0 {
		l.queue = nil
	}
	l.flying += size
	l.batches++
	l.sent = time.Now()
	return batch
}

// busy reports whether the queue has to wait: for the end of a batch, or for wake.
func (l *Lane) busy() bool {
	switch {
	case l.flying == 0:
		return false
	case !l.pace.Distant():
		return l.deep || l.flying >= l.direct
	case l.batches >= l.pace.Max:
		return true
	}
	wait := l.pace.Between(l.batches) - time.Since(l.sent)
	if wait > 0 && !l.waking {
		l.waking = true
		l.senders.Add(1)
		time.AfterFunc(wait, l.wake)
	}
	return wait > 0
}

// wake is called by a timer: it sends the batch that the pace held back.
func (l *Lane) wake() {
	l.mu.Lock()
	l.waking = false
	batch := l.take()
	l.mu.Unlock()
	l.work(batch)
}

// work sends batch, then the batches that have formed meanwhile, and then the batches
// that Send hands over, until the lane is retired or has enough idle senders. A sender
// that waits is better than a new one: its stack has grown to the size that go-redis needs.
func (l *Lane) work(batch []*Trip) {
	defer l.senders.Done()
	handed := make(chan []*Trip, 1) // Send never waits for the sender
	for len(batch) > 0 {
		took, silent := l.exchange(batch)
		if silent != nil {
			l.giveUp(silent)
		}
		batch = l.next(len(batch), took, handed)
	}
}

// next returns the batch that is to be sent after a batch of n trips has ended, and was
// answered after took. While enough is under way, it waits for a batch on handed. It
// returns an empty batch to a sender that is to end.
func (l *Lane) next(n int, took time.Duration, handed chan []*Trip) []*Trip {
	l.mu.Lock()
	l.flying -= n
	l.batches--
	l.deep = max(n, len(l.queue)) > l.direct
	if took > 0 {
		l.pace.Answered(took)
	}
	batch := l.take()
	idle := batch == nil && !l.retired && len(l.idle) < l.direct
	if idle {
		l.idle = append(l.idle, handed)
	}
	l.mu.Unlock()
	if idle {
		return <-handed
	}
	return batch
}

// giveUp ends the commands that wait for a batch, and their calls, with err.
func (l *Lane) giveUp(err error) {
	l.mu.Lock()
	waiting := l.queue
	l.queue = nil
	l.mu.Unlock()
	for _, t := range waiting {
		t.call.Done(0, err)
		t.end(backends.NotSent(err))
	}
}

// Wait waits until t, which was sent, has ended. If ctx ends first, t goes on without its
// caller.
func (l *Lane) Wait(ctx context.Context, t *Trip) error {
	if err := t.call.Wait(ctx, t.done); err != nil {
		return err
	}
	return t.err
}

// Ping asks the server for a sign of life. Its errors name the server.
func (l *Lane) Ping(ctx context.Context) error {
	t := &Trip{Cmds: []goredis.Cmder{goredis.NewStatusCmd(context.Background(), "ping")}}
	err := l.Send(t)
	if err == nil {
		err = l.Wait(ctx, t)
	}
	return l.Named(err)
}

// Named is err with the server's name and, if a setting is wrong, with advice; nil stays
// nil. The breaker's errors have both.
func (l *Lane) Named(err error) error {
	if err == nil || errors.Is(err, backends.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%s: %w", l.Name(), l.explain(err))
}

func (l *Lane) explain(err error) error { return Explain(err, !l.heard.Load()) }

// Close refuses further commands and retires the lane.
func (l *Lane) Close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.Retire()
}

// Retire ends the idle senders, for a server to which hardly any command will be sent
// again. Commands that are under way, and later ones, are still sent.
func (l *Lane) Retire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retired = true
	for _, handed := range l.idle {
		close(handed)
	}
	l.idle = nil
}

// Drain waits, after Close, until every command has ended.
func (l *Lane) Drain() { l.senders.Wait() }
