package memcached

import (
	"context"
	"sync"
)

// workers is a bounded set of goroutines that call one server. gomemcache's
// calls take no context: they run here while their callers wait or give up. A
// goroutine is started when no other is idle and then kept, because a
// long-lived goroutine has grown its stack already.
type workers struct {
	ctx     context.Context // ends with stop
	end     context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	free    int           // workers that may still be started; 0 after stop
	idle    []chan func() // workers that wait
	waiting []func()      // calls that wait for a worker
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
	case w.take(f):
	case atOnce:
		w.running.Go(f)
	default:
		w.waiting = append(w.waiting, f)
	}
	return true
}

// offer gives f to an idle worker or to a new one, and reports whether there
// was one.
func (w *workers) offer(f func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.take(f)
}

// take is offer for a caller that holds w.mu.
func (w *workers) take(f func()) bool {
	if last := len(w.idle) - 1; last >= 0 {
		w.idle[last] <- f
		w.idle = w.idle[:last]
		return true
	}
	if w.free == 0 {
		return false
	}
	w.free--
	w.running.Go(func() { w.work(f) })
	return true
}

// work calls f and then the functions that callers hand over, until stop.
func (w *workers) work(f func()) {
	handed := make(chan func(), 1) // take never waits for the worker
	for ; f != nil; f = w.next(handed) {
		f()
	}
}

// next returns the next call for the worker that reads handed; nil after stop.
func (w *workers) next(handed chan func()) func() {
	w.mu.Lock()
	switch {
	case len(w.waiting) > 0:
		handed <- w.waiting[0]
		w.waiting = w.waiting[1:]
	case w.ctx.Err() != nil:
		close(handed)
	default:
		w.idle = append(w.idle, handed)
	}
	w.mu.Unlock()
	return <-handed
}

// each calls f for 0 to n-1 and returns when all calls have ended: side by
// side as far as workers are free, the rest one after another. A worker calls
// it.
func (w *workers) each(n int, f func(int)) {
	var busy sync.WaitGroup
	var own []int
	for i := 1; i < n; i++ {
		busy.Add(1)
		if !w.offer(func() { defer busy.Done(); f(i) }) {
			busy.Done()
			own = append(own, i)
		}
	}
	if n > 0 {
		f(0)
	}
	for _, i := range own {
		f(i)
	}
	busy.Wait()
}

// stop returns when every worker has ended. Calls that wait for a worker still begin.
func (w *workers) stop() {
	w.mu.Lock()
	w.end()
	w.free = 0
	for _, handed := range w.idle {
		close(handed)
	}
	w.idle = nil
	w.mu.Unlock()
	w.running.Wait()
}
