package descriptors

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// work is how long a goroutine loads rules between two pauses.
	work = 2 * time.Millisecond
	// pause is how long it then leaves its processor to others.
	pause = time.Millisecond
)

var serving atomic.Bool

// TakeTurns says that requests are being decided from now on, so that loading rules
// pauses. Until then a load is as quick as it can be: the process is not ready
// before it has ended.
func TakeTurns() { serving.Store(true) }

// Turns let a goroutine that loads rules share the processors with requests. Without them a
// request could wait for the 10 ms after which Go preempts that goroutine, and the garbage of a
// load would make the garbage collector take every processor of a small machine at once. The zero
// Turns is ready for use.
type Turns struct {
	steps int
	since time.Time // when the goroutine began to work after its last pause
}

// Next counts a step of some hundred nanoseconds, and gives way about every
// 20 µs.
func (t *Turns) Next() {
	const steps = 64
	if t.steps++; t.steps%steps == 0 {
		t.Give()
	}
}

// Give gives way to other goroutines once requests are decided. It pauses when enough time has passed
// since the last pause.
func (t *Turns) Give() {
	if !serving.Load() {
		return
	}
	runtime.Gosched()
	switch now := time.Now(); {
	case t.since.IsZero():
		t.since = now
	case now.Sub(t.since) > work:
		time.Sleep(pause)
		t.since = time.Now()
	}
}

// Each calls do for all numbers below n: several at once, on all processors until requests are decided
// and on half of them from then on. do takes turns itself.
func Each(n int, do func(i int)) {
	workers := runtime.GOMAXPROCS(0)
	if serving.Load() {
		workers = max(1, workers/2)
	}
	var next atomic.Int64
	var working sync.WaitGroup
	for range min(n, workers) {
		working.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				do(int(i))
			}
		})
	}
	working.Wait()
}
