package memcached_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/memcached"
)

// TestCutConnection: a connection that is cut loses the call on it and no other, nearby
// as well as 5 ms away. Calls on other connections need not wait for new ones, which
// takes two round trips more than a caller with 20 ms may have.
func TestCutConnection(t *testing.T) {
	for _, way := range []time.Duration{0, 5 * time.Millisecond} {
		t.Run(way.String(), func(t *testing.T) {
			network := testenv.NewRelay(t, testenv.Memcached(t).Addr)
			watch := &breaker.Watch{}
			s := open(t, memcached.Options{Servers: []string{network.Addr}, Watch: watch})
			warm(t, s, 60)
			network.Slow(way, 0)
			var failed, right atomic.Int64
			var first atomic.Pointer[error]
			var done atomic.Bool
			var callers sync.WaitGroup
			for i := range 60 {
				callers.Go(func() {
					for !done.Load() {
						if err := s.Apply(context.Background(), batch(hit(fmt.Sprint("warm", i), 1, -1))); err != nil {
							failed.Add(1)
							first.Store(&err)
						} else {
							right.Add(1)
						}
					}
				})
			}
			const rounds = 20
			testenv.Eventually(t, patience, func() bool { return right.Load() > 500 }, "calls are answered")
			connections := network.Opened()
			for round := range rounds {
				network.Cut()
				before, at := failed.Load(), right.Load()
				testenv.Eventually(t, patience, func() bool { return right.Load() > at+500 }, "calls are answered")
				if n := failed.Load() - before; n > 1 {
					t.Errorf("round %d: %d calls failed: %v", round, n, *first.Load())
				}
				if watch.Away() > 0 {
					t.Errorf("round %d: the server is away", round)
				}
			}
			done.Store(true)
			callers.Wait()
			if n := failed.Load(); n == 0 {
				t.Error("no call failed: no connection was cut")
			}
			// A call may find no idle connection for other reasons.
			if n := network.Opened() - connections; n > 5*rounds {
				t.Errorf("%d new connections after %d were cut", n, rounds)
			}
			t.Logf("%d calls answered, %d failed, %d connections and %d new ones", right.Load(), failed.Load(), connections, network.Opened()-connections)
		})
	}
}
