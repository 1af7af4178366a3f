package integration

import (
	"testing"
	"time"

	"example.org/rls/internal/testenv"
)

// TestSlowNetwork: a store that is slow is not one that is away. The test is not
// parallel to others, because it measures milliseconds.
func TestSlowNetwork(t *testing.T) {
	for _, store := range remotes {
		t.Run(store.name, func(t *testing.T) {
			network, settings := store.relayed(t)
			s := serve(t, plenty, settings...)
			s.want("d", desc("user", "x"), ok, 999_999)

			// 98 of 100 round trips take less than the 18 ms that the program has for them.
			network.Slow(5*time.Millisecond, 5*time.Millisecond)
			s.best(t, 0.9, "checks with 20 ms, by a store 10 ms away", func() *traffic { return s.pass(500, envoysTimeout, users(500)...) })

			network.Slow(50*time.Millisecond, 0)
			hasty := s.pass(100, envoysTimeout, users(100)...)
			s.best(t, 0.99, "checks with 1 s, by a store 100 ms away", func() *traffic { return s.pass(100, time.Second, users(100)...) })
			if n := len(hasty.end().only(verdict(ok))); n > 0 {
				t.Errorf("%d checks with 20 ms were decided by a store 100 ms away", n)
			}
			if lines := s.log.With("is away"); len(lines) > 0 {
				t.Errorf("a slow store counts as away: %q", lines)
			}
		})
	}
}

// best fails the test if less than a share of the checks are decided in the best of
// three rounds. If something stalled during a tenth of the checks of each round, the
// machine is too busy to tell, which the log of the test then says.
func (s *service) best(t *testing.T, share float64, what string, begin func() *traffic) {
	t.Helper()
	const rounds, lasts, opening = 3, 1500 * time.Millisecond, 300 * time.Millisecond
	best, calmRounds := 0.0, 0
	for round := 0; round < rounds && best < share; round++ {
		began := time.Now()
		flow := begin()
		testenv.Eventually(t, patience, func() bool { return time.Since(began) > lasts }, "the round is over")
		got := flow.end().only(sentAfter(began.Add(opening))) // connections are open
		calm := got.only(flow.calm)
		decided := float64(len(calm.only(verdict(ok)))) / float64(max(1, len(calm)))
		t.Logf("%s: %.3f of %d decided, %d during a stall", what, decided, len(calm), len(got)-len(calm))
		if best = max(best, decided); 10*len(calm) > 9*len(got) {
			calmRounds++
		}
	}
	switch {
	case best >= share:
	case calmRounds == 0:
		t.Logf("%s: not measured, because the machine stalled in each round", what)
	default:
		t.Errorf("%s: at best %.3f were decided, want %.3f", what, best, share)
	}
}
