package backends

import (
	"cmp"
	"encoding/base64"
	"hash/maphash"
	"slices"
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

// unnamed is the Hold of an operation that has no reservation, on the same cell.
func (h *Hold) unnamed() *Hold {
	if h == nil || !h.GiveBack {
		return nil
	}
	return &Hold{Key: h.Key, GiveBack: true}
}

// Ends is the end of a record that an operation leaves at now, in µs since the epoch.
func (h *Hold) Ends(now int64) int64 {
	if h.GiveBack {
		return h.lapses(now + h.TTL)
	}
	return now + h.TTL
}

// lapses is the first of 64 moments of a TTL that is not before ends: a cell has few of them to keep.
func (h *Hold) lapses(ends int64) int64 {
	part := max(h.TTL/64, 1)
	return (ends + part - 1) / part * part
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

// Lapsing is what a cell knows of its open reservations. The zero Lapsing is that of a cell
// without any.
type Lapsing struct {
	// Number names these reservations: that of the first one ([Op.Number]). The record of a
	// reservation that was open on the cell before a reset has another number, and so has one of
	// a cell that its store has lost.
	Number int64
	// Held has the hits of these reservations (Op.heldAs): one Record for each pair of Ends and Mark,
	// ordered by Ends and then by Mark.
	Held []Record
}

// Until is when the last of the reservations ends, 0 without any.
func (l *Lapsing) Until() int64 {
	if n := len(l.Held); n > 0 {
		return l.Held[n-1].Ends
	}
	return 0
}

// heldAs is rec, the record of o's ID, as Lapsing.Held has it. Hits that stay charged come back to no
// window and to no cost of a list, so they need no mark.
func (o *Op) heldAs(rec Record) Record {
	if !o.Hold.GiveBack {
		rec.Mark, rec.Ends = 0, o.Hold.lapses(rec.Ends)
	}
	return Record{By: rec.By, Mark: rec.Mark, Ends: rec.Ends}
}

// place is where l.Held has rec, which heldAs has made, or would have it.
func (l *Lapsing) place(rec Record) (i int, found bool) {
	return slices.BinarySearchFunc(l.Held, rec, func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.Ends, b.Ends), cmp.Compare(a.Mark, b.Mark))
	})
}

// has reports whether rec, the record of o's ID, is of a reservation that is open on the cell.
func (l *Lapsing) has(o *Op, rec Record) bool {
	i, found := l.place(o.heldAs(rec))
	found = found && !l.Held[i].By.Less(rec.By)
	return rec.Number == l.Number && (found || !o.Hold.GiveBack)
}

// add opens the reservation rec, which o has made, and returns its record.
func (l *Lapsing) add(o *Op, rec Record) Record {
	if l.Number == 0 {
		l.Number = o.Number()
	}
	rec.Number = l.Number
	held := o.heldAs(rec)
	if i, found := l.place(held); found {
		l.Held[i].By = l.Held[i].By.Add(held.By, o.Den)
	} else {
		l.Held = slices.Insert(l.Held, i, held)
	}
	return rec
}

// take takes off the hits of rec, which is settled.
func (l *Lapsing) take(o *Op, rec Record) {
	i, found := l.place(o.heldAs(rec))
	if !found || rec.Number != l.Number {
		return
	}
	if l.Held[i].By = l.Held[i].By.Sub(rec.By, o.Den); !(Amount{}).Less(l.Held[i].By) {
		l.Held = slices.Delete(l.Held, i, i+1)
	}
	l.drop()
}

// lapse takes off the reservations that have ended by now, and returns them.
func (l *Lapsing) lapse(now int64) (due []Record) {
	i := 0
	for i < len(l.Held) && l.Held[i].Ends <= now {
		i++
	}
	due, l.Held = l.Held[:i:i], l.Held[i:]
	l.drop()
	return due
}

// drop forgets the number once no reservation is open.
func (l *Lapsing) drop() {
	if len(l.Held) == 0 {
		*l = Lapsing{}
	}
}

// stepHold applies op to the cell of l: first the reservations end that nobody has settled in time.
// step applies an operation to the hits of the cell. stepHold returns the record of op's ID, which was
// rec before, and the reply.
func (l *Lapsing) stepHold(op *Op, rec Record, step func(*Op) Reply) (after Record, r Reply) {
	if op.Hold == nil {
		return rec, step(op)
	}
	identified := op.Identified() && !op.Verb.Operates()
	if identified || op.Hold.GiveBack {
		due := l.lapse(op.Now)
		if !op.Hold.GiveBack {
			due = nil // the hits of those that have ended stay charged
		}
		for _, rec := range due {
			on := op.Look()
			on.Hold = nil
			on = on.takeBack(rec, rec.By)
			step(&on)
		}
	}
	if !identified {
		on := *op
		on.Hold = nil
		return rec, step(&on)
	}
	found := rec
	if l.forgets(op, rec) {
		found = Record{}
	}
	on, state := found.Against(op)
	r = step(&on)
	if after = l.settle(op, found, state, &on, &r); r.HoldState() == NoHold {
		after = rec
	}
	return after, r
}

// forgets reports whether rec, the record of o's ID, no longer counts: its hits have come back, or
// were forgotten by a reset. A settled one counts until it ends, and so does one of another window,
// if each window has a cell of its own.
func (l *Lapsing) forgets(o *Op, rec Record) bool {
	elsewhere := o.Kind == Counter && o.Span == Fixed && rec.Mark != o.OwnMark() // in another cell than o's
	return rec.Ends > 0 && !rec.Settled && !elsewhere && !l.has(o, rec)
}

// foundBy is rec as o finds it: the zero Record once it has ended, or if o has to charge all
// of its cost because the hits of rec count no longer.
func (rec Record) foundBy(o *Op) Record {
	if o.Now >= rec.Ends || o.Hold.Known && !rec.Settled && rec.isOver(o) {
		return Record{}
	}
	return rec
}

// isOver reports whether the window of rec's hits is over for o. Hits in the window before
// o's still count with the span Sliding, and those in a Meter drip away like any other.
func (rec Record) isOver(o *Op) bool {
	switch {
	case o.Kind == List:
		_, gone := o.Dating()
		return cmp.Or(rec.At, rec.Mark) <= gone
	case o.Kind == Counter && o.Span == Sliding:
		return rec.Mark < o.Mark-1
	}
	return rec.Mark != o.OwnMark()
}

// Against is the operation on the cell that o, which has an ID, comes to beside the record
// of its ID. state is what it does to the reservation if it is admitted.
func (rec Record) Against(o *Op) (on Op, state HoldState) {
	on = *o
	on.Hold = nil
	rec = rec.foundBy(o)
	difference := o.By.Sub(rec.By, o.Den)
	switch {
	case rec.Ends == 0 && o.Verb.GivesBack():
		return on.Look(), NoHold
	case rec.Ends == 0 && o.Hold.Known:
		return on, Settled
	case rec.Ends == 0 && o.By == Amount{}:
		return on, NoHold
	case rec.Ends == 0:
		on.Hold = o.Hold
		return on, Held
	case rec.Settled:
		return on.Look(), Unchanged
	case o.Verb.GivesBack():
		return on.takeBack(rec, rec.By), Settled
	case difference.Whole < 0:
		return on.takeBack(rec, rec.By.Sub(o.By, o.Den)), Settled
	case o.Debt != Amount{}:
		on.By = difference
	default:
		on.By, on.Verb = difference, Fill
	}
	return on, Settled
}

// takeBack is the operation that gives back amount of the hits of rec.
func (o Op) takeBack(rec Record, amount Amount) Op {
	if o.Kind == Counter && rec.Mark != o.OwnMark() {
		return o.Look()
	}
	if o.By = amount; !o.Verb.GivesBack() {
		o.Verb = Refund
	}
	if o.Kind == List {
		o.Mark = rec.Mark
	}
	return o
}

// settle is the record that o leaves in the place of rec, and notes it in l. state is that of
// Against, and r the reply to its operation on, which settle completes.
func (l *Lapsing) settle(o *Op, rec Record, state HoldState, on *Op, r *Reply) (after Record) {
	var account Account
	if r.Account != nil { // hits beyond the debt were not charged, and cannot be given back
		account = *r.Account
	}
	after = rec
	switch {
	case state == Held && r.Admitted == 0:
		state = NoHold
	case state == Held:
		held := Record{By: o.By.Sub(account.Cut, o.Den), Mark: o.OwnMark(), Ends: o.Hold.Ends(o.Now)}
		if o.numbered() {
			held.At = o.Now
		}
		after = l.add(o, held)
	case state == Settled:
		l.take(o, rec)
		if after = (Record{}); o.Verb != Undo {
			after = Record{Settled: true, Ends: o.Hold.Ends(o.Now)}
		}
		rec = rec.foundBy(o)
		if account.Held = rec.By; on.ReadOnly() && !o.Verb.GivesBack() && o.By != rec.By { // the window is over
			account.Cut = rec.By.Sub(o.By, o.Den)
		}
	}
	if account.Hold = state; state >= Settled {
		r.Admitted = o.Times
	}
	if account != (Account{}) {
		r.Account = &account
	}
	return after
}
