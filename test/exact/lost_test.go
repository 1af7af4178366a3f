package exact_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
)

// TestLostAnswers uses up a limit while 5 % of the answers are lost. A call whose
// answer is lost may have been charged, so fewer hits pass than the limit allows:
// at most the hits of such calls, and never more than the limit.
func TestLostAnswers(t *testing.T) {
	// The answer to the greeting of each new connection counts, too: one in 22 is
	// one in 21 of the calls.
	const limit, loses = 2000, 22
	for _, p := range places {
		if p.alone || p.cache > 0 || p.name == "Redis Cluster" {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			processes := p.processes(t, 3, loses)
			l, err := algorithms.New(algorithms.Spec{Requests: limit, Window: algorithms.MaxWindow})
			if err != nil {
				t.Fatal(err)
			}
			id := algorithms.Identity{ID: fmt.Appendf(nil, "lost.%d.%d", epoch, unique.Add(1))}
			var admitted, lost, calls atomic.Int64
			var callers sync.WaitGroup
			for _, s := range processes {
				for range 2 {
					callers.Go(func() {
						for denied := 0; denied < 3 && calls.Add(1) < 100*limit; {
							b := &backends.Batch{Ops: make([]backends.Op, 1), Replies: make([]backends.Reply, 1)}
							l.Plan(&b.Ops[0], id, algorithms.Charge{Now: epoch, Cost: 1})
							switch err := s.Apply(context.Background(), b); {
							case err != nil:
								lost.Add(1)
							case l.Judge(&b.Ops[0], &b.Replies[0]).Allowed:
								admitted.Add(1)
							default:
								denied++
							}
						}
					})
				}
			}
			callers.Wait()
			a, n, of := admitted.Load(), lost.Load(), calls.Load()
			under := 100 * float64(limit-a) / limit
			t.Logf("limit %d: %d admitted, %.1f %% too few; %d of %d calls got no answer", limit, a, under, n, of)
			switch {
			case n == 0:
				t.Error("no answer was lost")
			case a > limit:
				t.Errorf("%d hits passed", a)
			case limit-a > n:
				t.Errorf("%d hits are missing, more than the %d that got no answer", limit-a, n)
			case under > 5:
				t.Errorf("%.1f %% too few", under)
			}
		})
	}
}
