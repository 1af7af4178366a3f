package near

import (
	"math"

	"example.org/rls/pkg/backends"
)

// entry is a cell of the store as this process knows it, and the balance of this
// process with the store. The lock of its shard guards it.
type entry struct {
	name   string        // of the cell; see name
	older  *entry        // the cell of the same limit's window before, or nil
	known  backends.Cell // as the store last reported it
	prev   int64         // the count of Op.Prev's cell then
	at     int64         // Reply.Now of that report, µs; unheard if there was none
	full   bool          // it had no room
	bound  bool          // it may have told a bound; see bounded
	life   uint32        // raised when the entry's cell is reset, and when the entry is removed
	spot   int           // the index in shard.busy, or idle
	queued bool          // the entry waits for a worker
	paying bool          // a charge of owed hits is under way
	lease  *lease        // hits that were charged and not used; nil without
	alone  *alone        // the cell as it was decided here; nil while the store decides
}

// unheard is entry.at before the first report.
const unheard = math.MinInt64 / 2

// freshFor is how long a full cell is believed, in µs. A refund, a reset or a grant
// through another process has no effect here for at most this long. It is less than a
// second, so that a call to the store fits into that second, too.
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
	case e.spot != idle, e.older != nil && e.older.spot != idle:
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

// bounded reports whether the reply to an operation that is not charged may tell a bound
// in place of the cell, which was charged by a clock that was ahead: the bound is not
// written.
func bounded(op *backends.Op, r *backends.Reply) bool {
	if op.Kind == backends.Meter {
		return !r.Value.Less(op.Furthest)
	}
	return op.Span != backends.Fixed && r.Until >= op.Until
}

// saw takes in the cell as the reply to op reports it.
func (e *entry) saw(op *backends.Op, r *backends.Reply) {
	e.known, e.prev, e.at = backends.CellOf(op, r), r.Prev, r.Now
}

// credit reports whether the cell has credit (backends.Grant) at now.
func (e *entry) credit(op *backends.Op, now int64) bool {
	return op.Kind != backends.List && e.known.Value.Whole < 0 && now < e.known.Until
}

// view is the value of op's cell at now, less the hits that this process holds.
func (e *entry) view(op *backends.Op, now int64) backends.Amount {
	v := e.known.Value
	switch {
	case op.Kind != backends.List && now >= e.known.Until:
		v = backends.Amount{}
	case op.Kind == backends.Meter && v.Whole < 0:
		v.Whole += now
		return v
	}
	return e.without(v, op, now)
}

// without is v less the hits that this process holds or gives back.
func (e *entry) without(v backends.Amount, op *backends.Op, now int64) backends.Amount {
	floor := backends.Amount{}
	switch {
	case op.Kind == backends.Meter:
		floor.Whole = now
	case op.Kind == backends.List && v.Less(floor): // a grant
		return v
	}
	if l := e.lease; l != nil && floor.Less(v) {
		if v = v.Sub(op.Unit.Times(l.out()-l.fetching, op.Den), op.Den); v.Less(floor) {
			return floor
		}
	}
	if op.Kind == backends.Meter && v.Less(floor) {
		return floor
	}
	return v
}

// lasts reports whether op's cell, once it has no room for op, has no room for it
// until the cell ends, refunds aside.
func lasts(op *backends.Op) bool {
	switch {
	case op.Verb != backends.Charge || op.Refund || op.By == (backends.Amount{}):
		return false
	case op.Kind == backends.Counter:
		return op.Prev == "" && op.Span != backends.EveryHit
	}
	return op.Kind == backends.Meter
}

// denies answers op if its cell was reported full a moment ago and has no room for it.
func (sh *shard) denies(e *entry, op *backends.Op, r *backends.Reply) bool {
	switch {
	case e == nil || !e.full || !lasts(op):
		return false
	case op.Now >= e.known.Until:
		sh.cache.Expired++
		e.full = false
		return false
	}
	tried, ok := e.try(op)
	if !ok || tried.Admitted > 0 {
		return false
	}
	*r = tried
	return true
}

// try is the reply to op by the cell as it was reported a moment ago, of which it keeps
// nothing. ok is false if the store has to say.
func (e *entry) try(op *backends.Op) (r backends.Reply, ok bool) {
	fresh := int64(freshFor)
	if op.Lease != nil { // hits come back within a ttl
		fresh = min(fresh, op.Lease.TTL)
	}
	if age := op.Now - e.at; e.bound || age <= -fresh || age >= fresh { // negative if the clock went back
		return r, false
	}
	cell := backends.Cell{Value: e.view(op, op.Now), Until: e.known.Until}
	found, once := op.Look(), *op
	_, at := cell.Step(&found, e.prev)
	once.ChargeDenied = false
	after, r := cell.Step(&once, e.prev)
	// After a limit was raised or the clock went back, the cell may have a value
	// that the limit cannot reach. The store lowers the cell and decides.
	if r.Admitted == 0 && r.Value != cell.Value || after.Until < cell.Until {
		return r, false
	}
	r.Value, r.Until, r.Recalled = at.Value, at.Until, true // it is not charged
	return r, true
}

// tells answers op, which is refused with its group or batch, from its cell as it was
// reported at the moment at, or at any if that is unheard. It sets at.
func (s *Store) tells(op *backends.Op, r *backends.Reply, w way, at *int64) (ok bool) {
	stem, _, sh := s.stemOf(op)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.find(stem, op.Key)
	if e == nil || *at != unheard && *at != e.at {
		return false
	}
	if *at = e.at; w == done {
		return true
	}
	if op.Kind == backends.List || op.Prev != "" || op.Refund || op.Verb != backends.Charge {
		return false
	}
	*r, ok = e.try(op)
	return ok
}

// recall decides op from memory, or says how the store is to decide it. It notes the
// demand for a key with a lease, and asks for a fetch when one is due.
func (s *Store) recall(op *backends.Op, r *backends.Reply, together bool) way {
	if op.Max == backends.NoRoom && !op.ChargeDenied { // a limit of 0
		*r = op.Unused()
		return done
	}
	stem, hash, sh := s.stemOf(op)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.find(stem, op.Key)
	if s.opts.Deny {
		if sh.denies(e, op, r) {
			sh.cache.Hits++
			return done
		}
		sh.cache.Misses++
	}
	if op.Lease == nil || together || op.Verb != backends.Charge || op.Times != 1 {
		return ask
	}
	if e == nil {
		e = s.nextWindow(sh, stem, op)
	}
	if e == nil || e.lease == nil {
		if !op.Refund && len(op.Key) <= maxKey && sh.cold.hit(uint32(hash), op) {
			e = s.warm(sh, stem, e, op)
		}
		return cheap(e, op)
	}
	if e.lease.terms != *op.Lease { // another limit on the same cell
		return cheap(e, op)
	}
	if s.take(sh, e, op) {
		*r = e.reply(op)
		return done
	}
	return ask
}

// cheap is the way for a hit that no lease can take. On a window of the clock a charge
// whatever the count is costs Redis half of one with a condition. If such a hit is
// denied, it is given back (learn), so only a cell that is not known to be nearly full
// takes it.
func cheap(e *entry, op *backends.Op) way {
	switch {
	case op.Kind != backends.Counter || op.Span != backends.Fixed || op.Prev != "" || op.Refund || op.By != op.Unit:
		return ask
	case e != nil && op.Now < e.known.Until && op.Max.Whole-e.known.Value.Whole < hot:
		return ask
	}
	return fast
}

// learn takes in the store's reply to an operation that memory has not decided, and
// makes the reply truthful. refused says that an operation of the batch did not fit.
func (s *Store) learn(op *backends.Op, r *backends.Reply, w way, together, refused bool) {
	stem, _, sh := s.stemOf(op)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.find(stem, op.Key)
	if op.Verb != backends.Charge {
		s.steer(sh, stem, e, op, r)
		return
	}
	if r.Err != nil { // perhaps the caller had no time
		if e != nil && op.Refund {
			e.full = false
		}
		return
	}
	denied := r.Admitted < op.Times
	if e == nil {
		if !s.worth(op, r, w == fast && denied || s.opts.Deny && together && refused) {
			return
		}
		e = s.add(sh, stem, op)
	}
	if !e.late(r, sh.steered) {
		s.heard(e, op, r)
		if e.full && denied {
			sh.cache.Overwritten++
		}
		e.bound = (together || op.ReadOnly()) && bounded(op, r)
		if !op.ReadOnly() {
			e.full = denied
		}
	}
	if w == fast && denied {
		s.giveBack(sh, e, op, op.By.Units(op.Unit, op.Den))
	}
	if l := e.lease; l != nil {
		if denied && (together || op.By.Units(op.Unit, op.Den) > 1) {
			l.yield(op.Now)
		}
		look := op.ReadOnly() && op.Lease == nil // an operator wants to know the store's cell
		if !look && !e.credit(op, r.Now) {
			r.Value = e.without(r.Value, op, r.Now)
		}
	}
}

// worth reports whether the cell of a reply is to be remembered, which it is anyhow if a
// give-back or its group needs it.
func (s *Store) worth(op *backends.Op, r *backends.Reply, anyhow bool) bool {
	switch {
	case anyhow, s.opts.Deny && r.Admitted < op.Times && lasts(op):
		return true
	case op.IfUndecided != backends.Local || r.Until <= r.Now:
		return false
	}
	return r.Value.Whole != 0 || r.Prev != 0 // else it is as good as unknown
}

// heard takes in the cell as the reply to op reports it, beside the hits that are owed.
func (s *Store) heard(e *entry, op *backends.Op, r *backends.Reply) {
	owed := backends.Amount{}
	if e.alone != nil {
		owed = e.alone.owed(op)
	}
	e.saw(op, r)
	if e.alone != nil {
		s.rebase(e, op.Now, owed)
	}
}

// steer takes in a reset or a grant, whether or not the store has answered.
func (s *Store) steer(sh *shard, stem string, e *entry, op *backends.Op, r *backends.Reply) {
	sh.steered = s.Now()
	if op.Verb == backends.Reset {
		for _, key := range []string{op.Key, op.Prev} {
			if e := sh.find(stem, key); e != nil {
				s.drop(sh, e)
				*e = entry{name: e.name, older: e.older, known: backends.Cell{Until: e.known.Until}, at: unheard, life: e.life, spot: idle}
			}
		}
		return
	}
	if r.Err == nil {
		look := op.Look()
		e = s.entryOf(sh, stem, op)
		s.heard(e, &look, r)
	}
	if e == nil {
		return
	}
	if e.full = false; e.lease != nil {
		e.lease.yield(op.Now)
	}
}
