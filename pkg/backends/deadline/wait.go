package deadline

import (
	"context"
	"sync"
	"time"
)

// wait is the context of a bounded wait: it ends at its deadline, or when Apply
// returns. It does not end when the caller's context does: a context that follows
// another one has to be registered there and removed again, which costs a twentieth of
// a decision in Redis, and a wait is short. It starts a timer only if somebody waits.
type wait struct {
	context.Context // for its values

	deadline time.Time

	mu    sync.Mutex
	done  chan struct{} // nil until somebody waits
	timer *time.Timer   // ends the wait; nil until somebody waits
	err   error         // why the wait has ended; nil before
}

var _ context.Context = (*wait)(nil)

func (w *wait) Deadline() (time.Time, bool) { return w.deadline, true }

func (w *wait) Done() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done == nil {
		w.done = make(chan struct{})
		if w.ended() != nil {
			close(w.done)
		} else {
			w.timer = time.AfterFunc(time.Until(w.deadline), func() { w.end(context.DeadlineExceeded) })
		}
	}
	return w.done
}

func (w *wait) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done == nil {
		return w.ended()
	}
	return w.err
}

// ended is why the wait has ended, while nobody waits for a timer.
func (w *wait) ended() error {
	if w.err == nil && !time.Now().Before(w.deadline) {
		w.err = context.DeadlineExceeded
	}
	return w.err
}

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
}
