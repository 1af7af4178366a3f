package memcached

import (
	"context"
	"sync"
	"sync/atomic"
)

// workers are goroutines that call one server, so many at most. gomemcache's calls take no context: they
// run here while their callers wait or give up.
type workers struct {
	ctx     context.Context // ends with stop
	end     context.CancelFunc
	busy    chan struct{} // has an element for each worker
	mu      sync.Mutex    // of running and stop
	running sync.WaitGroup
}

func newWorkers(max int) *workers {
	w := &workers{busy: make(chan struct{}, max)}
	w.ctx, w.end = context.WithCancel(context.Background())
	return w
}

// run begins f as soon as there are less workers than may be, or at once if it must not wait. It returns
// an error, and f never begins, if ctx ends or the workers are stopped before.
func (w *workers) run(ctx context.Context, f func(), atOnce bool) error {
	work := f
	if !atOnce {
		select {
		case w.busy <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		case <-w.ctx.Done():
			return errClosed
		}
		work = func() { defer w.leave(); f() }
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil {
		return errClosed
	}
	w.running.Go(work)
	return nil
}

func (w *workers) leave() { <-w.busy }

// each calls f for 0 to n-1, side by side as far as there may be more workers, and returns when all calls
// have ended. A worker calls it.
func (w *workers) each(n int, f func(int)) {
	var next atomic.Int64
	var helpers sync.WaitGroup
	some := func() {
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			f(i)
		}
	}
	for range n - 1 {
		select {
		case w.busy <- struct{}{}:
			helpers.Go(func() { defer w.leave(); some() })
		default:
		}
	}
	some()
	helpers.Wait()
}

// stop returns when every worker has ended.
func (w *workers) stop() {
	w.mu.Lock()
	w.end()
	w.mu.Unlock()
	w.running.Wait()
}
