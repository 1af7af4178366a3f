package near_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/backends/near"
)

// distant is a store 80 ms away.
type distant struct{ backends.Store }

func (d distant) Apply(ctx context.Context, b *backends.Batch) error {
	const way = 40 * time.Millisecond
	<-time.After(way)
	err := d.Store.Apply(ctx, b)
	<-time.After(way)
	return err
}

// TestADistantStore: with the store 80 ms away, 99 % of the hits of a leased key need
// no round trip.
func TestADistantStore(t *testing.T) {
	third := algorithms.Lease{Share: 200_000, TTL: 300 * time.Millisecond}
	for name, test := range map[string]struct {
		spec algorithms.Spec
		rate int // hits per second
	}{
		"fixed window":                       {algorithms.Spec{Requests: 100_000, Window: time.Minute, Lease: lease5}, 1000},
		"fixed window from first hit":        {algorithms.Spec{Requests: 100_000, Window: time.Minute, FromFirstHit: true, Lease: lease5}, 1000},
		"sliding window":                     {algorithms.Spec{Requests: 100_000, Window: time.Minute, Strategy: algorithms.SlidingWindow, Lease: lease5}, 1000},
		"token bucket that is nearly full":   {algorithms.Spec{Requests: 2000, Window: time.Second, Strategy: algorithms.TokenBucket, Burst: 4000, Lease: third}, 375},
		"token bucket without a burst":       {algorithms.Spec{Requests: 2000, Window: time.Second, Strategy: algorithms.TokenBucket, Lease: third}, 100},
		"token bucket that is used at half":  {algorithms.Spec{Requests: 1000, Window: time.Second, Strategy: algorithms.TokenBucket, Burst: 3000, Lease: third}, 500},
		"gcra with a long burst, used fully": {algorithms.Spec{Requests: 600, Window: time.Second, Strategy: algorithms.GCRA, Burst: 6000, Lease: third}, 600},
		"leaky bucket, a day's":              {algorithms.Spec{Requests: 10_000_000, Window: 24 * time.Hour, Strategy: algorithms.LeakyBucket, Lease: lease5}, 300},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner, err := memory.New(memory.Options{MaxKeys: 100})
				if err != nil {
					t.Fatal(err)
				}
				s := near.New(distant{inner}, near.Options{Timeout: time.Second})
				l := limit(t, test.spec)
				var hits, asked, denied atomic.Int64
				var callers sync.WaitGroup
				const seconds = 20
				for i := range seconds * test.rate {
					<-time.After(time.Second / time.Duration(test.rate))
					callers.Go(func() {
						b := *batchOf(l, algorithms.Charge{Now: s.Now(), Cost: 1}, "hot")
						if err := s.Apply(t.Context(), &b); err != nil || b.Replies[0].Admitted == 0 {
							denied.Add(1)
						}
						if i < test.rate { // until the key is leased
							return
						}
						if hits.Add(1); !b.Replies[0].Leased {
							asked.Add(1)
						}
					})
				}
				callers.Wait()
				if asked.Load()*100 > hits.Load() || denied.Load() > 0 {
					t.Errorf("%d of %d hits went to the store, and %d were denied: %+v", asked.Load(), hits.Load(), denied.Load(), s.Leases())
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
