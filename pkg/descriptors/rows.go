package descriptors

import (
	"bytes"
	"encoding/binary"
	"iter"

	"github.com/cespare/xxhash/v2"
)

// Rows has for each value of a table its line, and the number of what its row says: the
// index of a plan or of amounts. It is made by [Rows.Add], and then does not change.
//
// Values stand in chunks of bytes and are found by a table of hashes, so that a row costs
// the bytes of its value and about 25 more, and the garbage collector has nothing to follow.
type Rows struct {
	File  string // for messages
	Plans []string
	// Amounts are set unless Plans are.
	Amounts []Amounts
	// Sum is the same for the same rows in any order; Len is their number.
	Sum uint64
	Len int

	chunks [][]byte
	// slots are open-addressed. A slot is 0, or the upper bits of the hash of a value and,
	// in the lower placeBits, 1 + the place of the row.
	slots []uint64
	turns Turns
}

// Amounts are what a row says of the amounts of a limit. Zero fields are those of the rule.
type Amounts struct {
	Requests   uint32
	Multiplier uint32
	Burst      uint32
	Unit       Unit
	Given      bool // Requests, which may be 0
}

const (
	chunkBits = 20 // of the place, the byte in a chunk
	chunkSize = 1 << chunkBits
	placeBits = 36
	placeMask = 1<<placeBits - 1
)

// Add adds a row, whose contents are a text of what it says. Unless the value is new, it changes
// nothing and returns false and the line of the other row.
func (r *Rows) Add(value string, number, line uint32, contents []byte) (first uint32, added bool) {
	r.turns.Next()
	if _, first, found := r.Find(value); found {
		return first, false
	}
	if 4*(r.Len+1) > 3*len(r.slots) {
		r.grow()
	}
	hash := xxhash.Sum64String(value)
	r.put(hash&^placeMask | r.append(value, number, line) + 1)
	r.Len++
	var both [16]byte
	binary.LittleEndian.PutUint64(both[:8], hash)
	binary.LittleEndian.PutUint64(both[8:], xxhash.Sum64(contents))
	r.Sum += xxhash.Sum64(both[:])
	return 0, true
}

// append writes a row, and returns its place.
func (r *Rows) append(value string, number, line uint32) uint64 {
	need := len(value) + 3*binary.MaxVarintLen32
	last := len(r.chunks) - 1
	if last < 0 || cap(r.chunks[last])-len(r.chunks[last]) < need {
		size := chunkSize
		if last < 0 {
			size = chunkSize >> 10 // of a table with few rows
		}
		r.chunks = append(r.chunks, make([]byte, 0, max(size, need)))
		last++
	}
	c := r.chunks[last]
	place := uint64(last)<<chunkBits | uint64(len(c))
	c = append(binary.AppendUvarint(c, uint64(len(value))), value...)
	r.chunks[last] = binary.AppendUvarint(binary.AppendUvarint(c, uint64(number)), uint64(line))
	return place
}

// slot is where the search for a hash begins, of which only the upper bits count.
func (r *Rows) slot(hash uint64) uint64 { return hash >> placeBits & uint64(len(r.slots)-1) }

func (r *Rows) put(row uint64) {
	i := r.slot(row)
	for r.slots[i] != 0 {
		i = (i + 1) & uint64(len(r.slots)-1)
	}
	r.slots[i] = row
}

// grow doubles the slots.
func (r *Rows) grow() {
	before := r.slots
	r.slots = make([]uint64, max(8, 2*len(before)))
	for _, row := range before {
		if r.turns.Next(); row != 0 {
			r.put(row)
		}
	}
}

// Find finds the row of a value: the number of what it says, and its line. It does not
// allocate.
func (r *Rows) Find(value string) (number, line uint32, found bool) {
	if len(r.slots) == 0 {
		return 0, 0, false
	}
	hash := xxhash.Sum64String(value)
	for i := r.slot(hash); r.slots[i] != 0; i = (i + 1) & uint64(len(r.slots)-1) {
		if row := r.slots[i]; row>>placeBits == hash>>placeBits {
			place := row&placeMask - 1
			rest := r.chunks[place>>chunkBits][place&(chunkSize-1):]
			size, n := binary.Uvarint(rest)
			if rest = rest[n:]; size == uint64(len(value)) && string(rest[:size]) == value {
				number, n := binary.Uvarint(rest[size:])
				line, _ := binary.Uvarint(rest[int(size)+n:])
				return uint32(number), uint32(line), true
			}
		}
	}
	return 0, 0, false
}

// All yields the number of what each row says and its line, in the order of the lines.
func (r *Rows) All() iter.Seq2[uint32, uint32] {
	return func(yield func(number, line uint32) bool) {
		var turns Turns
		for _, c := range r.chunks {
			for len(c) > 0 {
				turns.Next()
				size, n := binary.Uvarint(c)
				c = c[n+int(size):]
				number, n := binary.Uvarint(c)
				line, m := binary.Uvarint(c[n:])
				if c = c[n+m:]; !yield(uint32(number), uint32(line)) {
					return
				}
			}
		}
	}
}

// Trim gives back memory that only Add needed.
func (r *Rows) Trim() {
	r.Plans, r.Amounts = append([]string(nil), r.Plans...), append([]Amounts(nil), r.Amounts...)
	if last := len(r.chunks) - 1; last >= 0 {
		r.chunks[last] = bytes.Clone(r.chunks[last])
	}
}
