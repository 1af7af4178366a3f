package memory

import (
	"slices"
	"sync"
	"sync/atomic"

	"example.org/rls/pkg/backends"
)

// maxKeys is what 32-bit slots can number, with room for rounding per shard.
const maxKeys = 1 << 30

// A shard is a map from key to a slot in chunks of entries, and a heap of the
// slots by expiry. The heap is lazy: an entry's place in it holds an expiry at
// or before the true one, mended when it comes to the top.
type shard struct {
	mu      sync.Mutex
	max     int
	index   map[string]uint32
	chunks  [][]entry
	free    []uint32
	heap    []expiry
	logs    map[uint32]backends.Log // of the slots that are lists
	evicted *atomic.Uint64

	_ [32]byte // keeps neighbours off this shard's cache line
}

// entry is a cell, 40 bytes.
type entry struct {
	key   string
	whole int64
	until int64
	frac  uint32
	place uint32 // in the heap
}

type expiry struct {
	until int64
	slot  uint32
}

const chunkSize = 512

func newShard(max int, evicted *atomic.Uint64) shard {
	return shard{max: max, index: map[string]uint32{}, logs: map[uint32]backends.Log{}, evicted: evicted}
}

func (sh *shard) at(slot uint32) *entry {
	return &sh.chunks[slot/chunkSize][slot%chunkSize]
}

// count is the value of a counter at now, 0 when absent.
func (sh *shard) count(key string, now int64) int64 {
	slot, ok := sh.index[key]
	if !ok || now >= sh.at(slot).until {
		return 0
	}
	return sh.at(slot).whole
}

// step applies op to its cell.
func (sh *shard) step(op *backends.Op, prev int64) backends.Reply {
	slot, ok := sh.index[op.Key]
	if op.Kind == backends.List {
		return sh.stepLog(op, slot, ok)
	}
	var c backends.Cell
	if ok {
		e := sh.at(slot)
		c = backends.Cell{Value: backends.Amount{Whole: e.whole, Frac: int64(e.frac)}, Until: e.until}
	}
	c, r := c.Step(op, prev)
	if c.Until <= op.Now {
		if ok {
			sh.remove(slot)
		}
		return r
	}
	if !ok {
		slot = sh.insert(op.Key, c.Until, op.Now)
	}
	e := sh.at(slot)
	e.whole, e.frac = c.Value.Whole, uint32(c.Value.Frac)
	sh.setUntil(slot, c.Until)
	return r
}

func (sh *shard) stepLog(op *backends.Op, slot uint32, ok bool) backends.Reply {
	var log backends.Log
	if ok {
		log = sh.logs[slot]
	}
	log, r := log.Step(op)
	if len(log) == 0 {
		if ok {
			sh.remove(slot)
		}
		return r
	}
	if !ok {
		slot = sh.insert(op.Key, r.Until, op.Now)
	}
	sh.logs[slot] = log
	sh.setUntil(slot, r.Until)
	return r
}

// insert makes an entry for key and room for it.
func (sh *shard) insert(key string, until, now int64) uint32 {
	sh.makeRoom(now)
	var slot uint32
	if n := len(sh.free); n > 0 {
		slot, sh.free = sh.free[n-1], sh.free[:n-1]
	} else {
		last := len(sh.chunks) - 1
		if last < 0 || len(sh.chunks[last]) == chunkSize {
			sh.chunks = append(sh.chunks, make([]entry, 0, min(chunkSize, sh.max)))
			last++
		}
		slot = uint32(last*chunkSize + len(sh.chunks[last]))
		sh.chunks[last] = append(sh.chunks[last], entry{})
	}
	sh.index[key] = slot
	*sh.at(slot) = entry{key: key, until: until, place: uint32(len(sh.heap))}
	sh.heap = append(sh.heap, expiry{until, slot})
	sh.up(len(sh.heap) - 1)
	return slot
}

// makeRoom drops expired cells, two for each new one so that they never pile
// up, and when the shard is full the cell that expires soonest.
func (sh *shard) makeRoom(now int64) {
	for range 2 {
		slot, until, ok := sh.soonest()
		full := len(sh.index) >= sh.max
		if !ok || until > now && !full {
			return
		}
		if until > now {
			sh.evicted.Add(1)
		}
		sh.remove(slot)
	}
}

// soonest is the cell that expires first.
func (sh *shard) soonest() (slot uint32, until int64, ok bool) {
	for len(sh.heap) > 0 {
		top := sh.heap[0]
		until := sh.at(top.slot).until
		if until == top.until {
			return top.slot, until, true
		}
		sh.heap[0].until = until
		sh.down(0)
	}
	return 0, 0, false
}

func (sh *shard) setUntil(slot uint32, until int64) {
	e := sh.at(slot)
	e.until = until
	if p := int(e.place); until < sh.heap[p].until {
		sh.heap[p].until = until
		sh.up(p)
	}
}

func (sh *shard) remove(slot uint32) {
	e := sh.at(slot)
	delete(sh.index, e.key)
	place, last := int(e.place), len(sh.heap)-1
	*e = entry{}
	delete(sh.logs, slot)
	sh.free = append(sh.free, slot)
	if place != last {
		sh.put(place, sh.heap[last])
	}
	sh.heap = sh.heap[:last]
	if place != last {
		sh.up(sh.down(place))
	}
}

func (sh *shard) put(i int, x expiry) {
	sh.heap[i] = x
	sh.at(x.slot).place = uint32(i)
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

// state is a cell as it was before a batch, for giving back.
type state struct {
	present bool
	whole   int64
	frac    uint32
	until   int64
	log     backends.Log
}

func (sh *shard) save(key string) state {
	slot, ok := sh.index[key]
	if !ok {
		return state{}
	}
	e := sh.at(slot)
	st := state{present: true, whole: e.whole, frac: e.frac, until: e.until}
	st.log = slices.Clone(sh.logs[slot])
	return st
}

func (sh *shard) restore(key string, st state, now int64) {
	slot, ok := sh.index[key]
	if !st.present {
		if ok {
			sh.remove(slot)
		}
		return
	}
	if !ok {
		slot = sh.insert(key, st.until, now)
	}
	e := sh.at(slot)
	e.whole, e.frac = st.whole, st.frac
	if st.log != nil {
		sh.logs[slot] = st.log
	}
	sh.setUntil(slot, st.until)
}
