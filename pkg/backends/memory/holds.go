package memory

import (
	"slices"

	"example.org/rls/pkg/backends"
)

// holds is what is remembered of the reservations of one limit and key. Records are kept in
// two generations of Hold.Longest each, so that they end without a search for them.
type holds struct {
	generation   int64 // number of the newer one
	newer, older map[string]backends.Record
	lapsing      []backends.Record // open ones whose hits come back, in the order of Ends
}

// turn begins the generation of op's time.
func (h *holds) turn(op *backends.Op) {
	switch generation := op.Now / op.Hold.Longest; {
	case generation == h.generation+1:
		h.newer, h.older = nil, h.newer
		h.generation++
	case generation > h.generation:
		h.newer, h.older, h.generation = nil, nil, generation
	}
}

// find is the record of an ID, zero without one.
func (h *holds) find(id string) backends.Record {
	if rec, ok := h.newer[id]; ok {
		return rec
	}
	return h.older[id]
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

// reserve and release keep the order of lapsing.

func (h *holds) reserve(rec backends.Record) {
	i, _ := slices.BinarySearchFunc(h.lapsing, rec.Ends+1, func(r backends.Record, ends int64) int { return int(r.Ends - ends) })
	h.lapsing = slices.Insert(h.lapsing, i, rec)
}

func (h *holds) release(rec backends.Record) {
	if i := slices.Index(h.lapsing, rec); i >= 0 {
		h.lapsing = slices.Delete(h.lapsing, i, i+1)
	}
}

// stepHold applies op, which has a Hold: it gives back what has lapsed first.
func (s *Store) stepHold(op *backends.Op, p target) backends.Reply {
	sh := &s.shards[p.holdShard]
	h := new(holds)
	slot, found := sh.table.find(p.hold)
	if found {
		h = sh.holds[slot]
	}
	if op.Verb == backends.Reset && found {
		sh.remove(slot)
		found, h = false, new(holds)
	}
	h.turn(op)
	for len(h.lapsing) > 0 && h.lapsing[0].Ends <= op.Now {
		on := h.lapsing[0].Lapsed(op)
		h.lapsing = h.lapsing[1:]
		s.stepCell(&on, p)
	}
	if op.Hold.ID == "" || op.Verb != backends.Charge {
		on := *op
		on.Hold = nil
		return s.stepCell(&on, p)
	}
	rec := h.find(op.Hold.ID)
	on, state := rec.Against(op)
	r := s.stepCell(&on, p)
	if after, ok := rec.After(op, state, &r); ok {
		if h.put(op.Hold.ID, after); op.Hold.GiveBack && state == backends.Held {
			h.reserve(after)
		} else if op.Hold.GiveBack {
			h.release(rec)
		}
		if slot, found = sh.table.find(p.hold); !found { // the cell's step may have evicted it
			slot = sh.insert(p.hold, op.Now, op.Now)
		}
		sh.holds[slot] = h
		sh.write(p.hold, slot, true, backends.Cell{Until: op.Now + 3*op.Hold.Longest}, nil, op.Now)
	}
	rec.Tell(op, state, &on, &r)
	return r
}

// savedHolds is the part of holds that an operation may change.
type savedHolds struct {
	rec     backends.Record
	lapsing []backends.Record
}

func (sh *shard) saveHolds(n name, id string) (s savedHolds) {
	if slot, ok := sh.table.find(n); ok {
		h := sh.holds[slot]
		s = savedHolds{h.find(id), slices.Clone(h.lapsing)}
	}
	return s
}

func (sh *shard) restoreHolds(n name, id string, s savedHolds) {
	if slot, ok := sh.table.find(n); ok {
		h := sh.holds[slot]
		h.put(id, s.rec)
		h.lapsing = s.lapsing
	}
}
