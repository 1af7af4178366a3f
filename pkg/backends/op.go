// Package backends is the vocabulary that strategies and stores share.
//
// A strategy (pkg/algorithms) plans an [Op]: one conditional step on one cell.
// A [Store] applies a [Batch] of operations atomically (cell by cell, group by
// group, or all or nothing) and fills in a [Reply] for each. [Cell.Step] and
// [Log.Step] define the result of a step in Go, and [Batch.Decide] the
// operations of a batch that are charged. test/backendtest compares every
// store with these definitions. So N strategies on M stores cost N + M pieces of
// code, and this package does not know rate limits.
//
// All times are microseconds since the Unix epoch on the store's clock
// ([Store.Now]), all durations microseconds. Microseconds since the epoch stay
// below 2^53 until the year 2255, so a store that computes in doubles (Redis'
// Lua) loses no digit.
package backends

// Kind is the kind of state in a cell; it decides how a step changes the cell.
type Kind uint8

const (
	// Counter is the number of hits in a window; a step raises it by Op.By.
	Counter Kind = iota
	// Meter is a point in time that a step raises by Op.By from at least
	// Op.Now: GCRA's theoretical arrival time, the moment at which the tokens
	// of a bucket are complete again. A meter that is not in the future is an
	// absent cell.
	Meter
	// List is a list of timestamped costs; a step appends one if the costs of
	// the last Limit.Window stay within Op.Max.
	List
)

// Span says when a Counter's cell ends. A Meter ends when its point in time has
// come, a List when its newest cost has left the window.
type Span uint8

const (
	// Fixed: the cell ends at Op.Until whatever happens to it. Its key names
	// the window, so the store may keep it longer (jitter) without harm.
	Fixed Span = iota
	// FirstHit: the cell ends at the Op.Until of the step that created it.
	FirstHit
	// EveryHit: each step that charges sets the end to its own Op.Until.
	EveryHit
	// Carried: one cell counts in all windows, which Op.Mark numbers. A window begins with
	// the hits that exceeded Limit.Carry in the window before. The cell ends with its window if
	// no hits exceed it, else as [Op.CarriedUntil] says: another limit of the cell may have a
	// smaller Carry.
	Carried
	// Sliding: one cell counts in all windows, which Op.Mark numbers. A window begins with 0, and
	// the cell keeps the count of the window before. The part of that count which still lies in
	// the rolling window is taken off Op.Max (Op.Ceiling). The cell ends a window after its
	// window. A Refund, an Undo and a Fill of the window before change the count of that window; a
	// Fill as far as the part of it that lies in the rolling window leaves Op.Max.
	Sliding
)

const (
	// MaxCost bounds Op.By.Whole of a Counter and a List, either way.
	MaxCost int64 = 1 << 40
	// MaxTimes bounds Op.Times.
	MaxTimes int64 = 256
	// Skew is the difference in µs by which the Now of operations may be out of
	// order when they reach a store: clocks of processes differ, and some
	// operations travel longer than others. Within it no limit admits more.
	Skew int64 = 1_000_000
	// MaxWait is the longest time in µs, 100 years of 365 days, for which the hits of a cell
	// count beyond now, and the longest wait that a decision tells.
	MaxWait int64 = 100 * 365 * 24 * 60 * 60 * 1_000_000
)

// Verb says what an operation does to its cell. A Grant and a Reset are for operators: they are
// decided alone, so they have no Group and are in no all-or-nothing batch. Every decorator that
// remembers the cell forgets it when the operation passes.
type Verb uint8

const (
	// Charge raises the cell by Op.By if it fits. With Op.By 0 it only reads.
	Charge Verb = iota
	// Count, for a Counter, is a Charge that is made although it does not fit, as Envoy's fixed
	// windows count the hits that they deny.
	Count
	// Fill charges as much of Op.By as fits, and always counts as admitted.
	Fill
	// Refund gives Op.By back: the cell is lowered, not below its floor (0, or Now for a Meter),
	// and a list loses its newest costs. A refund always fits.
	Refund
	// Undo is a Refund of a charge of a moment ago. It also gives back the credit that the
	// charge took.
	Undo
	// Grant lets hits of the amount Op.By pass beyond the hits that remain. A cell above
	// Op.Max, in which denied hits were counted, is first lowered to Op.Max. Then every
	// cell is lowered by Op.By, but not below Limit.Least.
	//
	// A cell below its floor (0, or Now for a Meter) has credit. Hits use it up first,
	// and refunds leave it as it is. A Counter's credit ends with its cell, and counts as
	// 0 once its window is over. A Meter's credit does not move with time and ends at
	// Op.Until; then the Meter goes on from Now. In a List the grant is a negative cost,
	// which leaves as any other.
	Grant
	// Reset removes the cell. See [Op.Reset].
	Reset
)

// GivesBack reports whether v is Refund or Undo.
func (v Verb) GivesBack() bool { return v == Refund || v == Undo }

// Operates reports whether v is for operators: Grant or Reset.
func (v Verb) Operates() bool { return v >= Grant }

// Role says what an operation that does not fit means for an all-or-nothing
// batch. Other batches ignore it.
type Role uint8

const (
	// Firm: the batch is refused when the operation does not fit.
	Firm Role = iota
	// Quota: the batch is refused when no descriptor with this role passes. A
	// descriptor is a group of operations, or one without a group.
	Quota
	// Lenient: an operation that does not fit refuses only its own group (a rule
	// in shadow mode).
	Lenient
)

// Undecided says what an operation that the store could not apply means for its
// group and batch.
type Undecided uint8

const (
	// Open: nobody knows whether it fits, so they are not charged.
	Open Undecided = iota
	// Fits: they are charged as if it fitted.
	Fits
	// Refuses: they are refused as if it did not fit.
	Refuses
	// Local: as Fits, until a decorator (package near) decides the operation on this
	// process's copy of its cell.
	Local
)

// Limit is the constants of a limit, which all its operations share and nobody changes.
type Limit struct {
	Kind Kind
	Span Span // Counter only
	// PerSecond: the cell belongs to a one-second window. A store may keep such
	// cells on another server.
	PerSecond bool

	Den  int64  // denominator of the amounts of the limit and of its operations, >= 1
	Unit Amount // the amount of one hit
	// Window, > 0 where the limit has one, is its length in µs: how long a cost of a List counts.
	// With the span Carried it is that of the longest window. It is at most 10 years.
	Window int64
	// Full, for a Meter, is how far above Now the operations on its cell can raise it: the
	// time in which an empty bucket fills, or NoMax. Op.Max is at most so far above Now.
	// A cell more than Skew further ahead counts as Full above Now (Cell.Step).
	Full Amount
	// Least is the lowest value that a Grant may leave: the count, the sum of a List's costs, or
	// the distance of a Meter from Now; <= 0.
	Least Amount

	// Debt, above 0, allows an overdraft: an operation fits if Op.Max leaves room for one
	// Unit. Unless it makes a reservation (Op.Hold) that does not fit, it is charged
	// whatever Max is and whatever the other operations of its batch come to, until the cell
	// is Debt above Max. Op.Times is 1.
	Debt Amount
	// Shift: a Meter is stored less Shift. So the stored value does not depend on the burst.
	Shift Amount
	// Carry, of the span Carried, is the hits that each window takes off the count of the
	// window before, > 0.
	Carry int64
	// Parts, above 0, of a List: Window is cut into so many parts, from the epoch on. A
	// cost counts in the part of its time, and in the Parts parts after that.
	Parts int64
	// Oldest, of a List: a Refund without Op.Mark takes the oldest costs first. Of all lists, it
	// takes the costs of reservations last.
	Oldest bool

	// Lease, if not nil, lets a process charge the cell ahead of its hits
	// (package near). Stores that keep cells ignore it.
	Lease *Lease
}

// Op is one conditional step on one cell: raise it by By, Times times, as
// often as it stays within Max.
type Op struct {
	*Limit

	Key string // of the cell, of any length and any bytes
	// Stem is the length in bytes of the head of Key that the cells of all windows of
	// the limit have in common; 0 stands for the whole key. Stores that keep cells ignore it.
	Stem int

	Verb Verb
	By   Amount // cost >= 0; 0 only reads (ReadOnly). Hits, or microseconds for a Meter
	Max  Amount // highest value the cell may reach by this step, or NoMax
	// Times >= 1 merges that many equal operations into one: as many as fit
	// are charged. It is 1 in an all-or-nothing batch, and in a batch with a group.
	Times int64

	Now int64 // microseconds since the epoch
	// Until is when the cell ends if this operation makes it, > Now; with the span FirstHit or
	// EveryHit a later end counts as Until (Cell.Step). Of a Grant on a Meter the credit ends then.
	Until int64
	// Mark names the part of the cell that the operation is for. With the spans Carried and Sliding
	// that is the number of its window: 0 to 2^32 - 1, each window one more than the window before.
	// A Refund or an Undo gives back nothing but the charge with that [Op.OwnMark], or any charge
	// with 0. With the span FirstHit that is the window that ends at Mark or before.
	Mark int64

	Role        Role // the same for all operations of a group
	IfUndecided Undecided
	// Group, above 0, marks the limits of one descriptor: neighbours in
	// Batch.Ops with the same Group are decided together. If one of them does
	// not fit, none is charged, except operations with the verb Count that do not fit
	// themselves. The keys of a group hash to one Redis Cluster slot, unless a limit
	// asks its pool: then charges are given back, as in package split.
	Group uint8

	// Hold, if not nil, is the reservation that the operation makes or settles. Operations that are
	// decided together have different ones.
	Hold *Hold
}

// Lease says how far a process may charge a cell ahead of its hits. It is the
// same for all operations of a limit.
type Lease struct {
	Share int64 // hits that a process may hold at most, >= 1
	TTL   int64 // how long it may hold them unused, µs, > 0
	Limit int64 // hits that fit an empty cell; another limit is another lease
}

// overdraws reports whether o is a charge or a check of a limit with an overdraft.
func (o *Op) overdraws() bool {
	return o.Verb == Charge && o.Debt != Amount{} && o.Max != NoMax
}

// Overdraws reports whether o is charged although it does not fit, whatever the other
// operations of its batch come to ([Limit.Debt]).
func (o *Op) Overdraws() bool {
	mayReserve := o.Identified() && !o.Hold.Known
	return o.overdraws() && !mayReserve && o.By != Amount{}
}

// Identified reports whether o makes or settles a reservation.
func (o *Op) Identified() bool { return o.Hold != nil && o.Hold.ID != "" }

// Unconditional reports whether the operation charges whatever the values of its
// cell and of the other cells of its batch are, unless the batch is all-or-nothing.
func (o *Op) Unconditional() bool {
	return !o.Verb.Operates() && (o.Verb.GivesBack() || o.Verb == Count || o.Max == NoMax) && o.Group == 0 && o.Hold == nil
}

// ReadOnly reports whether the operation reads its cell and changes nothing: it is a
// look, or a check of a limit. No store writes anything for it, not even a lifetime.
func (o *Op) ReadOnly() bool {
	return !o.Verb.Operates() && o.By == Amount{} && (o.Hold == nil || o.Hold.ID == "" && !o.Hold.GiveBack)
}

// Look is the operation that reads o's cell and charges nothing.
func (o Op) Look() Op {
	o.Verb, o.By, o.Max, o.Times, o.IfUndecided, o.Hold = Charge, Amount{}, NoMax, 1, Open, o.Hold.unnamed()
	return o
}

// Probe is the operation that reads o's cell and charges nothing, like Look, but fits only
// where the charge o fits. A refund and a Fill fit everywhere.
func (o Op) Probe() Op {
	probe := o.Look()
	switch {
	case o.Verb.GivesBack(), o.Verb == Fill:
	case o.overdraws(): // fits if there is room for one Unit, also as a probe
		probe.Max = o.Max
	default:
		probe.Max = o.Max.Sub(o.By, o.Den)
	}
	return probe
}

// Probe is the reply that op would get to its [Op.Probe]. If op makes or settles a reservation,
// whose record is rec, the reply tells what op would do to that. s has no meaning afterwards.
func (s *State) Probe(op *Op, rec Record) Reply {
	step := func(on *Op) Reply {
		if !on.Verb.GivesBack() {
			probe := on.Probe()
			on = &probe
		}
		return s.Step(on)
	}
	_, r := s.Open.stepHold(op, rec, step)
	return r
}

// StaysFull reports whether o's cell, once it has no room for o, has none until the cell
// ends, refunds aside.
func (o *Op) StaysFull() bool {
	switch {
	case o.Verb > Fill || o.By == (Amount{}) || o.overdraws() || o.Hold != nil:
		return false
	case o.Kind == Counter:
		return o.Span == Fixed || o.Span == FirstHit
	}
	return o.Kind == Meter
}

// Ceiling is Max, with the span Sliding less the part of prev, the count of the window before,
// that lies in the rolling window at Now. It is rounded up.
func (o *Op) Ceiling(prev int64) Amount {
	top := o.Max
	if o.Span == Sliding && top != NoMax {
		num, den := o.Weight(o.Until - o.Window - o.Now)
		top.Whole -= Weighted(prev, num, den)
	}
	return top
}

// ceilingBefore is the highest count of the window before that leaves o's cell, whose window has
// value, within Max at Now: that of Ceiling turned round.
func (o *Op) ceilingBefore(value int64) Amount {
	num, den := o.Weight(o.Until - o.Window - o.Now)
	fits := o.Max.Sub(Amount{Whole: max(0, value)}, o.Den).Units(Amount{Frac: max(num, 1)}, den)
	return Amount{Whole: min(o.Max.Whole, fits)}
}

// Weight is the part num/den of the hits of the window before that lies in the rolling window
// while left µs of the window remain: 0 <= num <= den <= 2^26.
func (l *Limit) Weight(left int64) (num, den int64) {
	unit := l.WeightUnit()
	den = l.Window / unit
	return min(max((left+unit-1)/unit, 0), den), den
}

// WeightUnit is the time in µs that one unit of a Weight stands for: a millisecond, in windows of more
// than 18 hours 10, of more than 7 days 100 and so on, so that a store can multiply weights in doubles.
func (l *Limit) WeightUnit() int64 {
	unit := int64(1000)
	for l.Window/unit > 1<<26 {
		unit *= 10
	}
	return unit
}

// Unleased is o without a lease.
func (o Op) Unleased() Op {
	if o.Lease != nil {
		limit := *o.Limit
		limit.Lease = nil
		o.Limit = &limit
	}
	return o
}

// Bare is o as a charge by itself: in no group, without a lease, and once.
func (o Op) Bare() Op {
	o = o.Unleased()
	o.Verb, o.Times, o.Group, o.Role, o.IfUndecided, o.Hold = Charge, 1, 0, Firm, Open, o.Hold.unnamed()
	return o
}

// Inverse is the operation that gives back the charge of o, which was made a moment
// ago. until is the Reply.Until of the charge, or 0 if it is not known.
func (o Op) Inverse(until int64) Op {
	o.Verb = Undo
	if o.Kind == Counter && o.Span == FirstHit && until > 0 {
		// Processes see the end of a window up to the difference of their clocks apart, and
		// the next window ends at least a second later.
		o.Mark = until + Skew/2
	}
	return o
}

// Reset is the operation that removes o's cell, and with it the reservations that are open on it:
// their hits are forgiven, so nothing of them comes back. Its reply shows the empty cell.
func (o Op) Reset() Op {
	hold := o.Hold
	if o = o.Look(); hold != nil {
		o.Hold = &Hold{Key: hold.Key, GiveBack: hold.GiveBack}
	}
	o.Verb, o.Group = Reset, 0
	return o
}

// Furthest is the highest value that the operations on the Meter of o can reach at o.Now, or NoMax, at
// which the sum stays.
func (o *Op) Furthest() Amount {
	return o.Full.Add(Amount{Whole: o.Now}, o.Den)
}

// MayBound reports whether r, the reply to o, which was not charged, may tell a bound in
// place of the cell: a clock that was ahead charged the cell, and the bound is not written.
func (o *Op) MayBound(r *Reply) bool {
	if o.Kind == Meter {
		return !r.Value.Less(o.Furthest())
	}
	return (o.Span == FirstHit || o.Span == EveryHit) && r.Until >= o.Until
}

// Precedes reports whether r, the reply to o, tells of the window after o's, which a clock that is
// ahead has begun.
func (o *Op) Precedes(r *Reply) bool { return o.Span == Sliding && r.Until > o.Until }

// Reply is the result of an Op, and the state of its cell after it.
type Reply struct {
	// Err says why this operation was not decided; it wraps ErrUnavailable. No
	// other field has a meaning then.
	Err error
	// Now is when the operation was decided: Op.Now, or the latest Op.Now of the
	// operations that it was merged with.
	Now int64
	// Admitted says how many of Op.Times fit, whether or not they were charged.
	Admitted int64
	// Value is the cell after the operation: the count, the meter, or the sum of the
	// costs in the window. It is below 0, of a meter below Now, by the credit of a
	// Grant, and else never. Operations of the batch that come later are not in it.
	Value Amount
	// Prev, with the span Sliding, is the count of the window before, 0 if that has credit.
	Prev int64
	// Until is when the cell ends; a List when its newest cost leaves (Now if empty).
	Until int64
	// Recalled: the reply comes from a cell that this process remembers (package
	// near), not from the store.
	Recalled bool
	Leased   bool // the hits come from a lease of this process, charged before
	// Beside, of an operation that does not fit, is what earlier operations that are decided
	// together with it would have charged to its cell: it has to fit beside that. See Batch.Decide.
	Beside Amount
	// Replicas, above 0: the store left the operation undecided, and this process has
	// decided it as one of so many. Value, Until and RetryAt are of its own copy of the
	// cell, in which each hit counts Replicas times.
	Replicas int64
	// Account, if not nil, tells of a reservation, or of hits that were not charged.
	Account *Account
	// RetryAt, for a List, is the moment from which By would fit when it does not
	// fit now; MaxInt64 if never.
	RetryAt int64
}

// Batch is the operations of one request, and the store's replies.
type Batch struct {
	Ops []Op
	// AllOrNothing: if operations that do not fit refuse the batch (see Role), no
	// operation is charged, except operations with the verb Count that do not fit.
	AllOrNothing bool

	// Replies has the length of Ops; the store fills it in.
	Replies []Reply
	// Refused: the batch was refused. The store sets it, as Decide does.
	Refused bool
	open    bool // see Decide
}

// Each calls f for every operation.
func (b *Batch) Each(f func(*Op)) {
	for i := range b.Ops {
		f(&b.Ops[i])
	}
}

// Fail sets Err in every reply and returns it.
func (b *Batch) Fail(err error) error {
	for i := range b.Replies {
		b.Replies[i] = Reply{Err: err}
	}
	return err
}

// At is the operation at another time: it does to its cell at now what o does at o.Now.
// A cell that belongs to a window of the clock takes no operation after the window, so
// there At stops at the window's last microsecond. With the span Sliding the operation stays one
// of its window, and with the span Carried it goes to a later window, which may be too early by
// one if windows differ in length.
func (o Op) At(now int64) Op {
	by := now - o.Now
	switch {
	case o.Kind == Meter:
		if o.Max != NoMax {
			o.Max.Whole += by
		}
	case o.Kind == List, o.Span == FirstHit, o.Span == EveryHit:
		o.Until += by
	case o.Span == Carried:
		if late := now - o.Until; late >= 0 {
			windows := late/o.Window + 1
			o.Mark += windows
			o.Until += windows * o.Window
		}
	case o.Span == Fixed:
		now = min(now, o.Until-1)
	}
	o.Now = now
	return o
}

// Alone is the step of one of n processes, each of which decides o on its own copy of
// the cell: each hit counts n times, as if every process had admitted it. So a process
// admits what remained in the cell when it was copied ÷ n, rounded up, and a meter
// refills for it at 1/n of the rate. A charge with an overdraft fits while one hit remains.
// n is 1 to 10,000.
func (o Op) Alone(n int64) Op {
	if n == 1 || o.Kind == Meter && o.Full == NoMax {
		return o
	}
	extra := o.Unit.Times(n-1, o.Den)
	if full := o.Full.Whole + extra.Whole; o.Kind == Meter && o.By.Whole > full/n+1 {
		o.By = Amount{Whole: full + 1}.Add(o.Unit, o.Den) // never fits either
	} else {
		o.By = o.By.Times(n, o.Den)
	}
	if !o.overdraws() && o.Max != NoMax {
		o.Max = o.Max.Add(extra, o.Den)
	}
	if o.Kind == Meter {
		limit := *o.Limit
		limit.Full = limit.Full.Add(extra, o.Den)
		o.Limit = &limit
	}
	return o
}
