package backends

import (
	"cmp"
	"slices"
)

// Lapsing is what a cell knows of its open reservations. The zero Lapsing is that of a cell
// without any.
type Lapsing struct {
	// Number names these reservations: that of the first one ([Op.Number]). The record of a
	// reservation that was open on the cell before a reset has another number, and so has one of
	// a cell that its store has lost.
	Number int64
	// Stays is when the last of those ends whose hits stay charged, in µs since the epoch.
	Stays int64
	// Back has the hits that come back if nobody settles them: one Record for each pair of Ends
	// and Mark, ordered by Ends and then by Mark.
	Back []Record
}

// Until is when the last of the reservations ends, 0 without any.
func (l *Lapsing) Until() int64 {
	if n := len(l.Back); n > 0 {
		return max(l.Stays, l.Back[n-1].Ends)
	}
	return l.Stays
}

// Clone is a copy of l, whose slice operations change in place.
func (l Lapsing) Clone() Lapsing {
	l.Back = slices.Clone(l.Back)
	return l
}

func (l *Lapsing) place(rec Record) (int, bool) {
	return slices.BinarySearchFunc(l.Back, rec, func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.Ends, b.Ends), cmp.Compare(a.Mark, b.Mark))
	})
}

// Has reports whether rec, the record of o's ID, is of a reservation that is open on the cell.
func (l *Lapsing) Has(o *Op, rec Record) bool {
	i, found := l.place(rec)
	found = found && !l.Back[i].By.Less(rec.By)
	return rec.Number == l.Number && (found || !o.Hold.GiveBack)
}

// Add opens the reservation rec, which o has made, and returns its record.
func (l *Lapsing) Add(o *Op, rec Record) Record {
	if l.Number == 0 {
		l.Number = o.Number()
	}
	rec.Number = l.Number
	if !o.Hold.GiveBack {
		l.Stays = max(l.Stays, rec.Ends)
		return rec
	}
	i, found := l.place(rec)
	if !found {
		l.Back = slices.Insert(l.Back, i, Record{Mark: rec.Mark, Ends: rec.Ends})
	}
	l.Back[i].By = l.Back[i].By.Add(rec.By, o.Den)
	return rec
}

// Take has the hits of rec, which is settled, not come back.
func (l *Lapsing) Take(o *Op, rec Record) {
	i, found := l.place(rec)
	if !found || rec.Number != l.Number {
		return
	}
	if l.Back[i].By = l.Back[i].By.Sub(rec.By, o.Den); !(Amount{}).Less(l.Back[i].By) {
		l.Back = slices.Delete(l.Back, i, i+1)
	}
	l.drop(o.Now)
}

// Lapse takes off the reservations that have ended by now, and returns the hits that come back.
func (l *Lapsing) Lapse(now int64) (due []Record) {
	i, _ := l.place(Record{Ends: now + 1})
	due, l.Back = l.Back[:i:i], l.Back[i:]
	l.drop(now)
	return due
}

// drop forgets the number once no reservation is open.
func (l *Lapsing) drop(now int64) {
	if len(l.Back) == 0 && l.Stays <= now {
		*l = Lapsing{}
	}
}

// StepHold applies op, which has a Hold, to the cell of l: first the hits come back that nobody
// has settled in time. step applies an operation without a Hold. StepHold returns the operation
// that op comes to, the record of its ID, which was rec before, and the reply.
func (l *Lapsing) StepHold(op *Op, rec Record, step func(*Op) Reply) (on Op, after Record, r Reply) {
	if op.Hold.GiveBack {
		for _, due := range l.Lapse(op.Now) {
			back := due.lapsed(op)
			step(&back)
		}
	}
	if on = *op; !op.Identified() || op.Verb.Operates() {
		on.Hold = nil
		return on, rec, step(&on)
	}
	l.drop(op.Now)
	found := rec
	if l.forgets(op, rec) {
		found = Record{}
	}
	on, state := found.Against(op)
	r = step(&on)
	if after = l.settle(op, found, state, &on, &r); r.HoldState() == NoHold {
		after = rec
	}
	return on, after, r
}

// forgets reports whether rec, the record of o's ID, no longer counts: its hits have come back, or
// were forgotten by a reset. A settled one counts until it ends, and so does one of another window,
// if each window has a cell of its own.
func (l *Lapsing) forgets(o *Op, rec Record) bool {
	return rec.Ends > 0 && !rec.Settled && !rec.elsewhere(o) && !l.Has(o, rec)
}

// elsewhere reports whether the hits of rec, the record of o's ID, are in another cell than o's: that
// of another window.
func (rec Record) elsewhere(o *Op) bool {
	return o.Kind == Counter && o.Span == Fixed && rec.Mark != o.OwnMark()
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

// lapsed is the operation at o's time that gives back the hits of rec, which nobody has settled.
func (rec Record) lapsed(o *Op) Op {
	on := o.Look()
	on.Hold = nil
	return on.takeBack(rec, rec.By)
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
		after = l.Add(o, o.held(o.By.Sub(account.Cut, o.Den)))
	case state == Settled:
		l.Take(o, rec)
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

// held is the record of o's reservation, whose charge of by is made.
func (o *Op) held(by Amount) Record {
	rec := Record{By: by, Mark: o.OwnMark(), Ends: o.Hold.Ends(o.Now)}
	if o.numbered() {
		rec.At = o.Now
	}
	return rec
}
