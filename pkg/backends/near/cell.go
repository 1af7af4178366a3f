package near

import (
	"math"

	"example.org/rls/pkg/backends"
)

// entry is a cell of the store as this process knows it, and the balance of this
// process with the store. The lock of its shard guards it.
type entry struct {
	name   string        // of the cell; see shortName
	older  *entry        // the cell of the same limit's window before, or nil
	known  backends.Cell // as the store last reported it
	prev   int64         // the count of Op.Prev's cell then
	at     int64         // Reply.Now of that report, µs; unheard if there was none
	since  int64         // the time of the first of the seen operations, µs
	seen   uint8         // operations with a lease that the key had, up to hot
	full   bool          // the cell had no room
	busy   bool          // the entry is in shard.busy: it may have a balance
	queued bool          // the entry is being settled, or waits for that
	lease  *lease        // hits that were charged and not used; nil without
	alone  *alone        // the cell as it was decided here; nil while the store decides
}

// unheard is entry.at before the first report, and never a moment of no report.
const unheard, never = math.MinInt64 / 2, math.MaxInt64

// freshFor is how long memory answers from a report, in µs. A refund, a reset or a grant
// through another process takes effect here after it and a call to the store: in a second.
const freshFor = 900_000

// The ranks of entries for eviction: lower ones go first.
const (
	rankEnded = iota
	rankKnown
	rankFull
	rankBalance
)

// rank is the entry's rank at now. A hit that waited for the store may count in a window
// that has ended a moment ago.
func (e *entry) rank(now int64) int {
	now -= backends.Skew
	switch {
	case e.busy, e.older != nil && e.older.busy:
		return rankBalance
	case now >= e.known.Until && (e.alone == nil || now >= e.alone.until()):
		return rankEnded
	case e.full:
		return rankFull
	}
	return rankKnown
}

// late reports whether r is older than the last report of the cell, or than a reset or a
// grant. A reply that is older by more than Skew comes from a clock that was set back.
func (e *entry) late(r *backends.Reply, steered int64) bool {
	newest := max(e.at-1, steered)
	return r.Now <= newest && r.Now > newest-backends.Skew
}

// credit reports whether the cell has credit (backends.Grant) at now.
func (e *entry) credit(op *backends.Op, now int64) bool {
	return op.Kind != backends.List && e.known.Value.Whole < 0 && now < e.known.Until
}

// view is the value of op's cell at now, less the hits that this process holds or gives
// back. Credit is as it is.
func (e *entry) view(op *backends.Op, now int64) backends.Amount {
	v, floor := e.known.Value, backends.Amount{}
	switch {
	case e.credit(op, now) && op.Kind == backends.Meter:
		v.Whole += now
		return v
	case op.Kind == backends.Meter:
		floor.Whole = now
	case op.Kind == backends.Counter && now >= e.known.Until:
		v = backends.Amount{}
	}
	if l := e.lease; l != nil && floor.Less(v) {
		v = v.Sub(op.Unit.Times(l.held+l.surplus+l.returning, op.Den), op.Den)
	} else if op.Kind != backends.Meter {
		return v
	}
	if v.Less(floor) {
		return floor
	}
	return v
}

// try is the reply to op by the cell as it was reported a moment ago. ok is false if the
// store has to say.
func (e *entry) try(op *backends.Op) (r backends.Reply, ok bool) {
	fresh := int64(freshFor)
	if op.Lease != nil { // hits come back within a ttl
		fresh = min(fresh, op.Lease.TTL)
	}
	if age := op.Now - e.at; age <= -fresh || age >= fresh { // negative if the clock went back
		return r, false
	}
	if e.credit(op, op.Now) {
		return e.known.Try(op, e.prev)
	}
	return backends.Cell{Value: e.view(op, op.Now), Until: e.known.Until}.Try(op, e.prev)
}

// tells answers op of a refused group or batch from the cell, and reports whether it can.
func (e *entry) tells(op *backends.Op, r *backends.Reply) bool {
	if op.Kind == backends.List || op.Prev != "" || op.Refund || op.Verb != backends.Charge || op.Terms != nil || op.Hold != nil {
		return false
	}
	tried, ok := e.try(op)
	if ok {
		*r = tried
	}
	return ok
}

// cheap reports whether a hit that no lease can take is charged whatever the count is. On
// a window of the clock this costs Redis half of a charge with a condition. If such a hit
// is denied, it is given back, so only a cell that is not known to be nearly full takes it.
func (e *entry) cheap(op *backends.Op) bool {
	plain := op.Kind == backends.Counter && op.Span == backends.Fixed && op.Prev == "" && !op.Refund && op.By == op.Unit
	return plain && op.Max.Whole-e.known.Value.Whole >= hot
}

// reply is the reply to an operation that the lease has decided.
func (e *entry) reply(op *backends.Op) backends.Reply {
	r := backends.Reply{
		Now: op.Now, Admitted: op.Times, Value: e.view(op, op.Now), Prev: e.prev,
		Until: max(e.known.Until, op.Now), RetryAt: op.Now, Leased: true,
	}
	if op.Kind == backends.Meter {
		r.Until = r.Value.Ceil()
	}
	return r
}

// want is how many hits to fetch now; 0 for none. It is 1, a probe, while the cell's
// value is unknown. It sets the number of held hits that are enough for the demand.
func (e *entry) want(op *backends.Op) int64 {
	l := e.lease
	l.check = op.Now + l.terms.TTL/16
	expected := l.demand.expected()
	switch {
	case l.fetching > 0, e.credit(op, op.Now), expected < hot/2, l.out() >= l.terms.Share:
		return 0
	case op.Now < l.retry && op.Now > l.retry-2*l.terms.TTL:
		return 0
	case e.at == unheard:
		return 1
	}
	leaving := max(expected, e.refilling(op)) // within one ttl
	during := leaving * min(l.trip, 8*l.terms.TTL) / l.terms.TTL
	size := min(leaving+during, l.terms.Share)
	if l.enough = max(size/4, 2*during); l.held > l.enough {
		return 0
	}
	return max(0, min(size-l.held, l.terms.Share-l.out(), e.remaining(op)/8))
}

// refilling is how many held hits of a meter end or are used within one ttl: as many as
// refill after its bucket would be full without this process's hits.
func (e *entry) refilling(op *backends.Op) int64 {
	if op.Kind != backends.Meter {
		return 0
	}
	idle := op.Now + e.lease.terms.TTL - e.view(op, op.Now).Whole
	return backends.Amount{Whole: max(0, min(idle, e.lease.terms.TTL))}.Units(op.Unit, op.Den)
}

// remaining is how many hits the store has left for op, as far as is known.
func (e *entry) remaining(op *backends.Op) int64 {
	value := e.known.Value
	if now := (backends.Amount{Whole: op.Now}); op.Kind == backends.Meter && value.Less(now) {
		value = now
	}
	return op.Ceiling(e.prev).Sub(value, op.Den).Units(op.Unit, op.Den)
}

// ahead is how many of the hits in a meter have not refilled by now.
func (e *entry) ahead(now int64) int64 {
	op := &e.lease.op
	return e.known.Value.Sub(backends.Amount{Whole: now}, op.Den).Units(op.Unit, op.Den)
}

// owed returns the amount that is owed to e's cell at now, and the operation that charges
// it, whose By is missing. A hit that was admitted here waits for no turn.
func (e *entry) owed(now int64) (op backends.Op, owed backends.Amount) {
	if e.alone == nil || e.alone.op.Key == "" {
		return op, owed
	}
	if op = e.alone.op.Bare(); op.Kind == backends.Meter && op.Furthest != backends.NoMax && op.Terms == nil {
		op.Max = op.Furthest
	}
	op = op.At(now)
	return op, e.alone.owed(&op)
}
