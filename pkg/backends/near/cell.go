package near

import "example.org/rls/pkg/backends"

// entry is a cell of the store as this process knows it, and the balance of this
// process with the store. The lock of its shard guards it.
type entry struct {
	name   string        // the key of the cell, if that is longer than maxName its ShortKey
	older  *entry        // the cell of the same limit's window before, or nil
	known  backends.Cell // as the store last reported it, without its Base
	at     int64         // Reply.Now of that report, µs; 0 if there was none
	demand demand        // for hits of a lease; before there is one, for operations
	full   bool          // the cell had no room
	busy   bool          // the entry is in shard.busy: it may have a balance
	queued bool          // the entry is being settled, or waits for that
	lease  *lease        // hits that were charged and not used; nil without
	local  *local        // the cell as it was decided here; nil while the store decides
}

// isOf reports whether e is of op's window. With the span Sliding, whose cell has all windows, each
// of them has an entry.
func (e *entry) isOf(op *backends.Op) bool {
	return op.Span != backends.Sliding || e.known.Window == op.Mark
}

// lease is the hits of a cell that this process has charged and not used.
type lease struct {
	terms   backends.Lease // a Share of 0 if the hits are only to be given back
	op      backends.Op    // the operation on the cell that fetches and give-backs are made of
	held    int64          // hits that may be used
	ends    int64          // when unused hits are given back: one ttl after the last fetch, µs
	surplus int64          // hits that nobody may use: they are given back at once
	wanted  int64          // hits that a worker is to fetch, or fetches
	enough  int64          // while more hits than this are held, no fetch is due until check
	check   int64          // when the demand is compared anew, µs
	retry   int64          // no fetch begins before, µs: one had no answer, or the held hits caused a denial
	trip    int64          // time of a fetch, smoothed, µs
	fetched int64          // when the last fetch ended: operations from before may have crossed it, µs
}

// giveBack is the operation that gives back hits at now, to the counter that ends at until.
func (l *lease) giveBack(hits, now, until int64) backends.Op {
	op := l.op.Bare().At(now).Inverse(until)
	op.By = op.Unit.Times(hits, op.Den)
	return op
}

// out is how many hits are charged and not used, or will be: at most the share.
func (l *lease) out() int64 { return l.held + l.surplus + l.wanted }

// yield has the held hits given back in the next sweep, and no hits fetched for a ttl.
func (l *lease) yield(now int64) {
	l.ends = min(l.ends, now)
	l.retry = now + l.terms.TTL
}

// ended reports whether the ttl of the held hits is over. The clock may have gone back.
func (l *lease) ended(now int64) bool { return l.ends <= now || l.ends > now+l.terms.TTL }

// due reports whether hits are to be given back.
func (l *lease) due(now int64) bool { return l.surplus > 0 || l.held > 0 && l.ended(now) }

// demand is the number of hits that callers ask for within one ttl.
type demand struct {
	last  int64 // hits in the ttl before
	count int64 // hits since the time below
	since int64 // µs
}

// add notes that hits were asked for.
func (d *demand) add(now, hits, ttl int64) {
	if age := now - d.since; age < 0 || age >= ttl { // below 0 if the clock was set back
		if d.last = d.count; age >= 2*ttl {
			d.last = 0
		}
		d.count, d.since = 0, now
	}
	d.count += hits
}

// expected is the number of hits that are expected within one ttl. A rise counts at once.
func (d *demand) expected() int64 { return max(d.last, d.count) }

const (
	// hot is how many operations on a key within one ttl make it a hot key.
	hot = 8
	// retryAfter is the ttl of hits that are only to be given back, in µs.
	retryAfter = 250_000
	// freshFor is how long memory answers from a report, in µs. A refund, a reset or a grant
	// through another process takes effect here after it and a call to the store: in a second.
	freshFor = 900_000
)

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
	case now >= e.known.Until:
		return rankEnded
	case e.full:
		return rankFull
	}
	return rankKnown
}

// credit reports whether the cell has credit (backends.Grant) at now.
func (e *entry) credit(op *backends.Op, now int64) bool {
	return op.Kind != backends.List && e.known.Value.Whole < 0 && now < e.known.Until
}

// raise takes in the cell c of an answer that crossed a fetch: nobody knows which of both the store
// did first, so the higher value counts, which has the hits of both. Until the next report, hits that
// were given back meanwhile may still be counted. It reports false, and changes nothing, if c is of
// another window, or if hits are owed.
func (e *entry) raise(kind backends.Kind, c backends.Cell) bool {
	if e.local != nil || kind == backends.Counter && (c.Until != e.known.Until || c.Window != e.known.Window) {
		return false
	}
	if e.known.Value.Less(c.Value) {
		e.known.Value = c.Value
	}
	return true
}

// view is the value of op's cell at now, less the hits of the lease. Credit is as it is.
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
		v = v.Sub(op.Unit.Times(l.held+l.surplus, op.Den), op.Den)
	} else if op.Kind != backends.Meter {
		return v
	}
	if v.Less(floor) {
		return floor
	}
	return v
}

// try fills in the reply to op by the cell as it was reported a moment ago. ok is false if
// the store has to say.
func (e *entry) try(op *backends.Op, r *backends.Reply) (ok bool) {
	fresh := int64(freshFor)
	if op.Lease != nil { // hits come back within a ttl
		fresh = min(fresh, op.Lease.TTL)
	}
	if age := op.Now - e.at; age <= -fresh || age >= fresh { // negative if the clock went back
		return false
	}
	c := e.known
	if !e.credit(op, op.Now) {
		c.Value = e.view(op, op.Now)
	}
	*r, ok = c.Try(op)
	return ok
}

// cheap reports whether a hit that no lease can take is charged whatever the count is. On
// a window of the clock this costs Redis half of a charge with a condition. If such a hit
// is denied, it is given back, so only a cell that is not known to be nearly full takes it.
func (e *entry) cheap(op *backends.Op) bool {
	plain := op.Kind == backends.Counter && op.Span == backends.Fixed && op.Verb == backends.Charge && op.By == op.Unit
	return plain && op.Max.Whole-e.known.Value.Whole >= hot
}

// reply fills in the reply to an operation that the lease has decided, in place: to copy a
// reply takes a quarter of the time of a hit.
func (e *entry) reply(op *backends.Op, r *backends.Reply) {
	*r = backends.Reply{}
	r.Now, r.RetryAt, r.Admitted, r.Leased = op.Now, op.Now, op.Times, true
	r.Value, r.Prev, r.Until = e.view(op, op.Now), e.known.Prev, max(e.known.Until, op.Now)
	if op.Kind == backends.Meter {
		r.Until = r.Value.Ceil()
	}
}

// want is how many hits to fetch now; 0 for none. It is 1, a probe, while the cell's
// value is unknown. It sets the number of held hits that are enough for the demand.
func (e *entry) want(op *backends.Op) int64 {
	l := e.lease
	l.check = op.Now + l.terms.TTL/16
	expected := e.demand.expected()
	switch {
	case e.credit(op, op.Now), expected < hot/2, l.out() >= l.terms.Share,
		op.Now < l.retry && op.Now > l.retry-2*l.terms.TTL:
		return 0
	case e.at == 0:
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
	return op.Ceiling(e.known.Prev).Sub(value, op.Den).Units(op.Unit, op.Den)
}

// ahead is how many of the hits in a meter have not refilled by now.
func (e *entry) ahead(now int64) int64 {
	op := &e.lease.op
	return e.known.Value.Sub(backends.Amount{Whole: now}, op.Den).Units(op.Unit, op.Den)
}

// owed returns the amount that is owed to e's cell at now, and the operation that charges
// it, whose By is missing. A hit that was admitted here waits for no turn.
func (e *entry) owed(now int64) (op backends.Op, owed backends.Amount) {
	if e.local == nil || e.local.op.Key == "" {
		return op, owed
	}
	if op = e.local.op.Bare(); op.Kind == backends.Meter && op.Full != backends.NoMax && op.Shift == (backends.Amount{}) {
		op.Max = op.Furthest()
	}
	op = op.At(now)
	return op, e.owes(&op)
}

// maxKey is the length in bytes above which a cell is not leased, and hits that are owed to
// it are not charged: background work has to keep its key.
const maxKey = 1024

// local is a cell that this process decides while the store does not, in two copies that start
// as the store last reported the cell (entry.known, hits held included). mine less that is the
// amount that is owed. It is below 0 if slots were given back (backends.Limit.Oldest) that the
// store still counts.
type local struct {
	op      backends.Op    // the last operation that was decided here; without Key if that is longer than maxKey
	mine    backends.State // counts each admitted hit once
	divided backends.State // counts it once for every replica, and decides
}

// charge raises the cell by op's cost, times times, whatever its value is.
func charge(c *backends.State, op backends.Op, times int64) {
	op.Max, op.Times = backends.NoMax, times
	if !op.Verb.GivesBack() {
		op.Verb = backends.Charge
	}
	c.Step(&op)
}

// newLocal returns the copies of op's cell, which was reported as known, with an amount that is
// owed already.
func newLocal(op *backends.Op, known backends.Cell, owed backends.Amount, replicas int64) *local {
	l := &local{mine: began(op, known), divided: began(op, known)}
	l.decided(op)
	if owed != (backends.Amount{}) {
		again := of(*op, owed)
		charge(&l.mine, again, 1)
		charge(&l.divided, again.Alone(replicas), 1)
	}
	return l
}

// began is op's cell as it was reported. The times of the charges of a List are not known: as
// if all came with the last.
func began(op *backends.Op, c backends.Cell) backends.State {
	s := backends.State{Cell: c}
	if op.Kind == backends.List && c.Value.Whole != 0 {
		s.Log = backends.Log{{At: op.Arrived(c.Until), Hits: c.Value.Whole}}
	}
	return s
}

// of is op with an amount, which is given back if it is below 0.
func of(op backends.Op, amount backends.Amount) backends.Op {
	if op.By, op.Verb = amount, backends.Charge; amount.Whole < 0 {
		op.By, op.Verb = backends.Amount{}.Sub(amount, op.Den), backends.Refund
	}
	return op
}

// decided keeps op as the last operation.
func (l *local) decided(op *backends.Op) {
	if l.op = *op; len(op.Key) > maxKey {
		l.op.Key = ""
	}
}

// decide decides op by the share of one of the replicas. A refund gives back hits that
// were admitted here; the store keeps the others, unless they are slots (backends.Limit.Oldest).
//
// Nobody here knows reservations, so nothing is settled: a call with an ID is a charge of its
// hits, also if the store has a reservation of the ID, and a refund with an ID changes
// nothing. The hits of a reservation that is made here stay charged, and its ID is new to the
// store. So each hit that was reserved or used is charged at least once.
func (e *entry) decide(op *backends.Op, replicas int64) backends.Reply {
	on := *op
	if op.Identified() {
		on, _ = backends.Record{}.Against(op)
	}
	if on.Verb.GivesBack() && !op.Oldest {
		if owed := e.owes(&on); owed.Less(on.By) {
			on.By = owed
		}
	}
	l, divided := e.local, on.Alone(replicas)
	r := l.divided.Step(&divided)
	r.Replicas, r.Account = replicas, nil // the store cuts hits above the debt
	if on.Overdraws() {
		l.mine.Step(&on)
	} else if on.By != (backends.Amount{}) && r.Admitted > 0 {
		charge(&l.mine, on, r.Admitted)
	}
	l.decided(op)
	return r
}

// owes is the amount that was admitted here and counts at op.Now: the hits of windows
// that have ended are not in it, nor is the part of a meter that has drained.
func (e *entry) owes(op *backends.Op) backends.Amount {
	if e.local == nil {
		return backends.Amount{}
	}
	look := op.Look()
	look.Hold = nil
	known, mine := began(op, e.known), e.local.mine
	before, now := known.Step(&look).Value, mine.Step(&look).Value
	if now.Less(before) && !op.Oldest {
		return backends.Amount{}
	}
	return now.Sub(before, op.Den)
}
