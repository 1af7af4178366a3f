// Package deadline bounds how long a caller waits for a store.
//
// It promises that Apply returns a margin before the caller's own deadline, so
// that the answer still reaches the caller, and within a timeout where the
// caller has none. It leaves to the store what becomes of the call on the wire.
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

// New bounds each wait for next by timeout, > 0, and by the caller's deadline.
func New(next backends.Store, timeout time.Duration) (*Store, error) {
	if timeout <= 0 {
		return nil, fmt.Errorf("deadline: a timeout of %v bounds nothing: must be above 0", timeout)
	}
	return &Store{next, timeout}, nil
}

// Apply applies b or gives up in time.
func (s *Store) Apply(ctx context.Context, b *backends.Batch) error {
	wait := s.timeout
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		wait = min(wait, left-backends.Margin(left))
	}
	bounded, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	err := s.Store.Apply(bounded, b)
	if err != nil && errors.Is(bounded.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w: no answer within %v", backends.ErrUnavailable, wait.Round(time.Microsecond))
	}
	return err
}
