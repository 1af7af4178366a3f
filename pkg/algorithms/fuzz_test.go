package algorithms_test

import (
	"testing"
	"time"

	"example.org/rls/pkg/algorithms"
)

// FuzzDecisions charges two costs, however large, to limits of every size. No
// input makes it panic, and each decision keeps the promises of Decision.
func FuzzDecisions(f *testing.F) {
	for strategy := range uint8(6) {
		f.Add(strategy, uint32(0), uint32(5_000_000), int64(60), int64(0), uint64(1), uint64(1<<63), int64(0))
		f.Add(strategy, uint32(1), uint32(0), int64(3650*24*3600), int64(0), uint64(1<<40), uint64(1), int64(3600))
		f.Add(strategy, uint32(1<<32-1), uint32(1<<32-1), int64(1), int64(1000), uint64(1<<32), uint64(1<<32-1), int64(-3600))
		f.Add(strategy, uint32(1<<32-1), uint32(1), int64(3650*24*3600), int64(1), uint64(3_000_000_000), uint64(2_000_000_000), int64(1<<40))
	}
	f.Fuzz(func(t *testing.T, strategy uint8, requests, burst uint32, seconds, delay int64, first, second uint64, later int64) {
		spec := algorithms.Spec{
			Strategy: algorithms.Strategy(strategy % 6), Requests: requests,
			Window: time.Duration(seconds%(4000*24*3600)) * time.Second,
		}
		switch spec.Strategy {
		case algorithms.FixedWindow:
			spec.FromFirstHit, spec.Extend = burst&1 != 0, burst&3 == 3
		case algorithms.SlidingLog:
			spec.Requests %= algorithms.MaxLogRequests + 1
		case algorithms.LeakyBucket:
			spec.MaxDelay = time.Duration(delay%60_000) * time.Millisecond
			spec.Burst = burst
		case algorithms.TokenBucket, algorithms.GCRA:
			spec.Burst = burst
		}
		l, err := algorithms.New(spec)
		if err != nil {
			return
		}
		now := epoch + later%(20*365*24*3600)*1_000_000
		for _, admittedOnly := range []bool{false, true} {
			c := newCells()
			for i, charge := range []algorithms.Charge{
				{Now: epoch, Cost: first}, {Now: now, Cost: second}, {Now: now, Cost: second, Refund: true}, {Now: now},
			} {
				charge.AdmittedOnly, charge.Patience = admittedOnly, time.Minute.Microseconds()
				d := c.charge(l, charge)
				if d.Remaining < 0 || d.Reset < 0 || d.RetryAfter < 0 || d.Delay < 0 || d.Delay > spec.MaxDelay || d.Allowed && d.RetryAfter > 0 {
					t.Fatalf("%+v, charge %d %+v: %+v", spec, i, charge, d)
				}
				if !d.Allowed && d.RetryAfter > 2*spec.Window {
					t.Fatalf("%+v, charge %d %+v: wait %v", spec, i, charge, d.RetryAfter)
				}
				if spec.Requests == 0 && charge.Cost > 0 && !charge.Refund && d.Allowed {
					t.Fatalf("%+v: a limit of 0 lets %d pass", spec, charge.Cost)
				}
				if charge.Refund && !d.Allowed {
					t.Fatalf("%+v: a refund is denied", spec)
				}
			}
		}
	})
}
