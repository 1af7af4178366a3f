package memory

// table finds the slots of keys and holds their cells. It has no pointers
// inside, so a million cells cost the garbage collector nothing: slots are
// found by open addressing with linear probing, and keys lie in chunks by
// their length in steps of 16 bytes.
type table struct {
	slots  []uint32 // slot + 1, 0 is empty; the length is a power of two
	chunks [][]entry
	free   []uint32
	keys   []keyClass // by length / 16, rounded up
	len    int
}

// entry is a cell, 40 bytes.
type entry struct {
	whole, until int64
	frac         uint32
	place        uint32 // in the heap of expiries
	hash         uint32
	key          uint32 // where its key lies in the class of its length
	keyLen       uint32
}

// keyClass holds keys of up to size bytes.
type keyClass struct {
	chunks [][]byte
	free   []uint32
	used   uint32
}

const (
	entriesPerChunk = 256
	keysPerChunk    = 64
	keyStep         = 16
)

func (t *table) at(slot uint32) *entry {
	return &t.chunks[slot/entriesPerChunk][slot%entriesPerChunk]
}

func (t *table) keyOf(e *entry) []byte {
	class := (int(e.keyLen) + keyStep - 1) / keyStep
	chunk := t.keys[class].chunks[e.key/keysPerChunk]
	at := int(e.key%keysPerChunk) * class * keyStep
	return chunk[at : at+int(e.keyLen)]
}

// find looks a key up.
func (t *table) find(key string, hash uint32) (uint32, bool) {
	if len(t.slots) == 0 {
		return 0, false
	}
	mask := uint32(len(t.slots) - 1)
	for i := hash & mask; t.slots[i] != 0; i = (i + 1) & mask {
		slot := t.slots[i] - 1
		if e := t.at(slot); e.hash == hash && string(t.keyOf(e)) == key {
			return slot, true
		}
	}
	return 0, false
}

// add makes an entry for a key that is not there.
func (t *table) add(key string, hash uint32) uint32 {
	if (t.len+1)*4 > len(t.slots)*3 {
		t.grow()
	}
	var slot uint32
	if n := len(t.free); n > 0 {
		slot, t.free = t.free[n-1], t.free[:n-1]
	} else {
		slot = uint32(t.len)
		if int(slot/entriesPerChunk) == len(t.chunks) {
			t.chunks = append(t.chunks, make([]entry, entriesPerChunk))
		}
	}
	*t.at(slot) = entry{hash: hash, key: t.store(key), keyLen: uint32(len(key))}
	t.place(slot, hash)
	t.len++
	return slot
}

func (t *table) place(slot, hash uint32) {
	mask := uint32(len(t.slots) - 1)
	i := hash & mask
	for t.slots[i] != 0 {
		i = (i + 1) & mask
	}
	t.slots[i] = slot + 1
}

func (t *table) grow() {
	old := t.slots
	t.slots = make([]uint32, max(16, 2*len(old)))
	for _, s := range old {
		if s != 0 {
			t.place(s-1, t.at(s-1).hash)
		}
	}
}

// store copies a key into its class.
func (t *table) store(key string) uint32 {
	class := (len(key) + keyStep - 1) / keyStep
	for len(t.keys) <= class {
		t.keys = append(t.keys, keyClass{})
	}
	c := &t.keys[class]
	var at uint32
	if n := len(c.free); n > 0 {
		at, c.free = c.free[n-1], c.free[:n-1]
	} else {
		at = c.used
		c.used++
		if int(at/keysPerChunk) == len(c.chunks) {
			c.chunks = append(c.chunks, make([]byte, keysPerChunk*class*keyStep))
		}
	}
	copy(c.chunks[at/keysPerChunk][int(at%keysPerChunk)*class*keyStep:], key)
	return at
}

// remove takes an entry out and closes the gap that it leaves among those
// probed after it.
func (t *table) remove(slot uint32) {
	e := t.at(slot)
	mask := uint32(len(t.slots) - 1)
	gap := e.hash & mask
	for t.slots[gap] != slot+1 {
		gap = (gap + 1) & mask
	}
	for i := (gap + 1) & mask; t.slots[i] != 0; i = (i + 1) & mask {
		home := t.at(t.slots[i]-1).hash & mask
		if (i-home)&mask >= (i-gap)&mask { // it may move back to the gap
			t.slots[gap] = t.slots[i]
			gap = i
		}
	}
	t.slots[gap] = 0
	class := &t.keys[(e.keyLen+keyStep-1)/keyStep]
	class.free = append(class.free, e.key)
	t.free = append(t.free, slot)
	t.len--
}
