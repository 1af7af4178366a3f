package deadline

import (
	"context"
	"sync"
	"time"
)

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

var _ context.Context = (*wait)(nil)

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
