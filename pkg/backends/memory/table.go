package memory

// table finds the slots of keys and holds their cells. Cells and keys lie in
// chunks without pointers, which the garbage collector does not scan. Slots are
// found by open addressing with linear probing; keys lie in chunks by their
// length in steps of 16 bytes.
//
// A look-up of one of many keys waits for memory more than it computes, so it
// touches few cache lines: of the index, the cell, and the key. See
// docs/adr/0013-by-hand.md for the measurements.
type table struct {
	index  []ref // the length is a power of two
	chunks [][]cell
	free   []uint32
	keys   []keyClass // by length / 16, rounded up
	len    int
	hash   func(key []byte) uint32 // the hash that callers pass with a key
}

// ref is an element of the index.
type ref struct {
	hash uint32
	slot uint32 // + 1; 0 is empty
}

// cell is a Counter or a Meter, 32 bytes, so that it does not cross cache lines.
type cell struct {
	whole, until int64
	frac         uint32 // of a Meter; of a Counter Cell.Window
	expiry       uint32 // where it lies in the heap of expiries
	key          uint32 // where its key lies in the class of its length
	keyLen       uint32
}

// keyClass holds keys of about the same length without gaps, so that the memory
// of removed keys goes back and keys of any other length can use it.
type keyClass struct {
	texts  [][]byte
	owners [][]uint32 // the slots of the keys' cells
	used   uint32
}

// at is where key i lies, in a class of keys of up to size bytes.
func (c *keyClass) at(i uint32, size int) []byte {
	n := int(i % keysPerChunk)
	return c.texts[i/keysPerChunk][n*size : (n+1)*size]
}

// owner is the slot of the cell of key i.
func (c *keyClass) owner(i uint32) *uint32 { return &c.owners[i/keysPerChunk][i%keysPerChunk] }

const (
	cellsPerChunk = 256
	keysPerChunk  = 64
	keyStep       = 16
)

func (t *table) at(slot uint32) *cell {
	return &t.chunks[slot/cellsPerChunk][slot%cellsPerChunk]
}

func (t *table) keyOf(e *cell) []byte {
	class := classOf(int(e.keyLen))
	return t.keys[class].at(e.key, class*keyStep)[:e.keyLen]
}

func classOf(keyLen int) int { return (keyLen + keyStep - 1) / keyStep }

// find looks a key up.
func (t *table) find(n name) (uint32, bool) {
	if len(t.index) == 0 {
		return 0, false
	}
	mask := uint32(len(t.index) - 1)
	hash := n.low()
	for i := hash & mask; t.index[i].slot != 0; i = (i + 1) & mask {
		if t.index[i].hash != hash {
			continue
		}
		if slot := t.index[i].slot - 1; string(t.keyOf(t.at(slot))) == n.key {
			return slot, true
		}
	}
	return 0, false
}

// add makes a cell for a key that is not there.
func (t *table) add(n name) uint32 {
	if (t.len+1)*4 > len(t.index)*3 {
		t.grow()
	}
	var slot uint32
	if last := len(t.free) - 1; last >= 0 {
		slot, t.free = t.free[last], t.free[:last]
	} else {
		slot = uint32(t.len)
		if int(slot/cellsPerChunk) == len(t.chunks) {
			t.chunks = append(t.chunks, make([]cell, cellsPerChunk))
		}
	}
	*t.at(slot) = cell{key: t.storeKey(n.key, slot), keyLen: uint32(len(n.key))}
	t.link(ref{n.low(), slot + 1})
	t.len++
	return slot
}

func (t *table) link(r ref) {
	mask := uint32(len(t.index) - 1)
	i := r.hash & mask
	for t.index[i].slot != 0 {
		i = (i + 1) & mask
	}
	t.index[i] = r
}

func (t *table) grow() {
	old := t.index
	t.index = make([]ref, max(16, 2*len(old)))
	for _, r := range old {
		if r.slot != 0 {
			t.link(r)
		}
	}
}

// storeKey copies the key of slot into its class.
func (t *table) storeKey(key string, slot uint32) uint32 {
	class := classOf(len(key))
	for len(t.keys) <= class {
		t.keys = append(t.keys, keyClass{})
	}
	c := &t.keys[class]
	if int(c.used/keysPerChunk) == len(c.texts) {
		c.texts = append(c.texts, make([]byte, keysPerChunk*class*keyStep))
		c.owners = append(c.owners, make([]uint32, keysPerChunk))
	}
	*c.owner(c.used) = slot
	copy(c.at(c.used, class*keyStep), key)
	c.used++
	return c.used - 1
}

// removeKey moves the last key of the class to where e's key lies. It frees
// the last chunk if that chunk is empty and the chunk before it has room.
func (t *table) removeKey(e *cell) {
	class := classOf(int(e.keyLen))
	c, size := &t.keys[class], class*keyStep
	c.used--
	moved := *c.owner(c.used)
	copy(c.at(e.key, size), c.at(c.used, size))
	*c.owner(e.key) = moved
	t.at(moved).key = e.key
	if last := len(c.texts) - 1; int(c.used/keysPerChunk) < last {
		c.texts[last], c.owners[last] = nil, nil
		c.texts, c.owners = c.texts[:last], c.owners[:last]
	}
}

// remove takes a cell out and moves later cells of the same probe sequence
// into the gap.
func (t *table) remove(slot uint32) {
	e := t.at(slot)
	mask := uint32(len(t.index) - 1)
	gap := t.hash(t.keyOf(e)) & mask
	for t.index[gap].slot != slot+1 {
		gap = (gap + 1) & mask
	}
	for i := (gap + 1) & mask; t.index[i].slot != 0; i = (i + 1) & mask {
		home := t.index[i].hash & mask
		if (i-home)&mask >= (i-gap)&mask { // it may move back to the gap
			t.index[gap] = t.index[i]
			gap = i
		}
	}
	t.index[gap] = ref{}
	t.removeKey(e)
	t.free = append(t.free, slot)
	t.len--
}
