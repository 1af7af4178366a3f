package xds

import (
	"math"
	"math/rand/v2"
	"time"
)

// Backoff says how long to wait before the server is asked again.
type Backoff struct {
	// Unreachable is the first wait after a stream could not be opened, Ended the
	// first wait after a stream ended.
	Unreachable, Ended time.Duration
	// Max bounds every wait.
	Max time.Duration
	// Factor multiplies each wait to give the next one. A Factor of at most 1
	// stands for 2.
	Factor float64
	// Jitter replaces each wait by a random one between its half and itself, so
	// that replicas do not all connect at once.
	Jitter bool
}

// waits is a series of waits without a success between them.
type waits struct {
	Backoff
	failures int
}

func (w *waits) next(unreachable bool) time.Duration {
	first, factor := w.Ended, w.Factor
	if unreachable {
		first = w.Unreachable
	}
	if factor <= 1 {
		factor = 2
	}
	wait := min(float64(first)*math.Pow(factor, float64(w.failures)), float64(w.Max))
	w.failures++
	if w.Jitter {
		wait *= 0.5 + rand.Float64()/2
	}
	return time.Duration(wait)
}
