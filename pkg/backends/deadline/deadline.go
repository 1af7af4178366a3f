// Package deadline bounds how long a caller waits for a store.
//
// It promises that Apply returns a margin ([backends.Margin]) before the
// caller's own deadline, so that the answer still reaches the caller, and within
// a timeout if the caller has no deadline or a later one. It bounds the wait
// only: the store decides whether the call on the wire goes on. A caller that gives up
// ends its wait, too, but not within the wait's first 5 ms.
package deadline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.org/rls/pkg/backends"
)

// Store is another store with bounded waits.
type Store struct {
	backends.Store
	timeout time.Duration
}

var _ backends.Store = (*Store)(nil)

// New bounds each wait for next by timeout, > 0, and by the caller's deadline.
func New(next backends.Store, timeout time.Duration) (*Store, error) {
	if timeout <= 0 {
		return nil, fmt.Errorf("deadline: a timeout of %v bounds nothing: must be above 0", timeout)
	}
	return &Store{next, timeout}, nil
}

// Unwrap is the decorated store; see backends.ScannerOf.
func (s *Store) Unwrap() backends.Store { return s.Store }

// Apply implements backends.Store. The replies to operations that were not
// decided in time have an error that says how long the wait was.
func (s *Store) Apply(ctx context.Context, b *backends.Batch) error {
	longest := s.timeout
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		longest = min(longest, left-backends.Margin(left))
	}
	bounded := &wait{Context: ctx, deadline: time.Now().Add(longest)}
	defer bounded.end(context.Canceled)
	err := s.Store.Apply(bounded, b)
	if err == nil || !errors.Is(bounded.Err(), context.DeadlineExceeded) {
		return err
	}
	for i := range b.Replies {
		if r := &b.Replies[i]; errors.Is(r.Err, context.DeadlineExceeded) {
			r.Err = fmt.Errorf("no answer within %v: %w", max(longest, 0).Round(time.Microsecond), r.Err)
		}
	}
	return b.Err()
}
