package backends

import (
	"encoding/base64"
	"hash/maphash"
)

// Hold names the reservations of a limit, and the one that an operation makes or settles.
//
// The first charge of an ID that is admitted leaves a [Record] of its hits. The next
// operation with the ID settles it: its By is the true cost, and the difference is charged
// or given back. Later ones change nothing until the record ends. See [Record.Against].
type Hold struct {
	// Key is the head of the keys of the limit's records (RecordKey). Windows of the clock share
	// it, and it hashes to the Redis Cluster slot of Op.Key.
	Key string
	// ID is the reservation, 16 bytes; "" if the operation has none.
	ID string
	// TTL is how long a record lives after the reservation, and again after its settlement,
	// in µs.
	TTL int64
	// GiveBack: hits that nobody settles within TTL come back, within TTL/64 after that.
	// Every operation on the cell has a Hold then. Otherwise the hits stay charged.
	GiveBack bool
	// Known: an operation whose ID has no record, or one whose hits count no longer, makes no
	// reservation: all of By is charged, and leaves the record of a settled one.
	Known bool
}

// RecordKey is the key at which a store has the record of h.ID.
func (h *Hold) RecordKey() string {
	return h.Key + "|" + base64.RawURLEncoding.EncodeToString([]byte(h.ID))
}

// lapses is the Hold of an operation that has no reservation, on the same cell.
func (h *Hold) lapses() *Hold {
	if h == nil || !h.GiveBack {
		return nil
	}
	return &Hold{Key: h.Key, GiveBack: true}
}

// Ends is the end of a record that an operation leaves at now, in µs since the epoch. Records
// of hits that come back end at 64 moments of a TTL, so that a cell has few of them to keep.
func (h *Hold) Ends(now int64) int64 {
	ends := now + h.TTL
	if part := max(h.TTL/64, 1); h.GiveBack {
		ends = (ends + part - 1) / part * part
	}
	return ends
}

// Record is what a store remembers of a reservation. The zero Record is none.
type Record struct {
	By   Amount // the hits that were charged and are held; a settled one has none
	Mark int64  // Op.OwnMark of the charge
	Ends int64  // µs since the epoch
	// At is the time of the charge if Mark is the number of a reservation, else 0.
	At int64 `json:",omitempty"`
	// Number is Lapsing.Number of the cell that the hits were charged to.
	Number int64 `json:",omitempty"`
	// Settled: the reservation was settled or cancelled.
	Settled bool
}

// HoldState says what an operation did to the reservation of its ID.
type HoldState uint8

const (
	// NoHold: the ID had no reservation, and has none.
	NoHold HoldState = iota
	// Held: the operation has made a reservation.
	Held
	// Settled: the operation has settled or cancelled it.
	Settled
	// Unchanged: it was settled or cancelled before, and the operation changed nothing.
	Unchanged
)

// Account tells of a reservation, and of the part of an operation that was not charged.
type Account struct {
	Hold HoldState
	// Held is the amount that the operation has settled.
	Held Amount
	// Cut is the part of the charge beyond Limit.Debt; of a settlement, the part of the
	// difference that was neither charged nor given back.
	Cut Amount
}

// HoldState is what the operation of r did to the reservation of its ID.
func (r *Reply) HoldState() HoldState {
	if r.Account == nil {
		return NoHold
	}
	return r.Account.Hold
}

// settles reports whether r is the reply to an operation that found a reservation.
func (r *Reply) settles() bool { return r.Account != nil && r.Account.Hold >= Settled }

// numbers is the seed of the numbers of reservations.
var numbers = maphash.MakeSeed()

// OwnMark tells apart the windows of a Counter, and the costs in a List. A reservation of a
// Counter whose window is over gives nothing back. A reservation in a List has a number: 52 bits
// of a hash of its ID and time, whose seed is random. Its time alone would name several costs,
// and a clock that is behind dates costs back. Without a reservation, and in a List with parts,
// it is the time of the charge.
func (o *Op) OwnMark() int64 {
	switch {
	case o.numbered():
		return o.Number()
	case o.Kind == List:
		at, _ := o.Dating()
		return at
	case o.Kind == Meter:
		return 0
	case o.numbersWindows():
		return o.Mark
	}
	return o.Until
}

// Number is a number of the reservation that o makes, at least MaxValue.
func (o *Op) Number() int64 {
	of := struct {
		key, id string
		now     int64
	}{o.Hold.Key, o.Hold.ID, o.Now}
	return MaxValue | int64(maphash.Comparable(numbers, of)>>12)
}

// numbered reports whether OwnMark is a number of the reservation that o makes.
func (o *Op) numbered() bool { return o.Kind == List && o.Identified() && o.Parts == 0 }
