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

// Equal reports whether both are the same.
func (l Lapsing) Equal(other Lapsing) bool {
	return l.Number == other.Number && l.Stays == other.Stays && slices.Equal(l.Back, other.Back)
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
