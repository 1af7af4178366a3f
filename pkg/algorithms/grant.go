package algorithms

import (
	"errors"
	"fmt"

	"example.org/rls/pkg/backends"
)

// LargestGrant is how many hits may be granted to a cell in which remaining hits remain; 0 or
// less if none may.
func (l *Limit) LargestGrant(remaining int64) int64 {
	return min(l.MaxGrant(), l.MaxRemaining()-remaining)
}

// CheckGrant reports whether so many hits may be granted to a cell in which remaining
// hits remain. Its error says what would be right.
func (l *Limit) CheckGrant(hits, remaining int64) error {
	switch largest := l.LargestGrant(remaining); {
	case hits < 1:
		return fmt.Errorf("a grant of %d hits grants nothing: want at least 1", hits)
	case hits <= largest:
		return nil
	case largest < 1 && l.Requests == 0:
		return errors.New("a limit of 0 takes no grant")
	case largest < 1:
		return fmt.Errorf("%d hits remain, which is the maximum after grants (%d): nothing can be granted now", remaining, l.MaxRemaining())
	case largest < l.MaxGrant():
		return fmt.Errorf("%d hits are too many: %d remain, and at most %d may remain after a grant, so at most %d can be granted now", hits, remaining, l.MaxRemaining(), largest)
	default:
		return fmt.Errorf("%d hits are too many: one grant has at most %d (10 times the limit of %d)", hits, largest, l.Requests)
	}
}

// Grant makes op, which l planned at op.Now for any charge, the operation that lets
// hits more pass than remain. The caller asks CheckGrant first; whatever it asks
// for, the operation leaves at most MaxRemaining.
//
// A grant on a window ends with the window: that of the clock, or the one that began
// at a hit. It pays the debt of an overdraft first. On a bucket it ends after a window, or after
// the time in which an empty bucket fills if that is longer. In a sliding log it ends a window
// later.
func (l *Limit) Grant(op *backends.Op, hits int64) {
	hits = min(max(hits, 0), l.MaxGrant())
	*op = op.Reset()
	op.Verb = backends.Grant
	op.By.Whole, op.Max.Whole = hits, int64(l.Requests)
	if l.row.burst != nil {
		op.By, op.Max = l.intervals(hits), l.meterMax(op.Now, 0)
		op.Until = op.Now + max(l.window, l.tolerance.Ceil())
	}
	if l.overdraws() { // a grant pays debt
		op.Max = backends.NoMax
	}
}

// prepareGrant derives the lowest value that a grant may leave.
func (l *Limit) prepareGrant() {
	most := max(0, l.MaxRemaining()-l.Capacity())
	l.cell.Least.Whole = -most
	if l.row.burst != nil {
		l.cell.Least = backends.Amount{}.Sub(l.intervals(most), l.cell.Den)
	}
}
