package metrics

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/rls/pkg/backends"
)

// Store passes calls on to another store and measures them.
type Store struct {
	backends.Store
	epoch  time.Time // time.Since(epoch) reads only the monotonic clock; time.Now reads two
	took   prometheus.Observer
	failed prometheus.Counter
	up     atomic.Bool
}

// Store returns a store that measures the calls to next; backend is the label of
// the metrics. It must be called once at most.
func (m *Metrics) Store(next backends.Store, backend string) *Store {
	labels := prometheus.Labels{"backend": backend}
	took := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "rls_store_duration_seconds", ConstLabels: labels, Buckets: latencies,
		Help: "Time that a request waited for the store, failures included.",
	})
	failed := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "rls_store_errors_total", ConstLabels: labels, Help: "Calls to the store that failed or were not answered in time. Calls whose caller gave up are not counted.",
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

// Unwrap is the decorated store; see backends.ScannerOf.
func (s *Store) Unwrap() backends.Store { return s.Store }

// Apply implements backends.Store.
func (s *Store) Apply(ctx context.Context, b *backends.Batch) error {
	start := time.Since(s.epoch)
	err := s.Store.Apply(ctx, b)
	s.took.Observe((time.Since(s.epoch) - start).Seconds())
	if s.answered(ctx, err); err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		s.failed.Inc()
	}
	return err
}

// Ping implements backends.Store. It notes whether the store answered.
func (s *Store) Ping(ctx context.Context) error {
	err := s.Store.Ping(ctx)
	s.answered(ctx, err)
	return err
}

// answered notes whether the store answered. A call whose caller gave up says
// nothing about the store.
func (s *Store) answered(ctx context.Context, err error) {
	if up := err == nil; s.up.Load() != up && !errors.Is(ctx.Err(), context.Canceled) {
		s.up.Store(up)
	}
}
