package xds

import (
	"math/rand/v2"
	"time"
)

// Backoff says how long to wait before the server is asked again.
type Backoff struct {
	// Unreachable is the first wait when no stream could be opened, Ended when
	// one had been.
	Unreachable, Ended time.Duration
	// Max bounds every wait.
	Max time.Duration
	// Factor is by how much each wait is longer than the one before; 2 when it
	// would not make it longer.
	Factor float64
	// Jitter makes each wait a random part of itself, half at least, so that
	// replicas do not all come back at once.
	Jitter bool
}

// waits is a row of waits between which nothing succeeded.
type waits struct {
	Backoff
	failures int
}

func (w *waits) reset() { w.failures = 0 }

func (w *waits) next(unreachable bool) time.Duration {
	first, factor := w.Ended, w.Factor
	if unreachable {
		first = w.Unreachable
	}
	if factor <= 1 {
		factor = 2
	}
	most := float64(w.Max)
	wait := min(float64(first), most)
	for range w.failures {
		if wait *= factor; wait >= most {
			wait = most
			break
		}
	}
	w.failures++
	if w.Jitter {
		wait *= 0.5 + rand.Float64()/2
	}
	return time.Duration(wait)
}
