// Package pace repeats work at an interval, and bounds how often others have work done.
package pace

import (
	"context"
	"iter"
	"sync"
	"time"
)

// Every gives 0 at once, and then the next number after each interval d, until ctx ends. While
// the work takes longer than d, ticks are left out.
func Every(ctx context.Context, d time.Duration) iter.Seq[int] {
	return func(yield func(int) bool) {
		tick := time.NewTicker(d)
		defer tick.Stop()
		for i := 0; yield(i); i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}
}

// Allowance is a token bucket, which is full at first. It is safe for concurrent use.
type Allowance struct {
	mu   sync.Mutex
	full time.Time // when the bucket is full again
}

// Take takes so many tokens as the bucket gains in the time cost, if it has them: an empty bucket is
// full after the time whole. It reports whether it had them.
func (a *Allowance) Take(cost, whole time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	full := now.Add(cost)
	if a.full.After(now) {
		full = a.full.Add(cost)
	}
	if full.Sub(now) > whole {
		return false
	}
	a.full = full
	return true
}
