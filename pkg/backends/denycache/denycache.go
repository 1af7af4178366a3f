// Package denycache denies from memory what the store would deny.
//
// A counter or meter that has no room for an operation has none until it ends,
// so for a second after a denial the store need not be asked about its cell
// again. The cache keeps cells, not denials: each operation is tried on the
// remembered cell, so a raised limit or a smaller cost is decided by the store.
// A refund through this process removes the cell; one through another process
// is noticed when the second is over.
//
// A denial from memory charges nothing: a fixed window that counts denied hits
// counts fewer of them. Always asked for are sliding windows and logs, whose
// room grows by the moment, windows that each hit extends, and operations that
// are decided together: a group, and a batch that is charged all or nothing.
// (One that is known to deny would spare them the store, but the replies have
// to say how full the other cells are.)
package denycache

import (
	"context"
	"fmt"

	lru "github.com/hashicorp/golang-lru/v2"

	"example.org/rls/pkg/backends"
)

const (
	// cellBytes is the most that a remembered cell takes: its name and some 170
	// bytes.
	cellBytes = 256
	// longestName bounds a name in bytes. Longer keys are named by their hash,
	// so that callers do not decide how much memory a cell takes.
	longestName = 64
	// freshFor is how long a remembered cell is used, in µs, and so the longest
	// time for which a refund through another process goes unnoticed.
	freshFor = 1_000_000
)

// Store is another store with a memory of full cells.
type Store struct {
	backends.Store
	full  *lru.Cache[string, memory]
	count counters
}

var _ backends.Store = (*Store)(nil)

// memory is a cell as the store had it.
type memory struct {
	cell backends.Cell
	at   int64 // when, µs on the store's clock
}

// New remembers cells of next in about size bytes. When they are used up, the
// cell that was not asked for the longest is forgotten.
func New(next backends.Store, size int) (*Store, error) {
	full, err := lru.New[string, memory](max(1, size/cellBytes))
	if err != nil {
		return nil, fmt.Errorf("denycache: %w", err)
	}
	return &Store{Store: next, full: full}, nil
}

// Apply implements backends.Store. Replies from memory have Recalled set.
func (s *Store) Apply(ctx context.Context, b *backends.Batch) error {
	if b.AllOrNothing && len(b.Ops) > 1 {
		err := s.Store.Apply(ctx, b)
		for i := range b.Ops {
			s.full.Remove(name(b.Ops[i].Key))
		}
		return err
	}
	known := 0
	for i := range b.Ops {
		b.Replies[i] = backends.Reply{}
		if r := s.recall(&b.Ops[i]); r.Recalled && !askedBefore(b, i) {
			b.Replies[i] = r
			known++
		}
	}
	s.count.hits.Add(uint64(known))
	s.count.misses.Add(uint64(len(b.Ops) - known))
	var err error
	switch known {
	case 0:
		err = s.Store.Apply(ctx, b)
	case len(b.Ops):
		b.Decide()
	default:
		err = s.askRest(ctx, b)
	}
	for i := range b.Ops {
		if !b.Replies[i].Recalled {
			s.remember(&b.Ops[i], &b.Replies[i])
		}
	}
	return err
}

// askedBefore reports whether an operation of b before the one at i goes to the
// store with the same key: it may change the cell.
func askedBefore(b *backends.Batch, i int) bool {
	for j := range i {
		if b.Ops[j].Key == b.Ops[i].Key && !b.Replies[j].Recalled {
			return true
		}
	}
	return false
}

// askRest asks the store for the operations that memory has not answered.
func (s *Store) askRest(ctx context.Context, b *backends.Batch) error {
	b.Refused = false
	var rest backends.Part
	for i := range b.Ops {
		if !b.Replies[i].Recalled {
			rest.Add(b, i)
		}
	}
	err := s.Store.Apply(ctx, &rest.Batch)
	rest.Answer(b)
	return err
}

// lasts reports whether op's cell, once it has no room for op, has none until
// it ends, and op is decided by that alone.
func lasts(op *backends.Op) bool {
	switch {
	case op.Refund || op.Group > 0 || op.By == (backends.Amount{}):
		return false
	case op.Kind == backends.Counter:
		return op.Prev == "" && op.Span != backends.EveryHit
	}
	return op.Kind == backends.Meter
}

// name is the name under which the cell of key is remembered.
func name(key string) string { return backends.ShortKey(key, longestName-1) }

// recall answers op if its remembered cell has no room for it, else it returns
// the zero Reply. It tries the step on the cell and keeps nothing of it.
func (s *Store) recall(op *backends.Op) backends.Reply {
	if !lasts(op) {
		return backends.Reply{}
	}
	m, ok := s.full.Get(name(op.Key))
	if !ok {
		return backends.Reply{}
	}
	if op.Now >= m.cell.Until {
		s.count.expired.Add(1)
		return backends.Reply{}
	}
	if age := op.Now - m.at; age <= -freshFor || age >= freshFor { // it is negative where the clock went back
		return backends.Reply{}
	}
	look := *op
	look.ChargeDenied = false
	after, r := m.cell.Step(&look, 0)
	if r.Admitted > 0 {
		return backends.Reply{}
	}
	// After a limit was raised or the clock went back, the cell lies beyond
	// what the limit can reach. The store lowers it, and decides anew.
	if after.Value != m.cell.Value || after.Until < m.cell.Until {
		return backends.Reply{}
	}
	r.Recalled = true
	return r
}

// remember keeps op's cell if the reply says that it has no room for op, else
// it forgets the cell: a refund may have made room.
func (s *Store) remember(op *backends.Op, r *backends.Reply) {
	if r.Err != nil || r.Admitted > 0 || !lasts(op) {
		s.full.Remove(name(op.Key))
		return
	}
	until := r.Until
	if op.Kind == backends.Meter {
		until = r.Value.Whole
	}
	s.add(name(op.Key), memory{backends.Cell{Value: r.Value, Until: until}, r.Now})
}
