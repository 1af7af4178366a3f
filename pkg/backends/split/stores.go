package split

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.org/rls/pkg/backends"
)

// Stores sends operations on one-second windows to one store and all other
// operations to another store.
type Stores struct {
	stores [2]backends.Store // main, per second
	places Places
}

var _ backends.Scanner = (*Stores)(nil)

// New returns a store that applies operations with PerSecond on perSecond and
// the other operations on main. It owns both stores. Charges on one store of a
// batch that the other store refuses are given back within timeout, > 0.
func New(main, perSecond backends.Store, timeout time.Duration) *Stores {
	s := &Stores{stores: [2]backends.Store{main, perSecond}}
	s.places = Places{Of: placeOf, Ask: s.ask, GiveBack: timeout}
	return s
}

// Apply implements backends.Store.
func (s *Stores) Apply(ctx context.Context, b *backends.Batch) error {
	if one, at := s.places.one(b); one {
		return s.stores[at.Server].Apply(ctx, b)
	}
	return s.places.ApplyEach(ctx, b, func(*backends.Op) {})
}

func placeOf(op *backends.Op) Place {
	if op.PerSecond {
		return Place{Server: 1}
	}
	return Place{}
}

// ask asks both stores at once.
func (s *Stores) ask(ctx context.Context, parts []*Part, answered func(*Part)) {
	AtOnce(parts, func(p *Part) {
		_ = s.stores[p.Server].Apply(ctx, &p.Batch) // its replies have the error
		answered(p)
	})
}

// Page lists the keys of the main store, and then those of the other one. Its positions are those of
// the store behind its index.
func (s *Stores) Page(ctx context.Context, prefix, from string, n int) (keys []string, next string, err error) {
	at, from, _ := strings.Cut(from, ":")
	i := slices.Index([]string{"0", "1"}, cmp.Or(at, "0"))
	if i < 0 {
		return nil, "", backends.ErrMoved
	}
	scanner, err := backends.ScannerOf(s.stores[i])
	if err != nil {
		return nil, "", err
	}
	keys, next, err = scanner.Page(ctx, prefix, from, n)
	switch {
	case err != nil:
		return nil, "", err
	case next != "":
		next = fmt.Sprintf("%d:%s", i, next)
	case i == 0:
		next = "1:"
	}
	return keys, next, nil
}

// Now is the main store's time.
func (s *Stores) Now() int64 { return s.stores[0].Now() }

// Ping says whether the main store can decide: a process whose per-second store is
// away still decides for all other limits. It asks the per-second store, too, so that
// a breaker reports a server that is away before a request needs it.
func (s *Stores) Ping(ctx context.Context) error {
	var errs [2]error
	AtOnce([]int{0, 1}, func(i int) { errs[i] = s.stores[i].Ping(ctx) })
	return errs[0]
}

// Close closes both stores.
func (s *Stores) Close() error { return errors.Join(s.stores[0].Close(), s.stores[1].Close()) }
