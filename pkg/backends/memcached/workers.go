package memcached

import "sync"

// workers is a fixed set of goroutines that talk to memcached. gomemcache's
// calls know no context: they run here while their callers wait or give up.
// Long-lived goroutines keep their grown stacks.
type workers struct {
	queue   chan func()
	help    chan func() // unbuffered: taken by an idle worker or not at all
	stopped chan struct{}
	once    sync.Once
	running sync.WaitGroup
}

func startWorkers(n, waiting int) *workers {
	w := &workers{queue: make(chan func(), waiting), help: make(chan func()), stopped: make(chan struct{})}
	for range n {
		w.running.Go(w.work)
	}
	return w
}

func (w *workers) work() {
	for {
		select {
		case <-w.stopped:
			return
		case f := <-w.help:
			f()
		case f := <-w.queue:
			f()
		}
	}
}

// submit queues f and reports whether there was room.
func (w *workers) submit(f func()) bool {
	select {
	case w.queue <- f:
		return true
	default:
		return false
	}
}

// each calls f for 0 to n-1 and returns when all have ended: side by side as
// far as workers are idle, the rest one after another. It is for workers.
func (w *workers) each(n int, f func(int)) {
	var busy sync.WaitGroup
	var own []int
	for i := 1; i < n; i++ {
		busy.Add(1)
		select {
		case w.help <- func() { defer busy.Done(); f(i) }:
		default:
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
	w.once.Do(func() { close(w.stopped) })
	w.running.Wait()
}
