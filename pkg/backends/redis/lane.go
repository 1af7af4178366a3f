package redis

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
	// directLimit is how many commands are under way to one server before
	// further ones wait for a batch. Below it a command waits for nobody.
	directLimit = 4
	// batchLimit bounds the commands of a batch, and so the time that the server
	// takes for it.
	batchLimit = 256
	// nearby is the longest round trip to a server that is not distant.
	nearby = 2 * time.Millisecond
	// leastPace bounds the batches per second to a server that answers late only
	// because processors are busy.
	leastPace = time.Millisecond
)

// A lane is the way to one server.
//
// While few commands are under way, each is sent at once on a connection of
// its own. The commands that come while more are under way form batches, and each
// batch is sent as one pipeline. While batches have more than a few commands, one
// batch goes at a time, so that many callers share system calls, here and in
// Redis. To a distant server several batches are under way, spread over the round
// trip, so that a command does not wait for the round trip of another command.
//
// The breaker bounds the commands in the lane, and refuses commands while the
// server is away. When the server has been silent for so long that a batch fails, or
// for so long that the breaker has the callers give up, the waiting commands fail. They
// were not sent, so the server does not charge them when it wakes up.
//
// A command outlives its caller: a caller that gives up ends only its wait, so
// the connection keeps its order of replies and stays open.
type lane struct {
	client  *goredis.Client
	name    func() string // names the server in errors
	breaker *breaker.Breaker
	dialer  *dialer     // opens the client's connections
	demoted func()      // is called when the server has answered READONLY; may be nil
	direct  int         // directLimit, or the size of the pool if that is less
	wide    int         // the batches that may be under way
	heard   atomic.Bool // the server has answered once

	mu      sync.Mutex
	queue   []*trip       // the next batches
	flying  int           // commands on the wire
	batches int           // the batches that they form
	sent    time.Time     // when the last batch was sent
	deep    bool          // the last batch had, or the next one has, more than direct commands
	pace    time.Duration // the time between batches to a distant server; 0 for a server nearby
	waking  bool          // a timer calls wake
	closed  bool
	retired bool // senders end after their work

	idle    []chan []*trip // senders that wait for a batch
	senders sync.WaitGroup // goroutines that send
}

func newLane(client *goredis.Client, name func() string, d *dialer, b *breaker.Breaker) *lane {
	pool := client.Options().PoolSize
	return &lane{
		client: client, name: name, dialer: d, breaker: b,
		direct: min(directLimit, pool),
		wide:   max(1, pool-1), // the clock has the last connection
	}
}

// enter takes a place in the lane, or returns at once the reason why there is none.
// It succeeds for a caller that has given up, too: its hit counts all the same.
func (l *lane) enter() error { return l.breaker.Enter() }

// send sends t, now or with the next batch. The caller has entered the lane; t
// leaves it when it ends.
func (l *lane) send(t *trip) {
	t.done = make(chan struct{})
	if t.probe = l.breaker.Away() != nil; t.probe && t.key != "" {
		// A replica answers a probe that only reads, and would seem to be a master.
		t.writes = goredis.NewIntCmd(context.Background(), "setrange", t.key, 0, "")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		l.breaker.Abandon()
		l.end(t, goredis.ErrClosed)
		return
	}
	l.queue = append(l.queue, t)
	if batch := l.take(); batch != nil {
		l.start(batch)
	}
}

// start has a goroutine send batch: one that waits for work, because its stack has
// grown to the size that go-redis needs, or else a new one.
func (l *lane) start(batch []*trip) {
	if last := len(l.idle) - 1; last >= 0 {
		l.idle[last] <- batch
		l.idle = l.idle[:last]
		return
	}
	l.senders.Add(1)
	go l.work(batch)
}

// take takes the next batch from the queue, to be sent now. It returns nil if the
// queue is empty or has to wait.
func (l *lane) take() []*trip {
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
func (l *lane) busy() bool {
	switch {
	case l.flying == 0:
		return false
	case l.pace == 0:
		return l.deep || l.flying >= l.direct
	case l.batches >= l.wide:
		return true
	}
	wait := l.pace - time.Since(l.sent)
	if wait > 0 && !l.waking {
		l.waking = true
		l.senders.Add(1)
		time.AfterFunc(wait, l.wake)
	}
	return wait > 0
}

// wake sends the queue that had to wait for its time.
func (l *lane) wake() {
	l.mu.Lock()
	l.waking = false
	batch := l.take()
	l.mu.Unlock()
	l.work(batch)
}

// work sends batch, then the batches that have formed meanwhile, and then the batches
// that start hands over, until the lane is retired or has enough idle senders.
func (l *lane) work(batch []*trip) {
	defer l.senders.Done()
	handed := make(chan []*trip, 1) // start never waits for the sender
	for len(batch) > 0 {
		took, silent := l.exchange(batch)
		if silent != nil {
			l.giveUp(silent, func() { l.breaker.Leave(0, silent) })
		}
		batch = l.next(len(batch), took)
		if len(batch) == 0 && l.rest(handed) {
			batch = <-handed
		}
	}
}

// rest makes the sender that reads handed an idle one. It returns false if the sender is
// to end.
func (l *lane) rest(handed chan []*trip) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.retired || len(l.idle) == l.direct {
		return false
	}
	l.idle = append(l.idle, handed)
	return true
}

// next returns the batch that is to be sent after a batch of n trips has ended,
// which took so long. It is empty while enough is under way.
func (l *lane) next(n int, took time.Duration) []*trip {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flying -= n
	l.batches--
	l.deep = max(n, len(l.queue)) > l.direct
	switch {
	case took > nearby:
		l.pace = max(leastPace, took/time.Duration(l.wide))
	case took > 0:
		l.pace = 0
	}
	return l.take()
}

// giveUp ends the commands that wait for their batch, and calls leave for each.
func (l *lane) giveUp(err error, leave func()) {
	l.mu.Lock()
	waiting := l.queue
	l.queue = nil
	l.mu.Unlock()
	for _, t := range waiting {
		leave()
		l.end(t, backends.NotSent(err))
	}
}

// wait waits until t has ended. If ctx ends first, or the server falls silent while
// many callers wait, t goes on without its caller.
func (l *lane) wait(ctx context.Context, t *trip) error {
	if t.probe {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, breaker.ProbeWait)
		defer cancel()
	}
	var err error
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-l.breaker.Silence():
		err = l.breaker.Silent()
		l.giveUp(err, l.breaker.Abandon)
	}
	if t.late != nil && t.over.Swap(true) {
		<-t.done
	}
	select {
	case <-t.done: // both have happened
		return t.err
	default:
		return err
	}
}

// ping asks the server for a sign of life. Its errors name the server.
func (l *lane) ping(ctx context.Context) error {
	err := l.enter()
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

// named is err with the server's name and, if a setting is wrong, with advice. The
// breaker's errors have both.
func (l *lane) named(err error) error {
	if errors.Is(err, backends.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%s: %w", l.name(), l.explain(err))
}

func (l *lane) explain(err error) error { return explain(err, !l.heard.Load()) }

// close refuses further commands and retires the lane.
func (l *lane) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.retire()
}

// retire ends the idle senders, for a server to which hardly any command will be sent
// again. Commands that are under way, and later ones, are still sent.
func (l *lane) retire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retired = true
	for _, handed := range l.idle {
		close(handed)
	}
	l.idle = nil
}

// drain waits, after close, until every command has ended.
func (l *lane) drain() { l.senders.Wait() }
