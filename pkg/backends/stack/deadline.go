package stack

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"example.org/rls/pkg/backends"
)

// deadline is another store with bounded waits.
type deadline struct {
	backends.Store
	timeout time.Duration
}

// Deadline bounds each wait for next by timeout, > 0, and by the caller's deadline.
//
// It promises that Apply returns a margin ([backends.Margin]) before the
// caller's own deadline, so that the answer still reaches the caller, and within
// a timeout if the caller has no deadline or a later one. It bounds the wait
// only: the store decides whether the call on the wire goes on. A caller that gives up
// ends its wait, too, but not within the wait's first 5 ms.
func Deadline(next backends.Store, timeout time.Duration) backends.Store {
	return &deadline{next, timeout}
}

// Unwrap is the decorated store; see backends.ScannerOf.
func (s *deadline) Unwrap() backends.Store { return s.Store }

// Apply implements backends.Store. The replies to operations that were not
// decided in time have an error that says how long the wait was.
func (s *deadline) Apply(ctx context.Context, b *backends.Batch) error {
	longest := s.timeout
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		longest = min(longest, left-backends.Margin(left))
	}
	bounded := &wait{Context: ctx, deadline: time.Now().Add(longest)}
	defer bounded.end(context.Canceled)
	err := s.Store.Apply(bounded, b)
	if err == nil || !errors.Is(bounded.Err(), context.DeadlineExceeded) {
		return err
	}
	for i := range b.Replies {
		if r := &b.Replies[i]; errors.Is(r.Err, context.DeadlineExceeded) {
			r.Err = fmt.Errorf("no answer within %v: %w", max(longest, 0).Round(time.Microsecond), r.Err)
		}
	}
	return b.Err()
}

// short is how long a wait lasts before it ends with its caller's context, too.
const short = 5 * time.Millisecond

// wait is the context of a bounded wait: it ends at its deadline, when Apply returns, or
// when the caller's context ends. A context that follows another one has to be
// registered there and removed again, which costs a twentieth of a decision in Redis, so
// it looks at the caller's context only when it has lasted for short. It starts a timer
// only when Done is called.
type wait struct {
	context.Context // the caller's

	deadline time.Time

	mu       sync.Mutex
	done     chan struct{} // nil until Done is called
	timer    *time.Timer   // calls ring; nil until Done is called
	unfollow func() bool   // nil until the wait has lasted for short
	err      error         // why the wait has ended; nil before
}

func (w *wait) Deadline() (time.Time, bool) { return w.deadline, true }

func (w *wait) Done() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done == nil {
		w.done = make(chan struct{})
		if w.err != nil {
			close(w.done)
		} else {
			w.timer = time.AfterFunc(min(short, time.Until(w.deadline)), w.ring)
		}
	}
	return w.done
}

func (w *wait) Err() error {
	if time.Until(w.deadline) <= 0 {
		w.end(context.DeadlineExceeded)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// ring is called when the wait has lasted for short, and at its deadline.
func (w *wait) ring() {
	left := time.Until(w.deadline)
	if left <= 0 {
		w.end(context.DeadlineExceeded)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.timer.Reset(left)
		w.unfollow = context.AfterFunc(w.Context, func() { w.end(w.Context.Err()) })
	}
}

// end ends the wait, if it has not ended.
func (w *wait) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return
	}
	w.err = err
	if w.done != nil {
		w.timer.Stop()
		close(w.done)
	}
	if w.unfollow != nil {
		w.unfollow()
	}
}
