package memory

import (
	"slices"

	"example.org/rls/pkg/backends"
)

// holds is what is remembered of the reservations of one limit and key. Records are kept in
// two generations (Hold.Generation), so that they end without a search for them.
type holds struct {
	generation   int64 // number of the newer one
	newer, older map[string]backends.Record
	lapsing
}

func (h *holds) len() int64 { return int64(len(h.newer) + len(h.older)) }

// lapsing is what is to come back of open reservations.
type lapsing struct {
	open   backends.Lapsing
	lapsed int64 // what ended until then has come back
}

// turn begins the generation of op's time.
func (h *holds) turn(op *backends.Op) {
	switch generation := op.Hold.Generation(op.Now); {
	case generation == h.generation+1:
		h.newer, h.older = nil, h.newer
		h.generation++
	case generation > h.generation:
		h.newer, h.older, h.generation = nil, nil, generation
	}
}

// find is the record of an ID, zero without one. The clock of an operation that comes late
// may be before the end of a reservation whose hits have come back.
func (h *holds) find(id string) backends.Record {
	rec, ok := h.newer[id]
	if !ok {
		rec = h.older[id]
	}
	if !rec.Settled && rec.Ends <= h.lapsed {
		return backends.Record{}
	}
	return rec
}

// put keeps the record of an ID; a zero one is none.
func (h *holds) put(id string, rec backends.Record) {
	if delete(h.older, id); rec == (backends.Record{}) {
		delete(h.newer, id)
		return
	}
	if h.newer == nil {
		h.newer = map[string]backends.Record{}
	}
	h.newer[id] = rec
}

// stepHold applies op, which has a Hold, and sets *r: it gives back what has lapsed first.
func (s *Store) stepHold(op *backends.Op, p *target, r *backends.Reply) {
	sh := &s.shards[p.holdShard]
	h := new(holds)
	slot, found := sh.table.find(p.hold)
	if found {
		h = sh.holds[slot]
	}
	if op.Verb == backends.Reset && found {
		sh.remove(slot)
		h = new(holds)
	}
	had := h.len()
	h.turn(op)
	s.records.Add(h.len() - had)
	for _, rec := range h.open.Lapse(op.Now) {
		on := rec.Lapsed(op)
		h.lapsed = rec.Ends
		s.shards[p.at].step(&on, p.key, r)
	}
	var rec backends.Record
	on, state := *op, backends.NoHold
	on.Hold = nil
	if op.Hold.ID != "" && !op.Verb.Operates() {
		rec = h.find(op.Hold.ID)
		on, state = rec.Against(op)
	}
	s.shards[p.at].step(&on, p.key, r)
	after, changed := rec.After(op, state, r)
	if changed && rec.Ends == 0 && s.records.Load() >= s.most {
		s.evicted.Add(1)
		changed, state = false, backends.NoHold
	}
	if changed || len(h.open) > 0 { // what is to come back lives as long as its cell
		had = h.len()
		if slot, found = sh.table.find(p.hold); !found { // the cell's step may have evicted it
			slot, had = sh.insert(p.hold, op.Now, op.Now), 0
		}
		sh.holds[slot] = h
		if changed {
			h.put(op.Hold.ID, after)
		}
		s.records.Add(h.len() - had)
		switch {
		case !changed || !op.Hold.GiveBack:
		case state == backends.Held:
			h.open.Add(after, op.Den)
		default:
			h.open.Take(rec, op.Den)
		}
		sh.write(p.hold, slot, true, backends.Cell{Until: max(op.Now+3*op.Hold.Longest, r.Until)}, nil, op.Now)
	}
	rec.Tell(op, state, &on, r)
}

// savedHolds is the part of holds that an operation may change.
type savedHolds struct {
	rec backends.Record
	lapsing
}

func (sh *shard) saveHolds(n name, id string) (s savedHolds) {
	if slot, ok := sh.table.find(n); ok {
		h := sh.holds[slot]
		s = savedHolds{h.find(id), h.lapsing}
		s.open = slices.Clone(h.open)
	}
	return s
}

func (sh *shard) restoreHolds(n name, id string, s savedHolds) {
	if slot, ok := sh.table.find(n); ok {
		h := sh.holds[slot]
		had := h.len()
		h.put(id, s.rec)
		sh.records.Add(h.len() - had)
		h.lapsing = lapsing{slices.Clone(s.open), s.lapsed}
	}
}
