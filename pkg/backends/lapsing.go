package backends

import (
	"cmp"
	"slices"
)

// Lapsing has the hits of the open reservations of one Hold.Key that come back if nobody settles
// them: one Record for each pair of Ends and Mark, ordered by Ends and then by Mark.
type Lapsing []Record

func (l Lapsing) place(rec Record) (int, bool) {
	return slices.BinarySearchFunc(l, rec, func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.Ends, b.Ends), cmp.Compare(a.Mark, b.Mark))
	})
}

// Has reports whether the hits of rec are to come back.
func (l Lapsing) Has(rec Record) bool {
	i, found := l.place(rec)
	return found && !l[i].By.Less(rec.By)
}

// Add has the hits of rec come back. den is the denominator of Record.By.
func (l *Lapsing) Add(rec Record, den int64) {
	i, found := l.place(rec)
	if rec.At = 0; !found {
		*l = slices.Insert(*l, i, rec)
		return
	}
	(*l)[i].By = (*l)[i].By.Add(rec.By, den)
}

// Take has the hits of rec, which is settled, not come back. It returns false if they are to
// come back no longer.
func (l *Lapsing) Take(rec Record, den int64) bool {
	if !l.Has(rec) {
		return false
	}
	i, _ := l.place(rec)
	if (*l)[i].By = (*l)[i].By.Sub(rec.By, den); (*l)[i].By == (Amount{}) {
		*l = slices.Delete(*l, i, i+1)
	}
	return true
}

// Lapse takes off those whose hits come back at now, and returns them.
func (l *Lapsing) Lapse(now int64) (lapsed []Record) {
	i, _ := l.place(Record{Ends: now + 1})
	lapsed, *l = (*l)[:i:i], (*l)[i:]
	return lapsed
}
