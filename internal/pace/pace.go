// Package pace repeats work at an interval.
package pace

import (
	"context"
	"iter"
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
