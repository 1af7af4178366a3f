package metrics

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"example.org/rls/internal/latency"
	"example.org/rls/pkg/backends"
)

// Store passes calls on to another store and measures them.
type Store struct {
	backends.Store
	epoch      time.Time // time.Since(epoch) reads only the monotonic clock; time.Now reads two
	took       *latency.Histogram
	failed     atomic.Uint64
	unanswered atomic.Int64 // hits
	up         atomic.Bool
}

// Store returns a store that measures the calls to next; backend is the label of its
// metrics, which it adds.
func (m *Metrics) Store(next backends.Store, backend string) *Store {
	s := &Store{Store: next, epoch: time.Now(), took: latency.NewHistogram(scale)}
	m.countStore(s, backend)
	return s
}

// Unwrap is the decorated store; see backends.ScannerOf.
func (s *Store) Unwrap() backends.Store { return s.Store }

// Apply implements backends.Store.
func (s *Store) Apply(ctx context.Context, b *backends.Batch) error {
	start := time.Since(s.epoch)
	err := s.answered(ctx, s.Store.Apply(ctx, b))
	s.took.Observe(time.Since(s.epoch) - start)
	if err == nil {
		return nil
	}
	s.unanswered.Add(unanswered(b))
	if !errors.Is(ctx.Err(), context.Canceled) {
		s.failed.Add(1)
	}
	return err
}

// unanswered is the hits of b that were sent, and that no answer says are charged or not.
func unanswered(b *backends.Batch) (hits int64) {
	for i := range b.Ops {
		op, err := &b.Ops[i], b.Replies[i].Err
		if err != nil && !errors.Is(err, backends.ErrNotSent) && !op.Verb.GivesBack() && !op.Verb.Operates() {
			hits += op.Times * op.By.Units(op.Unit, op.Den)
		}
	}
	return hits
}

// Ping implements backends.Store. It notes whether the store answered.
func (s *Store) Ping(ctx context.Context) error { return s.answered(ctx, s.Store.Ping(ctx)) }

// answered notes whether the store answered, and returns the error. A call whose caller
// gave up says nothing about the store.
func (s *Store) answered(ctx context.Context, err error) error {
	if up := err == nil; s.up.Load() != up && !errors.Is(ctx.Err(), context.Canceled) {
		s.up.Store(up)
	}
	return err
}
