package breaker_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends/breaker"
)

// TestProbesOfManyCallers: while many callers ask at every moment, also at the moment
// at which a probe fails, each outage ends.
func TestProbesOfManyCallers(t *testing.T) {
	var w breaker.Watch
	b := w.Server("10.0.0.1:6379")
	var dead, done atomic.Bool
	var failed atomic.Int64
	var callers sync.WaitGroup
	defer callers.Wait()
	for range 20 {
		callers.Go(func() {
			for !done.Load() {
				c, refused := b.Allow()
				if refused != nil {
					continue
				}
				start := time.Now()
				var err error
				if dead.Load() {
					err = errRefused
					failed.Add(1)
				}
				c.Done(time.Since(start), err)
			}
		})
	}
	defer done.Store(true)
	for range 6 {
		dead.Store(true)
		testenv.Eventually(t, 10*time.Second, func() bool { return condition(&w) != breaker.Closed }, "the breaker opens")
		before := failed.Load()
		testenv.Eventually(t, 10*time.Second, func() bool { return failed.Load() >= before+3 }, "three probes fail")
		dead.Store(false)
		testenv.Eventually(t, 5*time.Second, func() bool { return condition(&w) == breaker.Closed }, "the breaker closes")
	}
}
