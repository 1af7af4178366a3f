package backendtest

import (
	"context"
	"maps"
	"slices"

	"example.org/rls/pkg/backends"
)

// Model is the definition of a store: the steps of pkg/backends over maps. It
// is not safe for concurrent use and never forgets a cell.
type Model struct {
	cells map[string]backends.Cell
	logs  map[string]backends.Log
}

var _ backends.Store = (*Model)(nil)

// NewModel returns an empty store.
func NewModel() *Model {
	return &Model{map[string]backends.Cell{}, map[string]backends.Log{}}
}

// Apply implements backends.Store. It never fails.
func (m *Model) Apply(_ context.Context, b *backends.Batch) error {
	var before *Model
	if b.Together() {
		before = m.copyOf(b)
	}
	for i := range b.Ops {
		b.Replies[i] = m.step(&b.Ops[i])
	}
	if b.Decide() {
		return nil
	}
	m.restore(b, before)
	for i := range b.Ops {
		op := b.Settled(i)
		b.Settle(i, m.step(&op))
	}
	return nil
}

func (m *Model) step(op *backends.Op) backends.Reply {
	if op.Kind == backends.List {
		log, r := m.logs[op.Key].Step(op)
		m.logs[op.Key] = log
		return r
	}
	if op.Verb == backends.Reset {
		delete(m.cells, op.Prev)
	}
	var prev int64
	if c := m.cells[op.Prev]; op.Prev != "" && op.Now < c.Until {
		prev = c.Value.Whole
	}
	c, r := m.cells[op.Key].Step(op, prev)
	m.cells[op.Key] = c
	return r
}

// Forget drops the cell of op, a counter or a meter, if it has ended by op.Now.
func (m *Model) Forget(op *backends.Op) {
	if m.ended(op.Key, op.Now) {
		delete(m.cells, op.Key)
	}
}

// Keep gives op's cell the state that it has in other.
func (m *Model) Keep(op *backends.Op, other *Model) {
	m.cells[op.Key], m.logs[op.Key] = other.cells[op.Key], slices.Clone(other.logs[op.Key])
}

// Drop forgets the cell at key, as a store does whose key has expired.
func (m *Model) Drop(key string) {
	delete(m.cells, key)
	delete(m.logs, key)
}

// Clone returns a copy that shares nothing with m.
func (m *Model) Clone() *Model {
	c := &Model{maps.Clone(m.cells), maps.Clone(m.logs)}
	for key, log := range c.logs {
		c.logs[key] = slices.Clone(log)
	}
	return c
}

// Equal reports whether both models hold the same cells. A cell that was never
// charged equals an absent one.
func (m *Model) Equal(other *Model) bool { return m.within(other) && other.within(m) }

func (m *Model) within(other *Model) bool {
	for key, c := range m.cells {
		if c != other.cells[key] {
			return false
		}
	}
	for key, log := range m.logs {
		if !slices.Equal(log, other.logs[key]) {
			return false
		}
	}
	return true
}

// copyOf holds the cells of b's operations as they are.
func (m *Model) copyOf(b *backends.Batch) *Model {
	before := NewModel()
	for i := range b.Ops {
		key := b.Ops[i].Key
		before.cells[key], before.logs[key] = m.cells[key], slices.Clone(m.logs[key])
	}
	return before
}

func (m *Model) restore(b *backends.Batch, before *Model) {
	for i := range b.Ops {
		key := b.Ops[i].Key
		m.cells[key], m.logs[key] = before.cells[key], slices.Clone(before.logs[key])
	}
}

// ended reports whether the counter or meter at key is over by now.
func (m *Model) ended(key string, now int64) bool { return m.cells[key].Until <= now }

// Now is not a clock: operations carry their own time.
func (m *Model) Now() int64 { return 0 }

// Ping always succeeds.
func (m *Model) Ping(context.Context) error { return nil }

// Close does nothing.
func (m *Model) Close() error { return nil }
