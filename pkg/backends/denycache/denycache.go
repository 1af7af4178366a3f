// Package denycache denies operations on full cells from memory, without a call
// to the store.
//
// A counter or meter that has no room for an operation has no room until it ends.
// So for up to a second after a denial the cache answers for its cell. The cache keeps
// cells, not denials: it tries each operation on the remembered cell, so the
// store decides when a limit was raised or a cost is smaller. A refund, a reset or
// a grant through this process removes the cell; one through another process takes
// effect when the second is over. So a denied key costs the store about one operation
// a second.
//
// A denial from memory charges nothing: a fixed window that counts denied hits
// counts fewer of them. The store always decides operations on sliding windows
// and logs, whose room grows as time passes, on windows that each hit extends,
// and operations that are decided together: a group, and an all-or-nothing
// batch. (A full cell in memory would be enough to refuse a group or batch, but
// the replies have to say how full its other cells are.)
package denycache

import (
	"context"
	"fmt"
	"sync/atomic"

	lru "github.com/hashicorp/golang-lru/v2"

	"example.org/rls/pkg/backends"
)

const (
	// cellBytes is the most that a remembered cell takes: its name and some 170
	// bytes.
	cellBytes = 256
	// longestName bounds a name in bytes. Longer keys are named by their hash,
	// so that long values of callers do not take more memory.
	longestName = 64
	// freshFor is how long a remembered cell is used, in µs. A refund, a reset or a
	// grant through another process has no effect here for at most this long.
	// It is less than a second, so that a call to the store fits into that second, too.
	freshFor = 900_000
)

// Store is another store with a memory of full cells.
type Store struct {
	backends.Store
	full  *lru.Cache[string, memory]
	count counters
	// steered counts resets and grants. A reply to an operation that was under way
	// meanwhile is not remembered: it may tell of the cell before.
	steered atomic.Uint64
}

var _ backends.Store = (*Store)(nil)

// memory is a cell as the store last reported it.
type memory struct {
	cell backends.Cell
	at   int64 // when, µs on the store's clock
}

// New returns a store that remembers cells of next in about size bytes. When the
// bytes are used up, it forgets the cell whose last look-up is the oldest.
func New(next backends.Store, size int) (*Store, error) {
	full, err := lru.New[string, memory](max(1, size/cellBytes))
	if err != nil {
		return nil, fmt.Errorf("denycache: %w", err)
	}
	return &Store{Store: next, full: full}, nil
}

// Unwrap is the decorated store; see backends.ScannerOf.
func (s *Store) Unwrap() backends.Store { return s.Store }

// Apply implements backends.Store. Replies from memory have Recalled set.
func (s *Store) Apply(ctx context.Context, b *backends.Batch) error {
	if b.AllOrNothing && len(b.Ops) > 1 {
		err := s.Store.Apply(ctx, b)
		for i := range b.Ops {
			s.full.Remove(name(b.Ops[i].Key))
		}
		return err
	}
	known, steered := 0, s.steered.Load()
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
		err = b.ApplyRest(ctx, s.Store, func(r *backends.Reply) bool { return r.Recalled })
	}
	for i := range b.Ops {
		if !b.Replies[i].Recalled {
			s.remember(&b.Ops[i], &b.Replies[i], steered)
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

// lasts reports whether op's cell, once it has no room for op, has no room for it
// until the cell ends, refunds aside, and whether op is decided by that cell alone.
func lasts(op *backends.Op) bool {
	switch {
	case op.Verb != backends.Charge || op.Refund || op.Group > 0 || op.By == (backends.Amount{}):
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
	fresh := int64(freshFor)
	if op.Lease != nil { // hits come back within a ttl
		fresh = min(fresh, op.Lease.TTL)
	}
	if age := op.Now - m.at; age <= -fresh || age >= fresh { // negative if the clock went back
		return backends.Reply{}
	}
	look := *op
	look.ChargeDenied = false
	after, r := m.cell.Step(&look, 0)
	if r.Admitted > 0 {
		return backends.Reply{}
	}
	// After a limit was raised or the clock went back, the cell may have a value
	// that the limit cannot reach. The store lowers the cell and decides.
	if after.Value != m.cell.Value || after.Until < m.cell.Until {
		return backends.Reply{}
	}
	r.Recalled = true
	return r
}

// remember keeps op's cell if the reply says that the cell has no room for op.
// Otherwise it forgets the cell: a refund may have made room. steered is the count of
// resets and grants when op went to the store.
func (s *Store) remember(op *backends.Op, r *backends.Reply, steered uint64) {
	if r.Err != nil || r.Admitted > 0 || !lasts(op) {
		if op.Verb != backends.Charge {
			s.steered.Add(1)
		}
		s.full.Remove(name(op.Key))
		return
	}
	until := r.Until
	if op.Kind == backends.Meter {
		until = r.Value.Whole
	}
	s.add(name(op.Key), memory{backends.Cell{Value: r.Value, Until: until}, r.Now})
	if s.steered.Load() != steered {
		s.full.Remove(name(op.Key))
	}
}
