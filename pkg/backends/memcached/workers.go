package memcached

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// maxWaiting bounds the callers that wait for a worker.
const maxWaiting = 1024

// workers is a fixed set of goroutines that talk to memcached. gomemcache's
// calls know no context: they run here while their callers wait or give up.
// Long-lived goroutines keep their grown stacks.
type workers struct {
	// Both are unbuffered: what a worker has not taken has not begun, and a
	// caller who gives up before leaves nothing behind.
	queue chan func()
	help  chan func()

	waiting atomic.Int64 // callers for whom no worker is free
	stopped chan struct{}
	once    sync.Once
	running sync.WaitGroup
}

func startWorkers(n int) *workers {
	w := &workers{queue: make(chan func()), help: make(chan func()), stopped: make(chan struct{})}
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

var (
	errBusy   = errors.New("too many calls are waiting for their turn")
	errClosed = errors.New("the store is closed")
)

// submit returns when a worker has begun f, or with the reason why none will.
func (w *workers) submit(ctx context.Context, f func()) error {
	defer w.waiting.Add(-1)
	if w.waiting.Add(1) > maxWaiting {
		return errBusy
	}
	select {
	case w.queue <- f:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-w.stopped:
		return errClosed
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
