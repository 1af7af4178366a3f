package backendtest

import (
	"context"
	"maps"
	"slices"

	"example.org/rls/pkg/backends"
)

// Model is the definition of a store: the steps of pkg/backends over a map. It
// is not safe for concurrent use and never forgets a cell.
type Model struct {
	cells   map[string]backends.State
	records map[string]backends.Record // by Hold.RecordKey
	places  *places                    // where the cells live; nil: all in one place
}

var _ backends.Store = (*Model)(nil)

// NewModel returns an empty store.
func NewModel() *Model {
	return &Model{cells: map[string]backends.State{}, records: map[string]backends.Record{}}
}

// ModelOf returns an empty store whose cells live apart as the cells of s do ([Apart]).
func ModelOf(s backends.Store) *Model {
	m := NewModel()
	if a, is := s.(apart); is {
		m.places = a.places
	}
	return m
}

// Apply implements backends.Store. It never fails.
func (m *Model) Apply(_ context.Context, b *backends.Batch) error {
	if m.isApart(b) {
		m.applyApart(b)
	} else {
		m.applyTogether(b)
	}
	return nil
}

// applyTogether applies b as one atomic unit.
func (m *Model) applyTogether(b *backends.Batch) {
	before := make([]*Model, len(b.Ops)) // of each operation
	apply := func(_ int, op *backends.Op) backends.Reply { return m.step(op) }
	b.ApplyTogether(func(i int) backends.Reply {
		before[i] = NewModel()
		before[i].Keep(&b.Ops[i], m)
		return m.step(&b.Ops[i])
	}, func(first, end int) {
		for i := end - 1; i >= first; i-- {
			m.Keep(&b.Ops[i], before[i])
		}
	}, apply)
}

func (m *Model) step(op *backends.Op) (r backends.Reply) {
	c := m.cells[op.Key]
	switch {
	case op.Hold == nil:
		r = c.Step(op)
	case !op.Identified():
		_, r = c.StepHold(op, backends.Record{})
	default:
		key := op.Hold.RecordKey()
		m.records[key], r = c.StepHold(op, m.records[key])
	}
	m.cells[op.Key] = c
	return r
}

// Forget drops the cell of op, a counter or a meter, and the reservation beside it, that have
// ended by op.Now.
func (m *Model) Forget(op *backends.Op) {
	if op.Identified() && m.records[op.Hold.RecordKey()].Ends <= op.Now {
		delete(m.records, op.Hold.RecordKey())
	}
	if c := m.cells[op.Key]; op.Kind != backends.List && c.Until <= op.Now {
		if c.Cell = (backends.Cell{}); m.lapsed(op.Key, op.Now) {
			c.Open = backends.Lapsing{}
		}
		m.cells[op.Key] = c
	}
}

// Keep gives op's cell and its reservation the state that they have in other.
func (m *Model) Keep(op *backends.Op, other *Model) {
	c := other.cells[op.Key]
	c = c.Clone()
	m.cells[op.Key] = c
	if op.Identified() {
		m.records[op.Hold.RecordKey()] = other.records[op.Hold.RecordKey()]
	}
}

// Drop forgets the cell at key, as a store does whose key has expired.
func (m *Model) Drop(key string) { delete(m.cells, key) }

// Clone returns a copy that shares nothing with m.
func (m *Model) Clone() *Model {
	c := &Model{maps.Clone(m.cells), maps.Clone(m.records), m.places}
	for key := range c.cells {
		c.Keep(&backends.Op{Limit: &backends.Limit{}, Key: key}, m)
	}
	return c
}

// Equal reports whether both models hold the same cells and reservations. A cell that was
// never charged equals an absent one.
func (m *Model) Equal(other *Model) bool { return m.within(other) && other.within(m) }

func (m *Model) within(other *Model) bool {
	for key, c := range m.cells {
		o := other.cells[key]
		if len(c.Log) == 0 && c.Cell != o.Cell || !slices.Equal(c.Log, o.Log) ||
			c.Open.Number != o.Open.Number || !slices.Equal(c.Open.Held, o.Open.Held) {
			return false
		}
	}
	for key, rec := range m.records {
		if rec != other.records[key] {
			return false
		}
	}
	return true
}

// ended reports whether the counter or meter at key is over by now, or lapsed.
func (m *Model) ended(key string, now int64) bool {
	return m.cells[key].Until <= now || m.lapsed(key, now)
}

// lapsed reports whether the reservations of the cell at key are over by now.
func (m *Model) lapsed(key string, now int64) bool {
	open := m.cells[key].Open
	return open.Number != 0 && open.Until() <= now
}

// Now is not a clock: operations carry their own time.
func (m *Model) Now() int64 { return 0 }

// Ping always succeeds.
func (m *Model) Ping(context.Context) error { return nil }

// Close does nothing.
func (m *Model) Close() error { return nil }
