package redis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// A trip is one command on its way to a server and back.
type trip struct {
	key    string          // a key of the command; "" if it has none
	writes goredis.Cmder   // a write that changes nothing, before a probe
	before []goredis.Cmder // commands that go before it on the same connection
	cmd    goredis.Cmder
	asking bool          // ASKING goes before each of them
	probe  bool          // it was sent while the server was away
	ended  func()        // is called when the trip has ended; nil for nobody
	err    error         // why there is no answer, or the answer if it is an error
	done   chan struct{} // closed when cmd and err are set

	late func(*trip) // is called when the trip ends after its caller has left; nil for nobody
	over atomic.Bool // the trip has ended, or its caller has left
}

// add adds one of the trip's commands to pipe.
func (t *trip) add(pipe goredis.Pipeliner, cmd goredis.Cmder) {
	if t.asking {
		pipe.Do(context.Background(), "asking")
	}
	_ = pipe.Process(context.Background(), cmd)
}

// answer is the numbers with which the server has answered the command.
func (t *trip) answer() []int64 {
	if count, one := t.cmd.(*goredis.IntCmd); one {
		return []int64{count.Val()}
	}
	return t.cmd.(*goredis.IntSliceCmd).Val()
}

// failure is the error of the trip's command, or of the write before a probe if that
// says that the server cannot serve.
func (t *trip) failure() error {
	if t.writes != nil && cannotServe(t.writes.Err()) {
		return t.writes.Err()
	}
	return t.cmd.Err()
}

// exchange sends batch as one pipeline, waits for the answers and ends the
// trips. The connection bounds the wait (see conn). If nothing came on it for so
// long, silent is the reason. took is 0 if there was no connection yet.
func (l *lane) exchange(batch []*trip) (took time.Duration, silent error) {
	start, generation, opened := time.Now(), l.dialer.generation.Load(), l.dialer.opened.Load()
	pipe := l.client.Pipeline()
	ctx := context.Background()
	for _, t := range batch {
		if t.writes != nil {
			t.add(pipe, t.writes)
		}
		for _, cmd := range t.before {
			t.add(pipe, cmd)
		}
		t.add(pipe, t.cmd)
	}
	cmds, err := pipe.Exec(ctx)
	ended := time.Since(start)
	if took = ended; l.dialer.opened.Load() != opened {
		ended, took = min(ended, l.dialer.silence), 0 // it took long to connect, not to answer
	}
	if err != nil {
		silent = l.repair(err, start, generation)
		err = l.failure(cmds, err)
	}
	for _, t := range batch {
		reason := err
		if reason == nil {
			reason = t.failure()
		}
		if silent != nil && !answered(reason) && reason != nil {
			reason = silent
		}
		l.breaker.Leave(ended, l.verdict(reason))
		l.end(t, reason)
	}
	return took, silent
}

// repair closes the connections, of the generation that was the latest when a batch
// was sent, if the first error of the batch says that they are of no use: the server
// has become a replica, or has vanished. It returns an error if the server was
// silent since the batch was sent.
func (l *lane) repair(err error, start time.Time, generation int64) (silent error) {
	switch {
	case goredis.IsReadOnlyError(err):
		// The replica goes on answering, so go-redis would keep the connections. New
		// ones may lead to the new master.
		if l.demoted != nil {
			l.dialer.leave(generation)
			l.demoted()
		}
	case errors.Is(err, os.ErrDeadlineExceeded):
		if !l.dialer.heardSince(start) {
			l.dialer.leave(generation)
		}
		return fmt.Errorf("no answer within %v", l.dialer.silence)
	}
	return nil
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

// verdict is the reason why a command that ended with err counts as failed for the
// breaker, or nil: the server serves, or the store was closed.
func (l *lane) verdict(err error) error {
	switch {
	case err == nil, answered(err) && !cannotServe(err):
		if !l.heard.Load() {
			l.heard.Store(true)
		}
		return nil
	case errors.Is(err, goredis.ErrClosed):
		return nil
	}
	return l.explain(err)
}

// end ends a trip. err is why there is no answer, or the answer if it is an error.
func (l *lane) end(t *trip, err error) {
	t.err = err
	close(t.done)
	if t.ended != nil {
		t.ended()
	}
	if t.late != nil && t.over.Swap(true) {
		go t.late(t)
	}
}
