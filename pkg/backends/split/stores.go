package split

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"example.org/rls/pkg/backends"
)

// Stores is a store for the operations of one-second windows beside one for
// all others.
type Stores struct {
	main, perSecond backends.Store
	timeout         time.Duration
}

var _ backends.Store = (*Stores)(nil)

// New returns a store that applies operations with PerSecond on perSecond and
// the others on main. It owns both. What one store has charged and the other
// refuses is given back within timeout, > 0.
func New(main, perSecond backends.Store, timeout time.Duration) (*Stores, error) {
	if timeout <= 0 {
		return nil, fmt.Errorf("split: a timeout of %v leaves no time to give back: must be above 0", timeout)
	}
	return &Stores{main, perSecond, timeout}, nil
}

// Apply implements backends.Store.
func (s *Stores) Apply(ctx context.Context, b *backends.Batch) error {
	seconds := 0
	for i := range b.Ops {
		seconds += placeOf(&b.Ops[i])
	}
	switch seconds {
	case 0:
		return s.main.Apply(ctx, b)
	case len(b.Ops):
		return s.perSecond.Apply(ctx, b)
	}
	return Apply(ctx, b, s.timeout, placeOf, s.applyParts)
}

func placeOf(op *backends.Op) int {
	if op.PerSecond {
		return 1
	}
	return 0
}

// applyParts asks both stores at once. Their errors are in the replies.
func (s *Stores) applyParts(ctx context.Context, parts []*Part) {
	stores := [...]backends.Store{s.main, s.perSecond}
	var others sync.WaitGroup
	for _, p := range parts[1:] {
		others.Go(func() { applyTo(ctx, stores[p.Place], p) })
	}
	applyTo(ctx, stores[parts[0].Place], parts[0])
	others.Wait()
}

func applyTo(ctx context.Context, s backends.Store, p *Part) {
	if err := s.Apply(ctx, &p.Batch); err != nil && p.Err() == nil {
		_ = p.Fail(err)
	}
}

// Now is the main store's time.
func (s *Stores) Now() int64 { return s.main.Now() }

// Ping asks the main store: a process whose per-second store is away still
// decides for all other limits.
func (s *Stores) Ping(ctx context.Context) error { return s.main.Ping(ctx) }

// Close closes both stores.
func (s *Stores) Close() error { return errors.Join(s.main.Close(), s.perSecond.Close()) }
