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
	records map[string]map[string]backends.Record // by Hold.Key and Hold.ID
	place   func(*backends.Op) int                // where the cells of an operation live; nil: all in one place
}

var _ backends.Store = (*Model)(nil)

// NewModel returns an empty store.
func NewModel() *Model {
	return &Model{cells: map[string]backends.State{}, records: map[string]map[string]backends.Record{}}
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

func (m *Model) step(op *backends.Op) backends.Reply {
	c := m.cells[op.Key]
	r := m.stepHold(&c, op)
	m.cells[op.Key] = c
	return r
}

// stepHold applies op to the cell c, after what has lapsed of the reservations.
func (m *Model) stepHold(c *backends.State, op *backends.Op) backends.Reply {
	h := op.Hold
	if h == nil {
		return c.Step(op)
	}
	if op.Verb == backends.Reset {
		delete(m.records, h.Key)
	}
	records := m.records[h.Key]
	var open backends.Lapsing
	for id, rec := range records {
		if rec.Ends <= op.Now && h.GiveBack && !rec.Settled {
			delete(records, id)
			open.Add(rec, op.Den)
		}
	}
	for _, rec := range open {
		on := rec.Lapsed(op)
		c.Step(&on)
	}
	if h.ID == "" || op.Verb.Operates() {
		on := *op
		on.Hold = nil
		return c.Step(&on)
	}
	after, r := c.StepHold(op, records[h.ID])
	if records == nil {
		records = map[string]backends.Record{}
		m.records[h.Key] = records
	}
	records[h.ID] = after
	if after == (backends.Record{}) {
		delete(records, h.ID)
	}
	return r
}

// Forget drops the cell of op, a counter or a meter, and the reservations beside it, that have
// ended by op.Now.
func (m *Model) Forget(op *backends.Op) {
	if op.Hold != nil {
		maps.DeleteFunc(m.records[op.Hold.Key], func(_ string, rec backends.Record) bool { return rec.Ends <= op.Now })
	}
	if op.Kind != backends.List && m.ended(op.Key, op.Now) {
		m.Drop(op.Key)
	}
}

// Keep gives op's cell the state that it has in other.
func (m *Model) Keep(op *backends.Op, other *Model) {
	c := other.cells[op.Key]
	m.cells[op.Key] = backends.State{Cell: c.Cell, Log: slices.Clone(c.Log)}
	if op.Hold != nil {
		m.records[op.Hold.Key] = maps.Clone(other.records[op.Hold.Key])
	}
}

// Drop forgets the cell at key, as a store does whose key has expired.
func (m *Model) Drop(key string) { delete(m.cells, key) }

// Clone returns a copy that shares nothing with m.
func (m *Model) Clone() *Model {
	c := &Model{maps.Clone(m.cells), maps.Clone(m.records), m.place}
	for key := range c.cells {
		c.Keep(&backends.Op{Limit: &backends.Limit{}, Key: key}, m)
	}
	for key := range c.records {
		c.records[key] = maps.Clone(m.records[key])
	}
	return c
}

// Equal reports whether both models hold the same cells and reservations. A cell that was
// never charged equals an absent one.
func (m *Model) Equal(other *Model) bool { return m.within(other) && other.within(m) }

func (m *Model) within(other *Model) bool {
	for key, c := range m.cells {
		if o := other.cells[key]; len(c.Log) == 0 && c.Cell != o.Cell || !slices.Equal(c.Log, o.Log) {
			return false
		}
	}
	for key, records := range m.records {
		if !maps.Equal(records, other.records[key]) {
			return false
		}
	}
	return true
}

// ended reports whether the counter or meter at key is over by now.
func (m *Model) ended(key string, now int64) bool { return m.cells[key].Until <= now }

// Now is not a clock: operations carry their own time.
func (m *Model) Now() int64 { return 0 }

// Ping always succeeds.
func (m *Model) Ping(context.Context) error { return nil }

// Close does nothing.
func (m *Model) Close() error { return nil }
