package metrics

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/rls/pkg/backends"
)

// Store is another store with its calls timed.
type Store struct {
	backends.Store
	epoch  time.Time // time.Since it reads one clock, where time.Now reads two
	took   prometheus.Observer
	failed prometheus.Counter
	up     atomic.Bool
}

// Store measures the calls to next, a store of the kind backend. Once at most.
func (m *Metrics) Store(next backends.Store, backend string) *Store {
	labels := prometheus.Labels{"backend": backend}
	took := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "rls_store_duration_seconds", ConstLabels: labels, Buckets: latencies,
		Help: "Time that a request waited for the store, failures included.",
	})
	failed := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "rls_store_errors_total", ConstLabels: labels, Help: "Calls that the store did not answer in time. Calls whose caller gave up are not counted.",
	})
	s := &Store{Store: next, epoch: time.Now(), took: took, failed: failed}
	m.add.MustRegister(took, failed, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rls_store_up", ConstLabels: labels, Help: "1 when the store answered the last call or health check, else 0.",
	}, func() float64 {
		if s.up.Load() {
			return 1
		}
		return 0
	}))
	return s
}

// Apply applies b and measures it.
func (s *Store) Apply(ctx context.Context, b *backends.Batch) error {
	start := time.Since(s.epoch)
	err := s.Store.Apply(ctx, b)
	s.took.Observe((time.Since(s.epoch) - start).Seconds())
	if s.answered(ctx, err); err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		s.failed.Inc()
	}
	return err
}

// Ping asks the store and keeps in mind whether it answered.
func (s *Store) Ping(ctx context.Context) error {
	err := s.Store.Ping(ctx)
	s.answered(ctx, err)
	return err
}

// answered keeps in mind what a call tells about the store, which is nothing
// when its caller gave up.
func (s *Store) answered(ctx context.Context, err error) {
	if up := err == nil; s.up.Load() != up && !errors.Is(ctx.Err(), context.Canceled) {
		s.up.Store(up)
	}
}
