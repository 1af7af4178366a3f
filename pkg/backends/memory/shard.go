package memory

import (
	"slices"
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
	holds   map[uint32]*holds       // by the slot of the cell that stands for a Hold.Key
	heap    []expiry
	evicted *atomic.Uint64
	records *atomic.Int64 // in the holds of all shards
}

type expiry struct {
	until int64
	slot  uint32
}

// name is a key with its hash.
type name struct {
	key  string
	hash uint64
}

func (n name) low() uint32 { return uint32(n.hash) }

// clear forgets every cell.
func (sh *shard) clear() {
	for _, h := range sh.holds {
		sh.records.Add(-h.len())
	}
	sh.table, sh.heap = table{hash: sh.table.hash}, nil
	sh.logs, sh.prevs, sh.holds = map[uint32]backends.Log{}, map[uint32]int64{}, map[uint32]*holds{}
}

// state is the cell in a slot as a step of that kind takes it.
func (sh *shard) state(slot uint32, kind backends.Kind) backends.Cell {
	e := sh.table.at(slot)
	c := backends.Cell{Value: backends.Amount{Whole: e.whole}, Until: e.until}
	if kind == backends.Meter {
		c.Value.Frac = int64(e.frac)
	} else if c.Window = int64(e.frac); c.Window > 0 {
		c.Prev = sh.prevs[slot]
	}
	return c
}

// step applies op to its cell, and sets *r.
func (sh *shard) step(op *backends.Op, n name, r *backends.Reply) {
	slot, ok := sh.table.find(n)
	var c backends.Cell
	var log backends.Log
	if op.Kind == backends.List {
		if ok {
			log = sh.logs[slot]
		}
		log, *r = log.Step(op)
		c.Until = r.Until
	} else {
		if ok {
			c = sh.state(slot, op.Kind)
		}
		c, *r = c.Step(op)
	}
	if op.ReadOnly() {
		return
	}
	if c.Until <= op.Now {
		c = backends.Cell{}
	}
	sh.write(n, slot, ok, c, log, op.Now)
}

// write leaves c, and the log of a List, at a key; slot has the key's cell if ok. A
// zero c removes the cell.
func (sh *shard) write(n name, slot uint32, ok bool, c backends.Cell, log backends.Log, now int64) {
	if c.Until == 0 {
		if ok {
			sh.remove(slot)
		}
		return
	}
	if !ok {
		slot = sh.insert(n, c.Until, now)
	}
	if log != nil {
		sh.logs[slot] = log
	}
	e := sh.table.at(slot)
	e.whole, e.frac = c.Value.Whole, uint32(c.Value.Frac+c.Window)
	if c.Prev > 0 {
		sh.prevs[slot] = c.Prev
	} else if c.Window > 0 {
		delete(sh.prevs, slot)
	}
	// After a later end the heap's element is put right when it comes to the top.
	if p := int(e.expiry); c.Until < e.until && c.Until < sh.heap[p].until {
		sh.heap[p].until = c.Until
		sh.up(p)
	}
	e.until = c.Until
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
	if h := sh.holds[slot]; h != nil {
		sh.records.Add(-h.len())
		delete(sh.holds, slot)
	}
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

// saved is a cell as it was before a batch; zero if there was none.
type saved struct {
	cell  backends.Cell
	log   backends.Log
	holds savedHolds // of an operation with a Hold
}

func (sh *shard) save(n name, kind backends.Kind) saved {
	slot, ok := sh.table.find(n)
	if !ok {
		return saved{}
	}
	return saved{cell: sh.state(slot, kind), log: slices.Clone(sh.logs[slot])}
}

func (sh *shard) restore(n name, s saved, now int64) {
	slot, ok := sh.table.find(n)
	sh.write(n, slot, ok, s.cell, slices.Clone(s.log), now)
}
