package memory

import (
	"sync"
	"sync/atomic"

	"example.org/rls/pkg/backends"
)

// maxKeys bounds the cells: 32-bit slots number them, and each shard's part
// is rounded up.
const maxKeys = 1 << 30

// A shard is a table of cells and a heap of them by the time at which they end.
// An element of the heap holds that time or an earlier one: a cell whose end
// moves on is put right only when it comes to the top.
type shard struct {
	mu      sync.Mutex
	max     int
	table   table
	logs    map[uint32]backends.Log // by the slot of a List's cell
	prevs   map[uint32]int64        // Cell.Prev above 0, by slot
	bases   map[uint32]int64        // Cell.Base above 0, by slot
	opens   map[uint32]open         // by the slot of a cell with open reservations
	held    map[uint32]held         // by the slot of an open reservation
	heap    []expiry
	evicted *atomic.Uint64
}

type expiry struct {
	until int64
	slot  uint32
}

// open is the open reservations of a cell, and the end of the cell itself, which is kept longer
// for them.
type open struct {
	backends.Lapsing
	until int64
}

// A record lies in the table as a cell whose value is Record.By, whose end is Record.Ends and whose
// Prev is Record.At. held is what else an open one has; a settled one has none.
type held struct{ mark, number int64 }

// name is a key with its hash.
type name struct {
	key  string
	hash uint64
}

func (n name) low() uint32 { return uint32(n.hash) }

// clear forgets every cell.
func (sh *shard) clear() {
	sh.table, sh.heap = table{hash: sh.table.hash}, nil
	sh.logs, sh.prevs, sh.bases = map[uint32]backends.Log{}, map[uint32]int64{}, map[uint32]int64{}
	sh.opens, sh.held = map[uint32]open{}, map[uint32]held{}
}

// load sets *s, which is the zero State, to the cell at a key as a step of that kind takes it.
// It returns the slot of the cell, if there is one.
func (sh *shard) load(n name, kind backends.Kind, s *backends.State) (slot uint32, ok bool) {
	if slot, ok = sh.table.find(n); ok {
		sh.read(slot, kind, s)
	}
	return slot, ok
}

// read sets *s, which is the zero State, to the cell in a slot as a step of that kind takes it.
func (sh *shard) read(slot uint32, kind backends.Kind, s *backends.State) {
	e := sh.table.at(slot)
	s.Value.Whole, s.Until = e.whole, e.until
	switch kind {
	case backends.List:
		s.Log = sh.logs[slot]
	case backends.Meter:
		s.Value.Frac = int64(e.frac)
	default:
		if s.Window = int64(e.frac); s.Window > 0 {
			s.Prev, s.Base = sh.prevs[slot], sh.bases[slot]
		}
	}
	if o, isOpen := sh.opens[slot]; isOpen {
		s.Open, s.Until = o.Lapsing, o.until
	}
}

// step applies op to its cell, and sets *r.
func (sh *shard) step(op *backends.Op, n name, r *backends.Reply) {
	var s backends.State
	slot, ok := sh.load(n, op.Kind, &s)
	if op.Kind == backends.List || op.Verb == backends.Reset {
		*r = s.Step(op)
	} else { // spares a copy of the reply
		s.Cell, *r = s.Cell.Step(op)
	}
	if !op.ReadOnly() {
		sh.stepped(n, slot, ok, &s, op.Now)
	}
}

// stepped leaves s at a key after a step, unless it has ended.
func (sh *shard) stepped(n name, slot uint32, ok bool, s *backends.State, now int64) {
	if s.Ends() <= now {
		*s = backends.State{}
	}
	sh.write(n, slot, ok, s, now)
}

// write leaves s at a key, and returns its slot; slot has the key's cell if ok. It removes the cell
// if s is the zero State.
func (sh *shard) write(n name, slot uint32, ok bool, s *backends.State, now int64) (uint32, bool) {
	until := s.Ends()
	if until == 0 {
		if ok {
			sh.remove(slot)
		}
		return 0, false
	}
	if !ok {
		slot = sh.insert(n, until, now)
	}
	if len(s.Log) > 0 {
		sh.logs[slot] = s.Log
	} else {
		delete(sh.logs, slot)
	}
	e := sh.table.at(slot)
	e.whole, e.frac = s.Value.Whole, uint32(s.Value.Frac+s.Window)
	if s.Prev > 0 {
		sh.prevs[slot] = s.Prev
	} else if s.Window > 0 {
		delete(sh.prevs, slot)
	}
	if s.Base > 0 {
		sh.bases[slot] = s.Base
	} else if s.Window > 0 {
		delete(sh.bases, slot)
	}
	if s.Open.Number != 0 {
		sh.opens[slot] = open{s.Open, s.Until}
	} else {
		delete(sh.opens, slot)
	}
	// After a later end the heap's element is put right when it comes to the top.
	if p := int(e.expiry); until < e.until && until < sh.heap[p].until {
		sh.heap[p].until = until
		sh.up(p)
	}
	e.until = until
	return slot, true
}

// insert makes a cell for a key, and room for it.
func (sh *shard) insert(n name, until, now int64) uint32 {
	sh.makeRoom(now)
	slot := sh.table.add(n)
	e := sh.table.at(slot)
	e.until, e.expiry = until, uint32(len(sh.heap))
	sh.heap = append(sh.heap, expiry{until, slot})
	sh.up(len(sh.heap) - 1)
	return slot
}

// makeRoom removes up to two cells that have ended, so that each new cell
// removes more than it adds, and if the shard is full the cell that ends soonest.
func (sh *shard) makeRoom(now int64) {
	for range 2 {
		slot, until, ok := sh.soonest()
		full := sh.table.len >= sh.max
		if !ok || until > now && !full {
			return
		}
		if until > now {
			sh.evicted.Add(1)
		}
		sh.remove(slot)
	}
}

// soonest is the cell that ends first.
func (sh *shard) soonest() (slot uint32, until int64, ok bool) {
	for len(sh.heap) > 0 {
		top := sh.heap[0]
		until := sh.table.at(top.slot).until
		if until == top.until {
			return top.slot, until, true
		}
		sh.heap[0].until = until
		sh.down(0)
	}
	return 0, 0, false
}

func (sh *shard) remove(slot uint32) {
	at, last := int(sh.table.at(slot).expiry), len(sh.heap)-1
	moved := sh.heap[last]
	if sh.heap = sh.heap[:last]; at < last {
		sh.put(at, moved)
		sh.up(sh.down(at))
	}
	sh.table.remove(slot)
	delete(sh.logs, slot)
	delete(sh.prevs, slot)
	delete(sh.bases, slot)
	delete(sh.opens, slot)
	delete(sh.held, slot)
}

func (sh *shard) put(i int, x expiry) {
	sh.heap[i] = x
	sh.table.at(x.slot).expiry = uint32(i)
}

func (sh *shard) up(i int) {
	x := sh.heap[i]
	for i > 0 {
		parent := (i - 1) / 2
		if sh.heap[parent].until <= x.until {
			break
		}
		sh.put(i, sh.heap[parent])
		i = parent
	}
	sh.put(i, x)
}

func (sh *shard) down(i int) int {
	x := sh.heap[i]
	for {
		child := 2*i + 1
		if child >= len(sh.heap) {
			break
		}
		if r := child + 1; r < len(sh.heap) && sh.heap[r].until < sh.heap[child].until {
			child = r
		}
		if x.until <= sh.heap[child].until {
			break
		}
		sh.put(i, sh.heap[child])
		i = child
	}
	sh.put(i, x)
	return i
}

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

// keep writes rec at a key. The zero Record removes the record that is there.
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

// saved is a cell and a record as they were before a batch; zero if there was none.
type saved struct {
	backends.State
	rec backends.Record // of an operation with an ID
}

func (sh *shard) save(n name, kind backends.Kind) (s saved) {
	sh.load(n, kind, &s.State)
	s.State = s.Clone()
	return s
}

func (sh *shard) restore(n name, s saved, now int64) {
	slot, ok := sh.table.find(n)
	s.State = s.Clone()
	sh.write(n, slot, ok, &s.State, now)
}
