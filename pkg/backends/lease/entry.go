package lease

import (
	"math"
	"math/bits"

	"example.org/rls/pkg/backends"
)

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

// portion is hits that were charged together.
type portion struct {
	hits int64
	ends int64 // when unused hits are given back, µs
	// top, of a meter, is the cell right after the charge. Hits that would have
	// refilled since then have ended.
	top backends.Amount
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

// held is how many hits the lease has.
func (e *entry) held() (n int64) {
	for i := range e.portions {
		n += e.portions[i].hits
	}
	return n
}

// out is how many hits are charged and not used: at most the share.
func (e *entry) out() int64 { return e.held() + e.fetching + e.returning }

// drop forgets the lease and returns the hits that it had.
func (e *entry) drop() int64 {
	n := e.held()
	e.portions = [3]portion{}
	return n
}

// due takes the hits that are to be given back by now out of the lease. top is the
// oldest portion's. A refund lowers a meter, and with it the portions that stay.
func (e *entry) due(now int64) (hits int64, top backends.Amount) {
	for i := range e.portions {
		p := &e.portions[i]
		p.ends = min(p.ends, now+e.terms.TTL) // the clock may have been set back
		if p.ends <= now && p.hits > 0 {
			if hits == 0 {
				top = p.top
			}
			hits += p.hits
			p.hits = 0
		}
	}
	if hits > 0 {
		e.tidy()
		for i := range e.portions {
			e.portions[i].top = e.portions[i].top.Sub(times(e.terms.Unit, hits, e.op.Den), e.op.Den)
		}
	}
	return hits, top
}

// giveBack is the operation that gives back hits of e's cell at a time.
func (e *entry) giveBack(hits, now int64) backends.Op {
	op := at(e.op, now).Inverse()
	op.By, op.Times = times(e.terms.Unit, hits, op.Den), 1
	op.Lease, op.Group, op.Role = nil, 0, backends.Firm
	return op
}

// drain ends hits of a meter that would have refilled by now, so that the hits
// of a lease and a refilled bucket cannot pass together.
func (e *entry) drain(now int64, count *counters) {
	if e.op.Kind != backends.Meter {
		return
	}
	for i := range e.portions {
		p := &e.portions[i]
		if p.hits == 0 {
			continue
		}
		ahead := p.top.Sub(backends.Amount{Whole: now}, e.op.Den)
		if backed := unitsIn(ahead, e.op.Den, e.terms.Unit); backed < p.hits {
			count.refilled.Add(uint64(p.hits - backed))
			p.hits = backed
		}
	}
}

// spend takes hits from the lease, oldest portions first, and reports whether the
// lease had them. 0 hits pass while the lease has at least one.
func (e *entry) spend(now, hits int64, count *counters) bool {
	e.drain(now, count)
	if e.held() < max(hits, 1) {
		return false
	}
	for i := range e.portions {
		n := min(hits, e.portions[i].hits)
		e.portions[i].hits -= n
		hits -= n
	}
	return true
}

// refund puts hits into the newest portion, and reports whether it did. The share
// and the hits used in the cell bound the lease, as far as they are known.
func (e *entry) refund(op *backends.Op, hits int64) bool {
	if !e.known || hits > e.terms.Share-e.out() || hits > e.used(op.Now) {
		return false
	}
	for i := len(e.portions) - 1; i >= 0; i-- {
		p := &e.portions[i]
		if p.ends <= op.Now {
			continue
		}
		if op.Kind == backends.Meter {
			ahead := p.top.Sub(backends.Amount{Whole: op.Now}, op.Den)
			if p.hits+hits > unitsIn(ahead, op.Den, e.terms.Unit) {
				return false
			}
		}
		p.hits += hits
		return true
	}
	return false
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

// want is how many hits to fetch now; 0 for none. It is 1, to find out how the
// cell is, if the store has not answered.
func (e *entry) want(op *backends.Op) int64 {
	expected := e.demand.expected()
	switch {
	case e.fetching > 0, e.credit, expected < hot/2, e.out() >= e.terms.Share:
		return 0
	case op.Now < e.retry && op.Now > e.retry-2*e.terms.TTL:
		return 0
	case e.failing, !e.known:
		return 1
	}
	leaving := max(expected, e.refilling(op)) // within one ttl
	during := leaving * min(e.trip, 8*e.terms.TTL) / e.terms.TTL
	size := min(leaving+during, e.terms.Share)
	held := e.held()
	if held > max(size/4, 2*during) {
		return 0
	}
	return max(0, min(size-held, e.terms.Share-e.out(), e.remaining(op)/8))
}

// refilling is how many hits refill in a meter's bucket within one ttl, counted from
// the moment at which the bucket would be full without this process's hits. As many
// held hits end, or are used before they end.
func (e *entry) refilling(op *backends.Op) int64 {
	if op.Kind != backends.Meter {
		return 0
	}
	idle := op.Now + e.terms.TTL - e.view(op.Now).Whole
	return unitsIn(backends.Amount{Whole: max(0, min(idle, e.terms.TTL))}, op.Den, e.terms.Unit)
}

// remaining is how many hits the store has left for op, as far as is known.
func (e *entry) remaining(op *backends.Op) int64 {
	room, value := op.Max, e.value
	if op.Prev != "" {
		room.Whole -= backends.Share(e.prev, op.WeightNum, op.WeightDen)
	}
	if now := (backends.Amount{Whole: op.Now}); op.Kind == backends.Meter && value.Less(now) {
		value = now
	}
	return unitsIn(room.Sub(value, op.Den), op.Den, e.terms.Unit)
}

// fetch is the operation that charges n hits, or as many as fit, at op's time. It
// charges them in at most 64 equal steps, which may leave out a few of the n.
func (e *entry) fetch(op *backends.Op, n int64) backends.Op {
	f := *op
	step := (n + 63) / 64
	f.By, f.Times = times(e.terms.Unit, step, op.Den), n/step
	f.ChargeDenied, f.Lease, f.Role = false, nil, backends.Firm
	return f
}

// hold adds n hits that were charged, to be held until ends.
func (e *entry) hold(n, ends int64, top backends.Amount) {
	if n == 0 {
		return
	}
	e.tidy()
	for i := range e.portions {
		if e.portions[i].hits == 0 {
			e.portions[i] = portion{n, ends, top}
			return
		}
	}
	e.portions[len(e.portions)-1].hits += n // no place is free: the older hits set the end
}

// tidy moves portions without hits behind the others.
func (e *entry) tidy() {
	kept := 0
	for _, p := range e.portions {
		if p.hits > 0 {
			e.portions[kept] = p
			kept++
		}
	}
	clear(e.portions[kept:])
}

// at is op at another time.
func at(op backends.Op, now int64) backends.Op {
	by := now - op.Now
	op.Now = now
	switch op.Kind {
	case backends.Meter:
		for _, v := range []*backends.Amount{&op.Max, &op.Furthest} {
			if *v != backends.NoMax {
				v.Whole += by
			}
		}
	case backends.Counter:
		if op.Span != backends.Fixed {
			op.Until += by
		}
	}
	return op
}

// times is n × unit over the denominator den.
func times(unit backends.Amount, n, den int64) backends.Amount {
	frac := unit.Frac * n
	return backends.Amount{Whole: unit.Whole*n + frac/den, Frac: frac % den}
}

// unitsIn is how many whole units a has; 0 if a is below 0.
func unitsIn(a backends.Amount, den int64, unit backends.Amount) int64 {
	switch {
	case a.Whole < 0:
		return 0
	case a == unit:
		return 1
	case den == 1 && unit.Whole == 1:
		return a.Whole
	}
	divisor := uint64(unit.Whole)*uint64(den) + uint64(unit.Frac)
	hi, lo := bits.Mul64(uint64(a.Whole), uint64(den))
	lo, carry := bits.Add64(lo, uint64(a.Frac), 0)
	if hi += carry; hi >= divisor {
		return math.MaxInt64
	}
	n, _ := bits.Div64(hi, lo, divisor)
	return int64(min(n, math.MaxInt64))
}
