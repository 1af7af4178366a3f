package backendtest

import "example.org/rls/pkg/backends"

// Apart is next, the cells of whose operations live in several places. The suite then wants
// that next applies a batch over several of them as [backends.Store] says.
func Apart(next backends.Store, place func(*backends.Op) string) backends.Store {
	return apart{next, &places{of: place}}
}

// ByCell is Apart for a store each cell of which is a place. It looks at all cells before it
// charges a batch over several of them, and applies operations with a reservation alone.
func ByCell(next backends.Store) backends.Store {
	return apart{next, &places{of: func(op *backends.Op) string { return op.Key }, byCell: true}}
}

type apart struct {
	backends.Store
	places *places
}

// places are where the cells of a store live.
type places struct {
	of     func(*backends.Op) string
	byCell bool // see ByCell
}

// Unwrap is the store whose cells live in several places.
func (s apart) Unwrap() backends.Store { return s.Store }

// alone reports whether op is applied by itself.
func (p *places) alone(op *backends.Op) bool { return p.byCell && op.Identified() }

// isApart reports whether operations of b that are decided together are applied apart.
func (m *Model) isApart(b *backends.Batch) bool {
	for i := 1; m.places != nil && i < len(b.Ops); i++ {
		op, before := &b.Ops[i], &b.Ops[i-1]
		apart := m.places.of(op) != m.places.of(before) || m.places.alone(op) || m.places.alone(before)
		if apart && (b.AllOrNothing || op.Group > 0 && op.Group == before.Group) {
			return true
		}
	}
	return false
}

// applyApart makes the charges of b in each place, after it has looked at them. Then it gives back
// the charges that do not stay, and at last it makes the refunds.
func (m *Model) applyApart(b *backends.Batch) {
	failed := m.lookApart(b)
	charged := m.chargeApart(b, failed)
	b.Decide()
	for i := range b.Ops {
		if charged[i] && !b.Charged(i) {
			op := b.Ops[i].Inverse(b.Replies[i].Until)
			r := m.step(&op)
			r.Account = nil
			b.Settle(i, r)
		}
	}
	for i, op := range b.Ops {
		if op.Verb.GivesBack() {
			if !b.Charged(i) && !op.Identified() {
				op = op.Look()
			}
			b.Settle(i, m.step(&op))
		}
	}
}

// lookApart fills in replies that say whether the charges of b fit; a refund does. It returns for
// each operation whether it is not charged, because it or an operation beside it does not fit.
func (m *Model) lookApart(b *backends.Batch) (failed []bool) {
	for i := range b.Ops {
		op := &b.Ops[i]
		b.Replies[i] = backends.Reply{Admitted: 1}
		if m.places.byCell && (b.AllOrNothing || op.Group > 0) && !op.Verb.GivesBack() {
			b.Replies[i] = m.probe(op, nil)
			if !op.Identified() {
				r := m.probe(op, m.beside(b, i))
				b.Replies[i], r = r, b.Replies[i]
				b.Settle(i, r)
			}
		}
	}
	b.Decide()
	failed = make([]bool, len(b.Ops))
	for i := range failed {
		if failed[i] = !b.Passes(i); failed[i] && b.Replies[i].HoldState() == backends.Held {
			b.Replies[i].Account = nil
		}
	}
	return failed
}

// beside are the operations on the cell of operation i that it has to fit beside.
func (m *Model) beside(b *backends.Batch, i int) (ops []backends.Op) {
	for k := range i {
		if b.FitsBeside(k, i) && !b.Ops[k].Identified() {
			ops = append(ops, b.Ops[k])
		}
	}
	return ops
}

// probe is the reply that op would get after others on its cell, and changes nothing.
func (m *Model) probe(op *backends.Op, after []backends.Op) backends.Reply {
	apart := NewModel()
	apart.Keep(op, m)
	for i := range after {
		apart.step(&after[i])
	}
	c := apart.cells[op.Key]
	if op.Identified() {
		return c.Probe(op, m.records[op.Hold.RecordKey()])
	}
	return c.Probe(op, backends.Record{})
}

// chargeApart makes the charges of b that have not failed, those in one place as a batch, and
// returns which were made. One that has failed reads a cell that others charge. No place
// knows whether a Quota descriptor passes in another one.
func (m *Model) chargeApart(b *backends.Batch, failed []bool) []bool {
	var parts []*backends.Part
	open, charged := map[string]*backends.Part{}, make([]bool, len(b.Ops))
	for i := range b.Ops {
		op, goes := &b.Ops[i], func(k int) bool {
			return b.Ops[k].Key == b.Ops[i].Key && !b.Ops[k].Verb.GivesBack() && (!failed[k] || b.Regardless(k))
		}
		beside := false // another operation changes the cell
		for k := range b.Ops {
			beside = beside || goes(k)
		}
		if op.Verb.GivesBack() || !beside {
			continue
		}
		at, alone := m.places.of(op), m.places.alone(op)
		p := open[at]
		if p == nil || alone {
			p = &backends.Part{Batch: backends.Batch{AllOrNothing: b.AllOrNothing}}
			parts = append(parts, p)
		}
		if open[at] = p; alone {
			open[at] = nil // later operations on the cell come after this one
		}
		charged := goes(i)
		if op = p.Add(b, i); !charged {
			*op = op.Look()
		}
		if op.Role == backends.Quota {
			op.Role = backends.Lenient
		}
		if failed[i] {
			op.Group = 0
		}
	}
	for _, p := range parts {
		m.applyTogether(&p.Batch)
		for i := range p.Ops {
			at := p.At(i)
			if looks := failed[at] && p.Ops[i].By == (backends.Amount{}); !looks {
				charged[at] = p.Charged(i)
			}
			if failed[at] && !p.Ops[i].Identified() {
				b.Settle(at, p.Replies[i])
			} else {
				b.Replies[at] = p.Replies[i]
			}
		}
	}
	return charged
}
