package backends

import (
	"math"
	"math/bits"
	"slices"
)

// Cell is the state of a Counter or a Meter. The zero Cell is an absent one.
type Cell struct {
	// Value is the count or the meter, less Limit.Shift. A negative one is credit ([Grant]):
	// of a Counter in hits, of a Meter in µs.
	Value  Amount
	Prev   int64 // with the span Sliding, the count of the window before Window
	Window int64 // with the spans Carried and Sliding, the number of the window of Value
	Until  int64 // when the cell ends; absent once Now >= Until
}

// CellOf is the Counter or the Meter that r, the reply to op, describes.
func CellOf(op *Op, r *Reply) Cell {
	c := Cell{Value: r.Value, Prev: r.Prev, Until: r.Until}
	switch {
	case op.Kind == Meter && r.Value.Whole < r.Now: // credit
		c.Value.Whole -= r.Now
	case op.Kind == Meter:
		c.Value = c.Value.Sub(op.Shift, op.Den)
	case op.Kind == Counter && op.numbersWindows():
		c.Window = op.Mark
	}
	return c
}

// numbersWindows reports whether one cell counts in all windows.
func (o *Op) numbersWindows() bool { return o.Span == Carried || o.Span == Sliding }

// Step applies op to the cell and returns the cell after it. It defines the effect of an
// operation on a Counter and a Meter for every store; stores written in Go call it.
//
// A clock that was ahead leaves values that the limit cannot reach: a meter above
// Op.Furthest, or, for a counter whose window starts at a hit, an end after Op.Until.
// Step takes a meter more than Skew above Furthest for Furthest, and such an end for
// Until. The returned cell is lowered so, even if op is denied, unless op is ReadOnly.
// A meter less far above Furthest was raised by a process whose clock is a little
// ahead: to lower it would give that process room again with each operation.
func (c Cell) Step(op *Op) (Cell, Reply) {
	found := c
	c, op = c.advance(op)
	ceiling := op.Ceiling(c.Prev)
	if op.Verb.Operates() {
		c, r := c.steer(op, ceiling)
		return c.stored(op), r
	}
	v, admitted := c.Value, op.Times
	var cut Amount
	before := op.Span == Sliding && c.Window > op.Mark // op is for the window before that of the cell
	switch op.Verb {
	case Refund, Undo:
		if before {
			c.Prev = max(0, c.Prev-op.By.Whole*op.Times)
		} else {
			v = refund(v, op)
		}
	case Count:
		v.Whole = min(v.Whole+op.By.Whole*op.Times, MaxValue)
		admitted = op.Fitting(ceiling.Whole, v.Whole)
	case Fill:
		if before {
			var prev Amount
			prev, cut = raise(Amount{Whole: c.Prev}, op, op.Max)
			c.Prev = prev.Whole
		} else {
			v, cut = raise(v, op, ceiling)
		}
	default:
		if op.overdraws() {
			v, admitted, cut = overdraw(v, op, ceiling)
		} else {
			v, admitted = charge(v, op, ceiling)
		}
	}
	reads := op.ReadOnly()
	charged := !reads && (admitted > 0 || op.Verb == Count || op.Overdraws())
	r := Reply{Now: op.Now, Admitted: admitted, Value: v, Prev: c.Prev, Until: c.ends(op, v, charged)}
	if cut != (Amount{}) {
		r.Account = &Account{Cut: cut}
	}
	switch {
	case reads:
		return found, r
	case op.Kind == Meter && v.Whole < op.Now: // credit
		v.Whole -= op.Now
	case op.Kind != Meter && c.Until == 0 && (!charged || op.Verb.GivesBack()): // nothing to give back
		return Cell{}, r
	case op.Kind != Meter && !charged:
		return c, r
	}
	return Cell{Value: v, Prev: c.Prev, Window: c.Window, Until: r.Until}.stored(op), r
}

// advance is the cell as op finds it, and op as it is for that cell.
func (c Cell) advance(op *Op) (Cell, *Op) {
	switch {
	case op.Kind == Meter:
		return c.shifted(op).meterAt(op), op
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

// windowAt is the count of all windows as it is in op's window. A clock that is ahead by at most
// one window has begun the next one: then op, which is in that window, too, ends with it.
func (c Cell) windowAt(op *Op) (Cell, *Op) {
	windows := op.Mark - c.Window
	switch {
	case c == (Cell{}) || windows > 1 && op.Span == Sliding:
		c = Cell{}
	case windows == -1:
		if op.Verb != Reset {
			later := *op
			later.Until += op.Window
			op = &later
		}
		return c, op
	case windows > 0 && op.Span == Carried:
		windows = min(windows, c.Value.Whole/op.Carry+1) // no overflow
		c.Value.Whole = max(0, c.Value.Whole-windows*op.Carry)
	case windows > 0:
		c.Prev, c.Value.Whole = max(0, c.Value.Whole), 0
	}
	c.Window = op.Mark
	return c, op
}

// stored is the cell after op as it is kept: a meter less its shift.
func (c Cell) stored(op *Op) Cell {
	if op.Kind == Meter && c.Value.Whole > 0 && op.Shift != (Amount{}) {
		c.Value = c.Value.Sub(op.Shift, op.Den)
	}
	return c
}

// shifted is the stored meter with op's shift. The denominator of op may be another than
// that of the operation that stored it.
func (c Cell) shifted(op *Op) Cell {
	if op.Shift == (Amount{}) {
		return c
	}
	if c.Value.Frac >= op.Den {
		c.Value = Amount{Whole: c.Value.Whole + 1}
	}
	if c.Value.Whole > 0 {
		c.Value = c.Value.Add(op.Shift, op.Den)
	}
	return c
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

// State is a cell of any kind, with its open reservations.
type State struct {
	Cell         // the Counter or the Meter; of a List the sum of its costs, and its end
	Log  Log     // of a List
	Open Lapsing // the cell is kept until the last of them ends, also one that has no hits
}

// Step applies op to the cell.
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

// StepHold applies op, which has a Hold, to the cell, and returns the reply and the record of
// its ID after it, which was rec before. It defines the effect of a reservation for every store.
func (s *State) StepHold(op *Op, rec Record) (after Record, r Reply) {
	_, after, r = s.Open.StepHold(op, rec, s.Step)
	return after, r
}

// Unused is the reply to o of a cell that does not exist.
func (o *Op) Unused() Reply { return new(State).Step(o) }

// meterAt is the meter as op finds it: at least Now, at most Furthest + Skew, and
// with credit below Now.
func (c Cell) meterAt(op *Op) Cell {
	if c.Value.Whole < 0 && op.Now < c.Until {
		c.Value.Whole += op.Now
		return c
	}
	if furthest := op.Furthest(); furthest.Add(Amount{Whole: Skew}, op.Den).Less(c.Value) {
		c.Value = furthest
	}
	if floor := (Amount{Whole: op.Now}); c.Value.Less(floor) {
		c.Value = floor
	}
	return c
}

// refund is v after op's refund. One that is no Undo does not lower credit.
func refund(v Amount, op *Op) Amount {
	found, floor := v, Amount{}
	if op.Kind == Meter {
		floor.Whole = op.Now
	}
	if found.Less(floor) && op.Verb != Undo {
		return found
	}
	for range op.Times {
		v = v.Sub(op.By, op.Den)
	}
	if v.Less(floor) && !found.Less(floor) {
		return floor
	}
	return v
}

// charge applies as many of op's charges to v as stay within ceiling. It returns
// the new value and the number of charges.
func charge(v Amount, op *Op, ceiling Amount) (after Amount, admitted int64) {
	for admitted < op.Times {
		next := v.Add(op.By, op.Den)
		if ceiling.Less(next) {
			break
		}
		v = next
		admitted++
	}
	if op.Kind == Counter {
		v.Whole = min(v.Whole, MaxValue)
	}
	return v, admitted
}

// overdraw applies the charge of an operation with an overdraft to v. It returns the value
// after it, the number of charges that fitted, and what was not charged.
func overdraw(v Amount, op *Op, ceiling Amount) (after Amount, admitted int64, cut Amount) {
	if !ceiling.Less(v.Add(op.Unit, op.Den)) {
		admitted = op.Times
	} else if op.Identified() {
		return v, 0, cut
	}
	after, cut = raise(v, op, ceiling.Add(op.Debt, op.Den))
	return after, admitted, cut
}

// raise raises v by op.By, but not above top, and returns what is left of By.
func raise(v Amount, op *Op, top Amount) (after, left Amount) {
	after = v.Add(op.By, op.Den)
	if op.Kind == Counter && MaxValue < top.Whole {
		top = Amount{Whole: MaxValue}
	}
	if top.Less(v) {
		top = v
	}
	if top.Less(after) {
		return top, after.Sub(top, op.Den)
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

// ends is when the cell ends after a step that arrived at v. For a counter
// that is absent it is when the cell would end.
func (c Cell) ends(op *Op, v Amount, charged bool) int64 {
	switch {
	case op.Kind == Meter:
		if v.Whole >= op.Now {
			return v.Ceil()
		} // else it is credit
	case op.Span == Carried:
		return op.CarriedUntil(v.Whole)
	case op.Span == Sliding, c.Until == 0, charged && op.Span == EveryHit && !op.Verb.GivesBack():
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

// Weighted is ceil(count × num / den), exactly: the part of the previous window's
// count that still lies in the rolling window. count >= 0, 0 <= num <= den,
// den > 0.
func Weighted(count, num, den int64) int64 {
	hi, lo := bits.Mul64(uint64(count), uint64(num))
	q, r := bits.Div64(hi, lo, uint64(den)) // num <= den, so q <= count fits
	if r > 0 {
		q++
	}
	return int64(q)
}

// Cost is one charge in a Log, or a grant.
type Cost struct {
	At   int64 // microseconds since the epoch
	Hits int64 // of a grant below 0
	// Number is Op.OwnMark of the charge. A clock that is behind changes At, and leaves Number.
	Number int64
}

// reserved reports whether the hits are of a reservation that nothing was given back of. Their
// number is above the times until the year 2112.
func (c Cost) reserved() bool { return c.Number >= MaxValue }

// Log is the state of a List: its charges, oldest first, in the order of At.
type Log []Cost

// Step applies op to the log in place and returns the log after it. It defines
// the effect of an operation on a List for every store.
//
// A clock that was set back leaves charges dated after Op.Now. Step takes them for
// charges of Op.Now. The returned log is without the costs that have left the window
// and with the new dates, even if op is denied, unless op is ReadOnly.
func (l Log) Step(op *Op) (Log, Reply) {
	found, keep := l, 0
	at, gone := op.Dating()
	for keep < len(l) && l[keep].At <= gone {
		keep++
	}
	if l = l[keep:]; !op.ReadOnly() {
		l = append(found[:0], l...)
		for i := len(l) - 1; i >= 0 && l[i].At > op.Now; i-- {
			l[i].At = at
		}
	}
	var used int64
	for _, e := range l {
		used += e.Hits
	}
	admitted := op.Times
	var account *Account
	switch {
	case op.Verb.Operates():
		l, used = l.steer(op, used)
	case op.Verb.GivesBack():
		l, used = l.giveBack(used, op)
	case op.Verb == Fill:
		room := max(0, min(op.By.Whole, op.roomAbove(used)))
		l, used = l.add(at, room, op), used+room
		if room < op.By.Whole {
			account = &Account{Cut: Amount{Whole: op.By.Whole - room}}
		}
	default:
		admitted = fits(used, op)
		l, used = l.add(at, op.By.Whole*admitted, op), used+op.By.Whole*admitted
	}
	r := Reply{Now: op.Now, Admitted: admitted, Value: Amount{Whole: used}, Until: op.Now, RetryAt: op.Now, Account: account}
	if n := len(l); n > 0 {
		r.Until = op.Leaves(min(l[n-1].At, at))
	}
	if admitted < op.Times {
		r.RetryAt = l.retryAt(used, op)
	}
	if op.ReadOnly() {
		return found, r
	}
	return l, r
}

// Dating returns the time that a charge of op, on a List, gets, and the latest time of costs
// that have left the window.
func (o *Op) Dating() (at, gone int64) {
	if o.Parts == 0 {
		return o.Now, o.Now - o.Window
	}
	part := o.part(o.Now)
	return o.starts(part), o.starts(part-o.Parts) - 1
}

// part is the number of the part of the window in which at lies.
func (o *Op) part(at int64) int64 {
	hi, lo := bits.Mul64(uint64(at), uint64(o.Parts))
	part, _ := bits.Div64(hi, lo, uint64(o.Window))
	return int64(part)
}

// starts is the first µs of a part of the window, 0 for parts before the epoch.
func (o *Op) starts(part int64) int64 {
	hi, lo := bits.Mul64(uint64(max(part, 0)), uint64(o.Window))
	at, rest := bits.Div64(hi, lo, uint64(o.Parts))
	if rest > 0 {
		at++
	}
	return int64(at)
}

// Leaves is when a cost of that time leaves the window of o, which is on a List.
func (o *Op) Leaves(at int64) int64 {
	if o.Parts == 0 {
		return at + o.Window
	}
	return o.starts(o.part(at) + o.Parts + 1)
}

// Arrived is a time of costs that leave the window of o, which is on a List, at until.
func (o *Op) Arrived(until int64) int64 {
	if o.Parts == 0 {
		return until - o.Window
	}
	return o.starts(o.part(until) - o.Parts - 1)
}

// add appends a cost of hits to the log, or adds it to the newest one of the same part.
func (l Log) add(at, hits int64, op *Op) Log {
	switch n := len(l); {
	case hits == 0:
		return l
	case n > 0 && op.Parts > 0 && l[n-1].At == at && l[n-1].Number == at && l[n-1].Hits > 0:
		l[n-1].Hits += hits
		return l
	}
	return append(l, Cost{at, hits, op.OwnMark()})
}

// roomAbove is what is left of op.Max above used, which may be negative.
func (o *Op) roomAbove(used int64) int64 { return min(o.Max.Whole, math.MaxInt64/2) - used }

// fits says how many of op.Times fit a log whose costs sum to used.
func fits(used int64, op *Op) int64 {
	room := op.roomAbove(used)
	switch {
	case room < 0:
		return 0
	case op.By.Whole == 0:
		return op.Times
	}
	return min(op.Times, room/op.By.Whole)
}

// giveBack takes op's costs off the newest charges, or as Op.Mark and Limit.Oldest say. Charges of
// reservations come last unless Op.Mark names one; the rest of that charge is then like any other
// charge. Grants stay, and a refund that is no Undo does not add to them: it leaves the log
// empty at least.
func (l Log) giveBack(used int64, op *Op) (Log, int64) {
	cost := op.By.Whole * op.Times
	if op.Verb != Undo {
		cost = min(cost, max(used, 0))
	}
	oldest := op.Oldest && op.Verb != Undo
	for n := 2 * len(l); n > 0 && cost > 0; n-- {
		e := &l[(n-1)%len(l)]
		if oldest {
			e = &l[(2*len(l)-n)%len(l)]
		}
		if e.Hits < 0 || op.Mark > 0 && e.Number != op.Mark || op.Mark == 0 && e.reserved() && n > len(l) {
			continue
		}
		take := min(cost, e.Hits)
		e.Hits -= take
		cost -= take
		used -= take
		if op.Mark > 0 && e.reserved() {
			e.Number = e.At
		}
	}
	return slices.DeleteFunc(l, func(e Cost) bool { return e.Hits == 0 }), used
}

// retryAt is the moment at which enough of the oldest costs have left for one
// more op.By.
func (l Log) retryAt(used int64, op *Op) int64 {
	if op.By.Whole > op.Max.Whole {
		return math.MaxInt64
	}
	for i, e := range l {
		used -= e.Hits
		last := i+1 == len(l) || e.At < min(l[i+1].At, op.Now) // of its time: a grant may leave with a cost
		if last && used+op.By.Whole <= op.Max.Whole {
			return op.Leaves(min(e.At, op.Now))
		}
	}
	return math.MaxInt64
}
