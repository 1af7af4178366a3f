// Package denycache answers from memory for cells that are known to be full.
//
// A cell only fills until it ends, so what denied a moment ago denies now, and
// asking the store again would tell nothing new. What is remembered is the
// cell and not the denial: an operation whose limit has been raised is decided
// anew. A refund through this process makes it forget the cell; one through
// another process is noticed within a second, when the store is asked again.
//
// What is answered here is not charged: a fixed window that counts denied hits
// counts fewer of them. Sliding windows and logs empty by the moment and pass
// through, as do all-or-nothing batches of several operations.
package denycache

import (
	"context"
	"crypto/sha256"
	"fmt"

	lru "github.com/hashicorp/golang-lru/v2"

	"example.org/rls/pkg/backends"
)

const (
	// cellBytes is the most that a remembered cell takes: its name and some 170
	// bytes.
	cellBytes = 256
	// longestName bounds a name: keys that are not shorter go by their hash, so
	// that what callers send does not decide how much memory the cache takes.
	longestName = 64
	// freshFor is how long a cell is believed, in µs: the longest time for
	// which a refund elsewhere may go unnoticed.
	freshFor = 1_000_000
)

// Store is another store whose full cells are remembered.
type Store struct {
	backends.Store
	full  *lru.Cache[string, memory]
	count counters
}

// memory is a cell as the store last had it.
type memory struct {
	cell  backends.Cell
	until int64 // when to ask again, µs
}

// New remembers full cells of next in about size bytes, those that were asked
// for last.
func New(next backends.Store, size int) (*Store, error) {
	full, err := lru.New[string, memory](max(1, size/cellBytes))
	if err != nil {
		return nil, fmt.Errorf("denycache: %w", err)
	}
	return &Store{Store: next, full: full}, nil
}

// Apply applies b, or what of it has to be asked.
func (s *Store) Apply(ctx context.Context, b *backends.Batch) error {
	if b.Together() {
		defer s.forget(b)
		return s.Store.Apply(ctx, b)
	}
	known := 0
	for i := range b.Ops {
		if b.Replies[i] = s.recall(&b.Ops[i]); b.Replies[i].Recalled {
			known++
		}
	}
	s.count.hits.Add(uint64(known))
	s.count.misses.Add(uint64(len(b.Ops) - known))
	b.Refused = false
	switch {
	case known == 0:
		if err := s.Store.Apply(ctx, b); err != nil {
			return err
		}
	case known < len(b.Ops):
		if err := s.applyRest(ctx, b); err != nil {
			return err
		}
	default:
		b.Decide()
	}
	for i := range b.Ops {
		if !b.Replies[i].Recalled {
			s.remember(&b.Ops[i], &b.Replies[i])
		}
	}
	return nil
}

// applyRest asks the store for the operations that nothing is known about.
func (s *Store) applyRest(ctx context.Context, b *backends.Batch) error {
	var rest backends.Batch
	for i := range b.Ops {
		if !b.Replies[i].Recalled {
			rest.Ops = append(rest.Ops, b.Ops[i])
		}
	}
	rest.Replies = make([]backends.Reply, len(rest.Ops))
	if err := s.Store.Apply(ctx, &rest); err != nil {
		return err
	}
	next := 0
	for i := range b.Ops {
		if !b.Replies[i].Recalled {
			b.Ops[i], b.Replies[i] = rest.Ops[next], rest.Replies[next]
			next++
		}
	}
	return nil
}

// stays reports whether a cell of op that is full stays so until it ends.
func stays(op *backends.Op) bool {
	return op.Kind == backends.Meter || op.Kind == backends.Counter && op.Prev == "" && op.Span != backends.EveryHit
}

// over reports whether a reply to op is a denial, whatever comes.
func over(op *backends.Op, r *backends.Reply) bool {
	return op.Max != backends.NoMax && r.Admitted == 0
}

// name is key, or a hash of it in a length that no short key has.
func name(key string) string {
	if len(key) < longestName {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return key[:longestName-len(sum)] + string(sum[:])
}

// recall answers op if its cell is known to be full. The step is tried on the
// remembered cell and not kept.
func (s *Store) recall(op *backends.Op) backends.Reply {
	if op.Refund || op.By == (backends.Amount{}) || !stays(op) {
		return backends.Reply{}
	}
	m, ok := s.full.Get(name(op.Key))
	if ok && op.Now >= m.cell.Until {
		s.count.expired.Add(1)
	}
	if !ok || op.Now >= m.until || op.Now >= m.cell.Until {
		return backends.Reply{}
	}
	look := *op
	look.ChargeDenied = false
	if op.Max == backends.NoMax {
		look = op.Look()
	}
	after, r := m.cell.Step(&look, 0)
	lowered := after.Value != m.cell.Value || op.Kind == backends.Counter && after.Until != m.cell.Until
	if !over(op, &r) || lowered { // the store has to lower its cell, too
		return backends.Reply{}
	}
	if op.Max == backends.NoMax {
		r.Admitted = op.Times
	}
	r.Recalled = true
	return r
}

// remember keeps the cell of op if the reply says that it is full, and else
// what may have been known of it no longer.
func (s *Store) remember(op *backends.Op, r *backends.Reply) {
	if op.Refund || !stays(op) || !over(op, r) {
		s.full.Remove(name(op.Key))
		return
	}
	until := r.Until
	if op.Kind == backends.Meter {
		until = r.Value.Whole
	}
	s.add(name(op.Key), memory{backends.Cell{Value: r.Value, Until: until}, op.Now + freshFor})
}

func (s *Store) forget(b *backends.Batch) {
	for i := range b.Ops {
		s.full.Remove(name(b.Ops[i].Key))
	}
}
