package memcached

import (
	"context"
	"sync"
	"sync/atomic"
)

// workers is a bounded set of goroutines that call one server. gomemcache's
// calls take no context: they run here while their callers wait or give up.
type workers struct {
	ctx     context.Context // ends with stop
	end     context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	free    int      // workers that may be started
	waiting []func() // calls that wait for a worker
}

func newWorkers(max int) *workers {
	w := &workers{free: max}
	w.ctx, w.end = context.WithCancel(context.Background())
	return w
}

// run begins f when a worker is free; at once, in a goroutine of its own, if it must not
// wait. It returns false after stop.
func (w *workers) run(f func(), atOnce bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.ctx.Err() != nil:
		return false
	case atOnce:
		w.running.Go(f)
	case !w.start(f):
		w.waiting = append(w.waiting, f)
	}
	return true
}

// start starts a worker with f, and reports whether one was free. The caller holds w.mu.
func (w *workers) start(f func()) bool {
	if w.free == 0 {
		return false
	}
	w.free--
	w.running.Go(func() {
		for call := f; call != nil; call = w.next() {
			call()
		}
	})
	return true
}

// next is the next call for a worker, or nil: the worker ends.
func (w *workers) next() (f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) == 0 {
		w.free++
		return nil
	}
	f, w.waiting = w.waiting[0], w.waiting[1:]
	return f
}

// each calls f for 0 to n-1, side by side as far as workers are free, and returns when all calls
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
		helpers.Add(1)
		w.mu.Lock()
		started := w.start(func() { defer helpers.Done(); some() })
		w.mu.Unlock()
		if !started {
			helpers.Done()
			break
		}
	}
	some()
	helpers.Wait()
}

// stop returns when every worker has ended. Calls that wait for a worker still begin.
func (w *workers) stop() {
	w.mu.Lock()
	w.end()
	w.mu.Unlock()
	w.running.Wait()
}
