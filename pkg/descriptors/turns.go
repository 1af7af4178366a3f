package descriptors

import (
	"io"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
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

// Each returns what do makes of each of all: several at once, on all processors until requests are decided
// and on half of them from then on. do takes turns itself.
func Each[X, Y any](all []X, do func(X) Y) []Y {
	workers := runtime.GOMAXPROCS(0)
	if serving.Load() {
		workers = max(1, workers/2)
	}
	made := make([]Y, len(all))
	var working errgroup.Group
	working.SetLimit(workers)
	for i := range all {
		working.Go(func() error {
			made[i] = do(all[i])
			return nil
		})
	}
	_ = working.Wait()
	return made
}

// Yielding is a reader that gives way to other goroutines at each read.
func Yielding(from io.Reader) io.Reader { return &yielding{Reader: from} }

type yielding struct {
	io.Reader
	turns Turns
}

func (y *yielding) Read(p []byte) (int, error) {
	y.turns.Give()
	return y.Reader.Read(p)
}
