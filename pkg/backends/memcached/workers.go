package memcached

import "sync"

// workers is a bounded set of goroutines that call one server. gomemcache's
// calls take no context: they run here while their callers wait or give up. A
// goroutine is started when no other is idle and then kept, because a
// long-lived goroutine has grown its stack already.
type workers struct {
	// queue is unbuffered: a call that no worker has taken has not begun, and
	// a caller that gives up before leaves nothing behind.
	queue   chan func()
	stopped chan struct{}

	mu      sync.Mutex
	free    int // workers that may still be started; 0 after stop
	running sync.WaitGroup
	once    sync.Once
}

func newWorkers(most int) *workers {
	return &workers{queue: make(chan func()), stopped: make(chan struct{}), free: most}
}

// start begins f at once, in a goroutine of its own if no worker is free. It does
// nothing after stop.
func (w *workers) start(f func()) {
	if w.offer(f) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.stopped:
	default:
		w.running.Go(f)
	}
}

// offer gives f to an idle worker or to a new one, and reports whether there
// was one.
func (w *workers) offer(f func()) bool {
	select {
	case w.queue <- f:
		return true
	default:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.free == 0 {
		return false
	}
	w.free--
	w.running.Go(func() { w.work(f) })
	return true
}

// work calls first and then the functions that callers submit, until stop.
func (w *workers) work(first func()) {
	first()
	for {
		select {
		case <-w.stopped:
			return
		case f := <-w.queue:
			f()
		}
	}
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

// stop returns when every worker has ended.
func (w *workers) stop() {
	w.once.Do(func() {
		close(w.stopped)
		w.mu.Lock()
		w.free = 0
		w.mu.Unlock()
	})
	w.running.Wait()
}
