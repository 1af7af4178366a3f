package backends_test

import (
	"testing"

	"example.org/rls/pkg/backends"
)

// FuzzStep applies an operation to any cell. The promises of Step hold: no value
// lies beyond Op.Furthest or Op.Until, a counter ends in the future and a debt within MaxWait, a denied operation raises nothing, one that only
// reads changes nothing, and a look at the cell afterwards shows the same value.
func FuzzStep(f *testing.F) {
	f.Add(uint8(0), uint8(0), uint8(1), int64(5), int64(100), int64(10), int64(3), int64(4), int64(20), int64(2))
	f.Add(uint8(0), uint8(2), uint8(0), int64(5), int64(1000), int64(10), int64(3), int64(9), int64(20), int64(2))
	f.Add(uint8(1), uint8(0), uint8(0), int64(500), int64(501), int64(10), int64(3), int64(40), int64(30), int64(7))
	f.Add(uint8(0), uint8(0), uint8(7), int64(500), int64(501), int64(10), int64(3), int64(40), int64(30), int64(7))
	f.Add(uint8(1), uint8(0), uint8(6), int64(500), int64(501), int64(10), int64(3), int64(40), int64(30), int64(7))
	f.Add(uint8(1), uint8(0), uint8(2), int64(500), int64(501), int64(10), int64(3), int64(40), int64(30), int64(7))
	f.Add(uint8(0), uint8(3), uint8(0), int64(5_000_000), int64(501), int64(10), int64(3), int64(0), int64(1<<40), int64(1<<49))
	f.Add(uint8(0), uint8(3), uint8(0), int64(1<<51), int64(1), int64(10), int64(3), int64(1<<31), int64(1<<31), int64(1))
	f.Fuzz(func(t *testing.T, kind, span, way uint8, value, until, now, by, ceiling, ahead, times int64) {
		limit := func(n, bound int64) int64 { return max(n, -n, 0) % bound }
		op := backends.Op{
			Limit: &backends.Limit{Kind: backends.Kind(kind % 2), Span: backends.Span(span % 5), Den: 3},
			Key:   "k",
			Now:   limit(now, 1<<50), Times: 1 + limit(times, backends.MaxTimes),
			Verb: []backends.Verb{backends.Charge, backends.Count, backends.Refund, backends.Charge, backends.Count, backends.Undo}[way%6]}
		op.Until = op.Now + 1 + limit(ahead, 1<<50)
		op.By, op.Max = backends.Amount{Whole: limit(by, backends.MaxCost)}, backends.Amount{Whole: limit(ceiling, backends.MaxValue)}
		cell := backends.Cell{Value: backends.Amount{Whole: limit(value, backends.MaxValue)}, Until: limit(until, 1<<51)}
		if op.Kind == backends.Meter {
			if op.Verb == backends.Count {
				op.Verb = backends.Charge
			}
			op.By.Frac, op.Max.Frac, cell.Value.Frac = limit(by, 3), limit(ceiling, 3), limit(value, 3)
			op.Max.Whole += op.Now
			op.Full = op.Max.Add(backends.Amount{Whole: limit(ahead, 1<<50) - op.Now, Frac: limit(ahead, 3)}, op.Den)
		} else {
			op.Den = 1
		}
		carried := op.Kind == backends.Counter && op.Span == backends.Carried
		if carried {
			if op.Verb == backends.Count {
				op.Verb = backends.Charge
			}
			op.Times, op.Unit.Whole = 1, 1
			op.Mark, op.Window = limit(ahead, 1<<32), 1+limit(times, 1<<50)
			op.Carry, op.Debt.Whole = 1+limit(ceiling, 1<<32), limit(until, backends.MaxValue)
			cell.Window = limit(until, 1<<32)
		}
		sliding := op.Kind == backends.Counter && op.Span == backends.Sliding
		if sliding {
			op.Mark, op.Window = limit(ahead, 1<<32), 1000+limit(times, 1<<48)
			cell.Window, cell.Prev = op.Mark+limit(until, 3)-1, limit(value, backends.MaxValue)
		}
		if way%12 > 5 && !carried { // credit
			cell.Value.Whole = -limit(value, 1<<45)
			checkCredit(t, cell, &op)
			return
		}
		after, r := cell.Step(&op)
		if r.Err != nil || r.Now != op.Now || r.Admitted < 0 || r.Admitted > op.Times || r.Value.Whole < 0 || r.Value.Frac < 0 || r.Value.Frac >= op.Den {
			t.Fatalf("%+v on %+v: %+v", op, cell, r)
		}
		switch {
		case op.Kind == backends.Meter:
			if op.Furthest().Add(backends.Amount{Whole: backends.Skew}, op.Den).Less(r.Value) || r.Value.Whole < op.Now || after.Value != r.Value && !op.ReadOnly() {
				t.Fatalf("%+v on %+v: %+v", op, cell, r)
			}
		case carried && r.Until > max(op.Until+op.Window, op.Now+backends.MaxWait):
			t.Fatalf("%+v on %+v: it ends after 100 years, %+v", op, cell, r)
		case sliding && r.Until > op.Until+op.Window,
			op.Span != backends.Fixed && !carried && !sliding && r.Until > op.Until,
			r.Until <= op.Now, r.Value.Whole > backends.MaxValue:
			t.Fatalf("%+v on %+v: %+v", op, cell, r)
		case op.Verb != backends.Count && !op.Verb.GivesBack() && !carried && r.Admitted > 0 && r.Value.Whole > op.Max.Whole:
			t.Fatalf("%+v on %+v: charged beyond its max, %+v", op, cell, r)
		}
		look := op.Look()
		if again, seen := after.Step(&look); seen.Value != r.Value || again != after || op.ReadOnly() && after != cell {
			t.Fatalf("%+v on %+v: %+v, and then %+v", op, cell, r, seen)
		}
	})
}

// checkCredit applies op to a cell that may have credit: charges use up the credit one
// by one, a refund leaves it, and giving back a charge restores it.
func checkCredit(t *testing.T, cell backends.Cell, op *backends.Op) {
	t.Helper()
	look := op.Look()
	_, before := cell.Step(&look)
	after, r := cell.Step(op)
	charged := before.Value
	for range r.Admitted {
		charged = charged.Add(op.By, op.Den)
	}
	_, again := after.Step(&look)
	floor := backends.Amount{}
	if op.Kind == backends.Meter {
		floor.Whole = op.Now
	}
	credit := before.Value.Less(floor)
	switch {
	case again.Value != r.Value:
		t.Fatalf("%+v on %+v: %+v, and then %+v", op, cell, r, again)
	case op.Verb.GivesBack() && credit && op.Verb != backends.Undo && r.Value != before.Value, op.Verb.GivesBack() && before.Value.Less(r.Value):
		t.Fatalf("%+v on %+v, a refund: %+v, was %+v", op, cell, r, before)
	case !op.Verb.GivesBack() && op.Verb != backends.Count && r.Value != charged:
		t.Fatalf("%+v on %+v: %+v, was %+v", op, cell, r, before)
	}
	if op.Verb.GivesBack() || op.Verb == backends.Count || op.Span == backends.FirstHit || !r.Value.Less(floor) {
		return
	}
	back := op.Inverse(0)
	if back.Times = r.Admitted; back.Times == 0 {
		return
	}
	if _, undone := after.Step(&back); undone.Value != before.Value {
		t.Fatalf("%+v on %+v, given back: %+v, was %+v", op, cell, undone, before)
	}
}

func TestShortKeysAreDistinct(t *testing.T) {
	long := make([]byte, 1000)
	seen := map[string]string{}
	for _, key := range []string{"", "a", string(long[:63]), string(long[:64]), string(long[:65]), string(long), backends.ShortKey(string(long), 64)[:64]} {
		short := backends.ShortKey(key, 64)
		if other, ok := seen[short]; ok || len(short) > 65 {
			t.Errorf("keys of %d and %d bytes share a name of %d bytes", len(key), len(other), len(short))
		}
		seen[short] = key
	}
}

func TestTextKeysKeepTheirSlot(t *testing.T) {
	long := string(make([]byte, 1000))
	one, two, other := backends.TextKey("a{tag"+long+"}1"), backends.TextKey("b{tag"+long+"}2"), backends.TextKey("a{gat"+long+"}1")
	if one == two || backends.HashTag(one) != backends.HashTag(two) || backends.HashTag(one) == backends.HashTag(other) {
		t.Errorf("%s\n%s\n%s", one, two, other)
	}
	if !backends.IsTextKey(one) || backends.IsTextKey("a") || len(one) > 226 {
		t.Errorf("%s has %d bytes", one, len(one))
	}
}

// TestOverdraftBesideReservations: on a cell whose reservations lapse, a charge without a
// reservation goes into debt, also in a group that does not pass. One that reserves does not.
func TestOverdraftBesideReservations(t *testing.T) {
	for id, want := range map[string]int64{"": 25, "0123456789abcdef": 10} {
		op := backends.Op{
			Limit: &backends.Limit{Unit: backends.Amount{Whole: 1}, Den: 1, Debt: backends.Amount{Whole: 90}}, Now: 1, Until: 100, By: backends.Amount{Whole: 15}, Max: backends.Amount{Whole: 10}, Times: 1,
			Group: 1, Hold: &backends.Hold{ID: id, GiveBack: true}}
		s := backends.State{Cell: backends.Cell{Value: backends.Amount{Whole: 10}, Until: 100}}
		b := backends.Batch{Ops: []backends.Op{op, op}, Replies: make([]backends.Reply, 2)}
		b.Replies[0] = s.Step(&op)
		if b.Decide(); s.Value.Whole != want || b.Charged(0) != (want > 10) {
			t.Errorf("ID %q: %d hits, charged %v in a group that does not pass; want %d hits", id, s.Value.Whole, b.Charged(0), want)
		}
	}
}
