package backendtest

import "example.org/rls/pkg/backends"

// Apart is next, the cells of whose operations live in several places. The suite then wants
// that next applies a batch over several of them as [backends.Store] says.
func Apart(next backends.Store, place func(*backends.Op) int) backends.Store {
	return apart{next, place}
}

type apart struct {
	backends.Store
	place func(*backends.Op) int
}

// Unwrap is the store whose cells live in several places.
func (s apart) Unwrap() backends.Store { return s.Store }

// placeOf is where the cells of s live, or nil if that is one place.
func placeOf(s backends.Store) func(*backends.Op) int {
	if a, is := s.(apart); is {
		return a.place
	}
	return nil
}

// isApart reports whether operations of b that are decided together have cells in several places.
func (m *Model) isApart(b *backends.Batch) bool {
	for i := 1; m.place != nil && i < len(b.Ops); i++ {
		op, before := &b.Ops[i], &b.Ops[i-1]
		if m.place(op) != m.place(before) && (b.AllOrNothing || op.Group > 0 && op.Group == before.Group) {
			return true
		}
	}
	return false
}

// applyApart makes the charges of b in each place. Then it gives back the charges that do not
// stay, and at last it makes the refunds.
func (m *Model) applyApart(b *backends.Batch) {
	charged := m.chargeApart(b)
	b.Decide()
	for i := range b.Ops {
		if back := charged[i] - b.Charges(i); back > 0 {
			op := b.Ops[i].Inverse(b.Replies[i].Until)
			op.Times = back
			r := m.step(&op)
			r.Account = nil
			b.Settle(i, r)
		}
	}
	for i, op := range b.Ops {
		if op.Verb.GivesBack() {
			if b.Charges(i) == 0 && !op.Identified() {
				op = op.Look()
			}
			b.Settle(i, m.step(&op))
		}
	}
}

// chargeApart makes the charges of b, those in one place as a batch, and returns how often each
// was made. A refund fits, and no place knows whether a Quota descriptor passes in another one.
func (m *Model) chargeApart(b *backends.Batch) []int64 {
	places, charged := map[int]*backends.Part{}, make([]int64, len(b.Ops))
	for i := range b.Ops {
		if b.Replies[i] = (backends.Reply{Admitted: b.Ops[i].Times}); b.Ops[i].Verb.GivesBack() {
			continue
		}
		at := m.place(&b.Ops[i])
		if places[at] == nil {
			places[at] = &backends.Part{Batch: backends.Batch{AllOrNothing: b.AllOrNothing}}
		}
		if op := places[at].Add(b, i); op.Role == backends.Quota {
			op.Role = backends.Lenient
		}
	}
	for _, p := range places {
		m.applyTogether(&p.Batch)
		p.Answer(b)
		for i := range p.Ops {
			charged[p.At(i)] = p.Charges(i)
		}
	}
	return charged
}
