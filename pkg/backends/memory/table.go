package memory

// table finds the slots of keys and holds their cells. Cells and keys lie in
// chunks without pointers, which the garbage collector does not scan. Slots are
// found by open addressing with linear probing; keys lie in chunks by their
// length in steps of 16 bytes.
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

// keyClass holds keys of about the same length without gaps, so that the memory
// of removed keys goes back and keys of any other length can use it.
type keyClass struct {
	chunks []*keyChunk
	used   uint32
}

type keyChunk struct {
	slots [keysPerChunk]uint32 // of the keys' entries
	text  []byte
}

// at is where key i lies, in a class of keys of up to size bytes.
func (c *keyClass) at(i uint32, size int) (*uint32, []byte) {
	chunk, i := c.chunks[i/keysPerChunk], i%keysPerChunk
	return &chunk.slots[i], chunk.text[int(i)*size : int(i+1)*size]
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
	class := classOf(int(e.keyLen))
	_, text := t.keys[class].at(e.key, class*keyStep)
	return text[:e.keyLen]
}

func classOf(keyLen int) int { return (keyLen + keyStep - 1) / keyStep }

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
	*t.at(slot) = entry{hash: hash, key: t.storeKey(key, slot), keyLen: uint32(len(key))}
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

// storeKey copies the key of slot into its class.
func (t *table) storeKey(key string, slot uint32) uint32 {
	class := classOf(len(key))
	for len(t.keys) <= class {
		t.keys = append(t.keys, keyClass{})
	}
	c := &t.keys[class]
	if int(c.used/keysPerChunk) == len(c.chunks) {
		c.chunks = append(c.chunks, &keyChunk{text: make([]byte, keysPerChunk*class*keyStep)})
	}
	owner, text := c.at(c.used, class*keyStep)
	*owner = slot
	copy(text, key)
	c.used++
	return c.used - 1
}

// removeKey moves the last key of the class to the place of e's key. It frees
// the last chunk if that chunk is empty and the chunk before it has room.
func (t *table) removeKey(e *entry) {
	class := classOf(int(e.keyLen))
	c, size := &t.keys[class], class*keyStep
	c.used--
	lastOwner, lastText := c.at(c.used, size)
	owner, text := c.at(e.key, size)
	copy(text, lastText)
	*owner = *lastOwner
	t.at(*owner).key = e.key
	if last := len(c.chunks) - 1; int(c.used/keysPerChunk) < last {
		c.chunks[last] = nil
		c.chunks = c.chunks[:last]
	}
}

// remove takes an entry out and moves later entries of the same probe sequence
// into the gap.
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
	t.removeKey(e)
	t.free = append(t.free, slot)
	t.len--
}
