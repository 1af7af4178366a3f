package split

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"example.org/rls/pkg/backends"
)

// undoTimeout is how long giving back on two stores may take after its caller
// has gone.
const undoTimeout = 10 * time.Second

// Stores is a store for the operations of one-second windows beside one for
// all others.
type Stores struct{ main, perSecond backends.Store }

var _ backends.Store = (*Stores)(nil)

// New returns a store that applies operations with PerSecond on perSecond and
// the others on main. It owns both.
func New(main, perSecond backends.Store) *Stores {
	return &Stores{main: main, perSecond: perSecond}
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
	err := Apply(ctx, b, undoTimeout, placeOf, s.applyParts)
	if err != nil && !errors.Is(err, backends.ErrUnavailable) {
		err = fmt.Errorf("apply %d operations to two stores: %w: %w", len(b.Ops), backends.ErrUnavailable, err)
	}
	return err
}

func placeOf(op *backends.Op) int {
	if op.PerSecond {
		return 1
	}
	return 0
}

func (s *Stores) applyParts(ctx context.Context, parts []*Part) {
	stores := [...]backends.Store{s.main, s.perSecond}
	var others sync.WaitGroup
	for _, p := range parts[1:] {
		others.Go(func() { p.Err = stores[p.Place].Apply(ctx, &p.Batch) })
	}
	parts[0].Err = stores[parts[0].Place].Apply(ctx, &parts[0].Batch)
	others.Wait()
}

// Now is the main store's time.
func (s *Stores) Now() int64 { return s.main.Now() }

// Ping asks both stores.
func (s *Stores) Ping(ctx context.Context) error {
	var errs [2]error
	var other sync.WaitGroup
	other.Go(func() { errs[1] = s.perSecond.Ping(ctx) })
	errs[0] = s.main.Ping(ctx)
	other.Wait()
	return errors.Join(errs[:]...)
}

// Close closes both stores.
func (s *Stores) Close() error { return errors.Join(s.main.Close(), s.perSecond.Close()) }
