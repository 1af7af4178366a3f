package memory

import "example.org/rls/pkg/backends"

// open is the open reservations of a cell, and the end of the cell itself, which is kept longer
// for them.
type open struct {
	backends.Lapsing
	until int64
}

// A record lies in the table as a cell whose value is Record.By, whose end is Record.Ends and whose
// Prev is Record.At. held is what else an open one has; a settled one has none.
type held struct{ mark, number int64 }

// record is the record at a key, zero without one.
func (sh *shard) record(n name) backends.Record {
	slot, ok := sh.table.find(n)
	if !ok {
		return backends.Record{}
	}
	e := sh.table.at(slot)
	h, isOpen := sh.held[slot]
	if !isOpen {
		return backends.Record{Ends: e.until, Settled: true}
	}
	by := backends.Amount{Whole: e.whole, Frac: int64(e.frac)}
	return backends.Record{By: by, Mark: h.mark, At: sh.prevs[slot], Number: h.number, Ends: e.until}
}

// keep leaves rec at a key; a zero one is none.
func (sh *shard) keep(n name, rec backends.Record, now int64) {
	slot, ok := sh.table.find(n)
	slot, ok = sh.write(n, slot, ok, &backends.State{Cell: backends.Cell{Value: rec.By, Prev: rec.At, Until: rec.Ends}}, now)
	switch {
	case !ok:
	case rec.Settled:
		delete(sh.held, slot)
	default:
		sh.held[slot] = held{rec.Mark, rec.Number}
	}
}

// stepHold applies op, which has a Hold, and sets *r.
func (s *Store) stepHold(op *backends.Op, p *target, r *backends.Reply) {
	sh, records := &s.shards[p.at], &s.shards[p.recordAt]
	var rec backends.Record
	if op.Identified() {
		rec = records.record(p.record)
	}
	var state backends.State
	slot, ok := sh.load(p.key, op.Kind, &state)
	after, reply := state.StepHold(op, rec)
	if *r = reply; !op.ReadOnly() {
		sh.stepped(p.key, slot, ok, &state, op.Now)
	}
	if after != rec {
		records.keep(p.record, after, op.Now)
	}
}
