package descriptors

import (
	"encoding/binary"
	"hash/maphash"

	"github.com/cespare/xxhash/v2"
)

// Rows has for each value of a table its line, and the number of what its row says: the
// index of a Says. The zero Rows has none. It is made by [Rows.Add], and then does not change.
//
// A value is known by 128 bits of hashes alone, so that a row costs 30 to 60 bytes, however long
// its value is, and the garbage collector has nothing to follow.
type Rows struct {
	File    string   // for messages
	Planned bool     // there is a column for plans
	Plans   []string // named by rows; "" is that of rows without a plan
	Says    []Says
	// Sum is the same for the same rows in any order, in every process; Len is their number.
	Sum uint64
	Len int

	rows  map[[2]uint64]row // by sumsOf
	turns Turns
}

// Says is a plan, and amounts in place of those of its limit. A row without a plan changes the rule's
// own limit.
type Says struct {
	Amounts

	Plan uint32 // the index in Rows.Plans
}

// row is what a row says, by its number, and its line.
type row struct{ number, line uint32 }

// seeds make it unknown outside of the process which values have the same sums.
var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// sumsOf stands for a value. Two of 2^32 values have the same sums with a chance below one in 2^64.
func sumsOf(value string) [2]uint64 {
	return [2]uint64{maphash.String(seeds[0], value), maphash.String(seeds[1], value)}
}

// Add adds the row of a value that has none. contents is the row as text, without its value.
func (r *Rows) Add(value string, number, line uint32, contents []byte) {
	r.turns.Next()
	if r.rows == nil {
		r.rows = map[[2]uint64]row{}
	}
	r.rows[sumsOf(value)] = row{number, line}
	r.Len++
	var both [16]byte
	binary.LittleEndian.PutUint64(both[:8], xxhash.Sum64String(value))
	binary.LittleEndian.PutUint64(both[8:], xxhash.Sum64(contents))
	r.Sum += xxhash.Sum64(both[:])
}

// Find finds the row of a value: the number of what it says, and its line. It does not
// allocate.
func (r *Rows) Find(value string) (number, line uint32, found bool) {
	of, found := r.rows[sumsOf(value)]
	return of.number, of.line, found
}

// Each calls do with the number and the line of each row, in no particular order.
func (r *Rows) Each(do func(number, line uint32)) {
	var turns Turns
	for _, of := range r.rows {
		turns.Next()
		do(of.number, of.line)
	}
}

// Changed counts the rows that came after before, went, and say something else than there.
func (r *Rows) Changed(before *Rows) (came, went, changed int) {
	var turns Turns
	for value, now := range r.rows {
		turns.Next()
		switch was, found := before.rows[value]; {
		case !found:
			came++
		case !r.says(now.number, before, was.number):
			changed++
		}
	}
	return came, before.Len - (r.Len - came), changed
}

// says reports whether a number says the same as another one of other.
func (r *Rows) says(number uint32, other *Rows, another uint32) bool {
	a, b := r.Says[number], other.Says[another]
	return a.Amounts == b.Amounts && r.Plans[a.Plan] == other.Plans[b.Plan]
}
