package split_test

import (
	"testing"
	"time"

	"example.org/rls/pkg/backends"
)

// held is op with a reservation.
func held(op backends.Op, id string) backends.Op {
	op.Hold = &backends.Hold{Key: op.Key + "|hold", ID: id, TTL: time.Hour.Microseconds()}
	return op
}

// hits is op with another cost.
func hits(op backends.Op, n int64) backends.Op {
	op.By.Whole, op.Unit.Whole = n, 1
	return op
}

const (
	firstID  = "0123456789abcdef"
	secondID = "fedcba9876543210"
)

// TestReservationsInTwoStores: a refused group or batch leaves no reservation and no hits, in
// either store. What settles or cancels a reservation, or charges into debt, stays.
func TestReservationsInTwoStores(t *testing.T) {
	for _, all := range []bool{false, true} {
		_, _, s := inTwo(t)
		hour, second, full := charge("hour", false, 50), charge("second", true, 50), charge("full", true, 1)
		debt := hits(charge("debt", false, 3), 5)
		debt.Debt = backends.Amount{Whole: 100}
		ask := func(ops ...backends.Op) *backends.Batch {
			for i := range ops {
				if !all {
					ops[i].Group = 1
				}
			}
			return apply(t, s, all, ops...)
		}
		want := func(hours, seconds, debts int64) {
			t.Helper()
			if a, b, c := count(t, s, hour), count(t, s, second), count(t, s, debt); a != hours || b != seconds || c != debts {
				t.Errorf("all or nothing %v: %d, %d and %d hits, want %d, %d and %d", all, a, b, c, hours, seconds, debts)
			}
		}
		ask(held(hits(hour, 30), firstID), held(hits(second, 20), firstID))
		want(30, 20, 0)
		b := ask(held(hits(hour, 10), secondID), held(hits(second, 10), secondID), full)
		if want(30, 20, 0); b.Refused != all || b.Replies[0].HoldState() != backends.NoHold {
			t.Errorf("all or nothing %v: refused %v, reservation %v", all, b.Refused, b.Replies[0].HoldState())
		}
		b = ask(held(hits(hour, 7), secondID), held(hits(second, 8), secondID), debt)
		if want(37, 28, 5); b.Replies[0].HoldState() != backends.Held || b.Replies[1].HoldState() != backends.Held {
			t.Errorf("all or nothing %v: the ID of a refused reservation is not new: %+v", all, b.Replies)
		}
		ask(debt, held(hits(hour, 31), firstID), held(hits(second, 1), firstID), full)
		want(38, 9, 10)
		cancel := held(hits(hour, 1), secondID)
		cancel.Verb = backends.Refund
		if b = ask(full, cancel, held(hits(second, 0), secondID)); b.Replies[1].HoldState() != backends.Settled {
			t.Errorf("all or nothing %v: a cancellation beside a full limit gets %+v", all, b.Replies[1])
		}
		want(31, 1, 10)
	}
}
