package lease

import "example.org/rls/pkg/backends"

// entry is a hot key: its cell as far as this process knows it, and the lease.
// The lock of its shard guards it.
type entry struct {
	stem  string
	cells uint64 // how many cells there were so far; a job is about one of them
	reset uint64 // the last of them that was reset; 0 for none
	terms backends.Lease
	op    backends.Op // the last operation on the current cell that went to the store
	// The cell as the store last reported it; known says that it has.
	known bool
	value backends.Amount
	prev  int64
	until int64 // when a counter ends, or 0
	// credit: the cell had credit (backends.Grant). It is not leased then.
	credit bool

	portions  [3]portion // oldest first; those without hits are last
	fetching  int64      // hits that are being charged
	returning int64      // hits that are being given back
	failing   bool       // the last background call for the key had no answer
	// No fetch begins before retry (µs): when failing, or after a denial that
	// came from the lease's own hits.
	retry  int64
	demand demand
	trip   int64 // time of a fetch, smoothed, µs
}

// begin starts a cell of which nothing is known. It keeps demand, trip and failing.
func (e *entry) begin(op *backends.Op) {
	*e = entry{stem: e.stem, cells: e.cells + 1, reset: e.reset, terms: *op.Lease, op: *op, failing: e.failing, demand: e.demand, trip: e.trip}
}

// over reports whether the window of a counter has ended.
func (e *entry) over(now int64) bool {
	if e.op.Kind != backends.Counter {
		return false
	}
	return e.until > 0 && now >= e.until || e.op.Span == backends.Fixed && now >= e.op.Until
}

// used is how many hits of the cell this process does not hold.
func (e *entry) used(now int64) int64 {
	v := e.view(now)
	if e.op.Kind == backends.Meter {
		v = v.Sub(backends.Amount{Whole: now}, e.op.Den)
	}
	return unitsIn(v, e.op.Den, e.terms.Unit)
}

// view is the cell's value without the hits that this process holds.
func (e *entry) view(now int64) backends.Amount {
	return e.without(e.value, now)
}

// without is v less the hits that this process holds or is giving back.
func (e *entry) without(v backends.Amount, now int64) backends.Amount {
	v = v.Sub(times(e.terms.Unit, e.held()+e.returning, e.op.Den), e.op.Den)
	floor := backends.Amount{}
	if e.op.Kind == backends.Meter {
		floor.Whole = now
	}
	if v.Less(floor) {
		return floor
	}
	return v
}

// reply is the reply to an operation that the lease has decided.
func (e *entry) reply(op *backends.Op) backends.Reply {
	r := backends.Reply{
		Now: op.Now, Admitted: op.Times, Value: e.view(op.Now), Prev: e.prev,
		Until: e.until, RetryAt: op.Now, Leased: true,
	}
	switch op.Kind {
	case backends.Meter:
		r.Until = r.Value.Whole
		if r.Value.Frac > 0 {
			r.Until++
		}
	case backends.List:
		r.Until = max(r.Until, op.Now)
	case backends.Counter:
		if r.Until == 0 {
			r.Until = op.Until
		}
	}
	return r
}

// learn takes in the store's reply to op and takes the held hits off its value.
// If the operation may have been denied for the held hits, they are given back.
func (e *entry) learn(op *backends.Op, r *backends.Reply, together bool) {
	if r.Err != nil { // perhaps the caller had no time
		return
	}
	e.op = *op
	e.saw(r)
	if r.Admitted < op.Times && (together || unitsIn(op.By, op.Den, e.terms.Unit) > 1) {
		for i := range e.portions {
			e.portions[i].ends = min(e.portions[i].ends, op.Now)
		}
		e.retry = op.Now + e.terms.TTL
	}
	if !e.credit {
		r.Value = e.without(r.Value, r.Now)
	}
}

// fails notes whether a background call for the key had an answer.
func (e *entry) fails(err error, now int64) {
	if e.failing = err != nil; e.failing {
		e.retry = now + e.terms.TTL
	}
}

// saw takes in the state of the cell.
func (e *entry) saw(r *backends.Reply) {
	e.known, e.value, e.prev = true, r.Value, r.Prev
	switch e.op.Kind {
	case backends.Meter:
		e.credit = r.Value.Whole < r.Now
	case backends.Counter:
		e.until, e.credit = r.Until, r.Value.Whole < 0
	default:
		e.until = r.Until
	}
}
