package lane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/pkg/backends/breaker"
)

// A Trip is commands on their way to a server and back, which go together.
type Trip struct {
	Key    string          // of the first command; "" if it has none
	Cmds   []goredis.Cmder // in their order on one connection; the first one's error is the trip's
	Asking bool            // ASKING goes before each of them
	Ended  func()          // is called when the trip has ended; may be nil

	call   breaker.Call
	writes goredis.Cmder // a write that changes nothing, before a probe
	err    error         // why there is no answer, or the answer if it is an error
	done   chan struct{} // closed when Cmds and err are set
}

func (t *Trip) add(pipe goredis.Pipeliner, cmd goredis.Cmder) {
	if t.Asking {
		pipe.Do(context.Background(), "asking")
	}
	_ = pipe.Process(context.Background(), cmd)
}

// failure is the error of the trip's first command, or of the write before a probe if that
// says that the server cannot serve.
func (t *Trip) failure() error {
	if t.writes != nil && CannotServe(t.writes.Err()) {
		return t.writes.Err()
	}
	return t.Cmds[0].Err()
}

// exchange sends batch as one pipeline, waits for the answers and ends the
// trips. The connection bounds the wait (see conn). If nothing came on it for so
// long, silent is the reason. took is 0 if there was no connection yet.
func (l *Lane) exchange(batch []*Trip) (took time.Duration, silent error) {
	start, generation, opened := time.Now(), l.dialer.generation.Load(), l.dialer.opened.Load()
	cmds, err := l.send(batch)
	for range enoughCloses {
		if errors.Is(err, errAtHello) { // nothing was sent
			cmds, err = l.send(batch)
		}
	}
	ended := time.Since(start)
	if took = ended; l.dialer.opened.Load() != opened {
		ended, took = min(ended, l.dialer.silence), 0 // it took long to connect, not to answer
	}
	if err != nil {
		silent = l.repair(err, start, generation)
		// If no command has an error, a new connection was refused by an answer (WRONGPASS).
		if slices.ContainsFunc(cmds, func(cmd goredis.Cmder) bool { return cmd.Err() != nil }) {
			err = nil
		}
	}
	for _, t := range batch {
		reason := err
		if reason == nil {
			reason = t.failure()
		}
		if silent != nil && reason != nil && !Answered(reason) {
			reason = silent
		}
		t.call.Done(ended, l.verdict(reason))
		t.end(reason)
	}
	return took, silent
}

// send sends batch as one pipeline and waits for the answers.
func (l *Lane) send(batch []*Trip) ([]goredis.Cmder, error) {
	pipe := l.client.Pipeline()
	for _, t := range batch {
		if t.writes != nil {
			t.add(pipe, t.writes)
		}
		for _, cmd := range t.Cmds {
			t.add(pipe, cmd)
		}
	}
	return pipe.Exec(context.Background())
}

// repair closes the connections of a generation if err, the first error of a batch, says
// that they are of no use: the server has become a replica, or has vanished. It returns an
// error if the server was silent since start.
func (l *Lane) repair(err error, start time.Time, generation int64) (silent error) {
	switch {
	case goredis.IsReadOnlyError(err):
		// go-redis would keep the connections. New ones may lead to the new master.
		if l.demoted != nil {
			l.dialer.leave(generation)
			l.demoted()
		}
	case errors.Is(err, os.ErrDeadlineExceeded):
		if d := l.dialer; d.lastHeard.Load() <= int64(start.Sub(d.epoch)) {
			l.dialer.leave(generation)
		}
		return fmt.Errorf("no answer within %v", l.dialer.silence)
	}
	return nil
}

// verdict is the reason why a command that ended with err counts as failed for the
// breaker, or nil: the server serves, or the store was closed.
func (l *Lane) verdict(err error) error {
	switch {
	case err == nil, Answered(err) && !CannotServe(err):
		if !l.heard.Load() {
			l.heard.Store(true)
		}
		return nil
	case errors.Is(err, goredis.ErrClosed):
		return nil
	}
	return l.explain(err)
}

// end ends the trip. err is why there is no answer, or the answer if it is an error.
func (t *Trip) end(err error) {
	t.err = err
	close(t.done)
	if t.Ended != nil {
		t.Ended()
	}
}
