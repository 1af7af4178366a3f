package backends

import "slices"

// Cell is the state of a Counter or a Meter. The zero Cell is an absent one.
type Cell struct {
	// Value is the count or the meter, less Limit.Shift. A negative one is credit ([Grant]):
	// of a Counter in hits, of a Meter in µs.
	Value  Amount
	Prev   int64 // with the span Sliding, the count of the window before Window
	Window int64 // with the spans Carried and Sliding, the number of the window of Value
	// Base, with the span Sliding, is the count before the grants in Window, 0 without one. The next
	// window counts with it if Value is lower by then.
	Base  int64
	Until int64 // when the cell ends; absent once Now >= Until
}

// State is a cell of any kind, with its open reservations.
type State struct {
	Cell         // the Counter or the Meter; of a List the sum of its costs, and its end
	Log  Log     // of a List
	Open Lapsing // the cell is kept until the last of them ends, also one that has no hits
}

// Ends is when the cell and its open reservations have ended, in µs since the epoch; 0 without any.
func (s *State) Ends() int64 { return max(s.Until, s.Open.Until()) }

// Clone is a copy of s, whose slices operations change in place.
func (s State) Clone() State {
	s.Log, s.Open.Held = slices.Clone(s.Log), slices.Clone(s.Open.Held)
	return s
}

// Step applies op, which has no Hold, to the cell.
func (s *State) Step(op *Op) (r Reply) {
	if op.Verb == Reset {
		s.Open = Lapsing{}
	}
	if op.Kind != List {
		s.Cell, r = s.Cell.Step(op)
		return r
	}
	s.Log, r = s.Log.Step(op)
	switch {
	case op.ReadOnly():
	case len(s.Log) == 0:
		s.Cell = Cell{}
	default:
		s.Cell = Cell{Value: r.Value, Until: r.Until}
	}
	return r
}

// StepHold applies op to the cell, and returns the record of its ID after it, which was rec before, and
// the reply. It defines the effect of a reservation for every store.
func (s *State) StepHold(op *Op, rec Record) (after Record, r Reply) {
	return s.Open.stepHold(op, rec, s.Step)
}

// Unused is the reply to o of a cell that does not exist.
func (o *Op) Unused() Reply { return new(State).Step(o) }

// Step applies op to the cell and returns the cell after it. It defines the effect of an
// operation on a Counter and a Meter for every store; stores written in Go call it. It has four
// parts: advance, the room (Op.Ceiling), the verb (Op.apply) and store.
//
// A clock that was ahead leaves values that the limit cannot reach: a meter above
// Op.Furthest, or, for a counter whose window starts at a hit, an end after Op.Until.
// Step takes a meter more than Skew above Furthest for Furthest, and such an end for
// Until. The returned cell is lowered so, even if op is denied, unless op is ReadOnly.
// A meter less far above Furthest was raised by a process whose clock is a little
// ahead: to lower it would give that process room again with each operation.
func (c Cell) Step(op *Op) (after Cell, r Reply) {
	after, op = c.advance(op)
	if op.Span == Sliding && after.Window > op.Mark && (op.Verb.GivesBack() || op.Verb == Fill) { // of the window before
		op.apply(&r, Amount{Whole: after.Prev}, op.ceilingBefore(after.Value.Whole))
		after.Prev, r.Value = r.Value.Whole, after.Value
	} else {
		if op.Verb == Grant && op.Span == Sliding {
			after.Base = max(after.Base, after.Value.Whole)
		}
		op.apply(&r, after.Value, op.Ceiling(after.Prev))
	}
	reads := op.ReadOnly()
	charged := !reads && (r.Admitted > 0 || op.Verb == Count || op.Overdraws())
	r.Prev, r.Until = after.Prev, after.ends(op, r.Value, charged)
	if reads {
		return c, r
	}
	return after.store(op, &r, charged), r
}

// advance is the cell as op finds it, and op as it is for that cell.
func (c Cell) advance(op *Op) (Cell, *Op) {
	if op.Verb == Reset {
		c = Cell{}
	}
	switch {
	case op.Kind == Meter:
		return c.meterAt(op), op
	case op.numbersWindows():
		return c.windowAt(op)
	case op.Now >= c.Until:
		return Cell{}, op
	case op.Span == FirstHit && op.Verb.GivesBack() && op.Mark > 0 && min(c.Until, op.Until) > op.Mark:
		look := op.Look() // the window of the charge is over
		op = &look
	}
	if op.Span == FirstHit || op.Span == EveryHit {
		c.Until = min(c.Until, op.Until)
	}
	return c, op
}

// numbersWindows reports whether one cell counts in all windows.
func (o *Op) numbersWindows() bool { return o.Span == Carried || o.Span == Sliding }

// windowAt is the count of all windows as it is in op's window. A clock that is ahead by at most
// one window has begun the next one: then op, which is in that window, too, ends with it. An op
// that is sent after its window, and comes after the next one, too, changes nothing.
func (c Cell) windowAt(op *Op) (Cell, *Op) {
	windows := op.Mark - c.Window
	switch {
	case c == (Cell{}) || windows > 1 && op.Span == Sliding:
		c = Cell{}
	case windows == -1, windows < 0 && op.Span == Sliding && op.Now >= op.Until-op.Window:
		later := *op
		if later.Until -= windows * op.Window; windows < -1 { // the window of op counts no longer
			later.By = Amount{}
		}
		return c, &later
	case windows > 0 && op.Span == Carried:
		windows = min(windows, c.Value.Whole/op.Carry+1) // no overflow
		c.Value.Whole = max(0, c.Value.Whole-windows*op.Carry)
	case windows > 0:
		c.Prev, c.Value.Whole, c.Base = max(0, c.Value.Whole, c.Base), 0, 0
	}
	c.Window = op.Mark
	return c, op
}

// meterAt is the stored meter, with op's shift, as op finds it: at least Now, at most Furthest +
// Skew, and with credit below Now. The operation that stored it may have had another denominator.
func (c Cell) meterAt(op *Op) Cell {
	if op.Shift != (Amount{}) && c.Value.Frac >= op.Den {
		c.Value = Amount{Whole: c.Value.Whole + 1}
	}
	if c.Value.Whole > 0 {
		c.Value = c.Value.Add(op.Shift, op.Den)
	}
	if c.Value.Whole < 0 && op.Now < c.Until {
		c.Value.Whole += op.Now
		return c
	}
	if furthest := op.Furthest(); furthest.Add(Amount{Whole: Skew}, op.Den).Less(c.Value) {
		c.Value = furthest
	}
	if floor := op.floor(); c.Value.Less(floor) {
		c.Value = floor
	}
	return c
}

// floor is the value of an empty cell.
func (o *Op) floor() (empty Amount) {
	if o.Kind == Meter {
		empty.Whole = o.Now
	}
	return empty
}

// apply applies o's verb to v, the value of a cell of any kind that may rise to ceiling. It puts
// into r the value after it, how many of o.Times fit, and the part that was not charged.
func (o *Op) apply(r *Reply, v, ceiling Amount) {
	var cut Amount
	r.Now, r.Admitted = o.Now, o.Times
	switch o.Verb {
	case Reset:
		r.Value = o.floor()
	case Grant:
		r.Value = o.grant(v, ceiling)
	case Refund, Undo:
		r.Value = o.refund(v)
	case Count:
		r.Value.Whole = min(v.Whole+o.By.Whole*o.Times, MaxValue)
		r.Admitted = o.Fitting(ceiling.Whole, r.Value.Whole)
	case Fill:
		r.Value, cut = o.raise(v, ceiling)
	default:
		if o.overdraws() {
			r.Value, r.Admitted, cut = o.overdraw(v, ceiling)
		} else {
			r.Value, r.Admitted = o.charge(v, ceiling)
		}
	}
	if cut != (Amount{}) {
		r.Account = &Account{Cut: cut}
	}
}

// grant is v after a Grant. A cell that was granted more before stays as it is.
func (o *Op) grant(v, ceiling Amount) Amount {
	least := o.floor().Add(o.Least, o.Den)
	if v.Less(least) {
		least = v
	}
	if ceiling.Less(v) {
		v = ceiling
	}
	if v = v.Sub(o.By, o.Den); v.Less(least) {
		return least
	}
	return v
}

// refund is v after a Refund, which does not lower credit, or an Undo. In a List an Undo gives
// back all the credit that its charge took.
func (o *Op) refund(v Amount) Amount {
	floor := o.floor()
	if v.Less(floor) && o.Verb != Undo {
		return v
	}
	after := v
	for range o.Times {
		after = after.Sub(o.By, o.Den)
	}
	if after.Less(floor) && !v.Less(floor) && (o.Kind != List || o.Verb != Undo) {
		return floor
	}
	return after
}

// charge applies as many of op's charges to v as stay within ceiling. It returns
// the new value and the number of charges.
func (o *Op) charge(v, ceiling Amount) (after Amount, admitted int64) {
	for admitted < o.Times {
		next := v.Add(o.By, o.Den)
		if ceiling.Less(next) {
			break
		}
		v = next
		admitted++
	}
	if o.Kind == Counter {
		v.Whole = min(v.Whole, MaxValue)
	}
	return v, admitted
}

// overdraw applies the charge of an operation with an overdraft to v. It returns the value
// after it, the number of charges that fitted, and the part that was not charged.
func (o *Op) overdraw(v, ceiling Amount) (after Amount, admitted int64, cut Amount) {
	if !ceiling.Less(v.Add(o.Unit, o.Den)) {
		admitted = o.Times
	} else if o.Identified() {
		return v, 0, cut
	}
	after, cut = o.raise(v, ceiling.Add(o.Debt, o.Den))
	return after, admitted, cut
}

// raise raises v by op.By, but not above top, and returns the part of By that is left.
func (o *Op) raise(v, top Amount) (after, left Amount) {
	after = v.Add(o.By, o.Den)
	if o.Kind == Counter && MaxValue < top.Whole {
		top = Amount{Whole: MaxValue}
	}
	if top.Less(v) {
		top = v
	}
	if top.Less(after) {
		return top, after.Sub(top, o.Den)
	}
	return after, left
}

// Fitting is how many of op.Times fit below ceiling, if after is the count after
// all of them were charged. Stores use it for Count, where they charge
// before they know how many fit.
func (o *Op) Fitting(ceiling, after int64) int64 {
	switch {
	case after <= ceiling:
		return o.Times
	case o.By.Whole == 0:
		return 0
	}
	beyond := (after - ceiling + o.By.Whole - 1) / o.By.Whole
	return max(0, o.Times-beyond)
}

// store is the cell, which op finds as c, as it is kept after op's reply r.
func (c Cell) store(op *Op, r *Reply, charged bool) Cell {
	switch {
	case op.Verb == Reset, op.Kind != Meter && c.Until == 0 && (!charged || op.Verb.GivesBack()): // nothing to give back
		return Cell{}
	case op.Kind != Meter && !charged:
		return c
	}
	c.Value, c.Until = r.Value, r.Until
	if op.Kind == Meter {
		c.Value = op.stored(r)
	}
	return c
}

// stored is the meter of the reply r as it is kept: less its shift, or as credit.
func (o *Op) stored(r *Reply) Amount {
	v := r.Value
	if v.Whole < r.Now {
		v.Whole -= r.Now
		return v
	}
	return v.Sub(o.Shift, o.Den)
}

// ends is when the cell ends after a step that arrived at v. For a counter
// that is absent it is when the cell would end.
func (c Cell) ends(op *Op, v Amount, charged bool) int64 {
	switch {
	case op.Kind == Meter && v.Whole >= op.Now:
		return v.Ceil()
	case op.Span == Carried:
		return op.CarriedUntil(v.Whole)
	case op.Kind == Meter && op.Verb == Grant, op.Kind == Counter && c.Until == 0,
		op.Span == Sliding, op.Span == EveryHit && charged && op.Verb <= Fill:
		return op.Until
	}
	return c.Until
}

// CarriedUntil is when the cell of o, which has the span Carried, ends with that count. A debt
// lasts for the windows that a tenth of the limit would need, so that it is still there after the
// limit was lowered to that, and at most MaxWait.
func (o *Op) CarriedUntil(count int64) int64 {
	if count <= o.Carry {
		return o.Until
	}
	windows := min((count-1)/max(1, o.Carry/10), MaxWait/o.Window+1) // no overflow
	return min(o.Until+windows*o.Window, o.Now+MaxWait)
}

// Reported is op's Counter or Meter, known as c, as r, the reply to op, describes it. With the span
// Sliding it is that of op's window, also if r tells of the next one.
func (c Cell) Reported(op *Op, r *Reply) Cell {
	after := Cell{Value: r.Value, Prev: r.Prev, Until: r.Until}
	switch {
	case op.Kind == Meter:
		after.Value = op.stored(r)
	case op.Precedes(r):
		c.Value.Whole = r.Prev
		return c
	case op.Kind == Counter && op.numbersWindows():
		after.Window = op.Mark
	}
	return after
}

// Try is the reply to op of the cell, which is not charged. ok is false if the cell has a
// value that op's limit cannot reach, after a limit was raised or the clock went back: a
// store lowers such a cell first.
func (c Cell) Try(op *Op) (r Reply, ok bool) {
	look, once := op.Look(), *op
	_, found := c.Step(&look)
	if once.Verb == Count {
		once.Verb = Charge
	}
	after, r := c.Step(&once)
	if r.Admitted == 0 && r.Value != c.Value || after.Until < c.Until {
		return r, false
	}
	r.Value, r.Until, r.Recalled = found.Value, found.Until, true
	return r, true
}

// Weighted is ceil(count × num / den), exactly: the part of the previous window's
// count that still lies in the rolling window. count >= 0, and num / den is a [Limit.Weight].
func Weighted(count, num, den int64) int64 {
	rest := count % den
	return count/den*num + (rest*num+den-1)/den
}
