package near

import "example.org/rls/pkg/backends"

const (
	// hot is how many operations on a key within one ttl make it a hot key.
	hot = 8
	// maxHot bounds the keys with a lease; further keys are not leased.
	maxHot = 16_384
)

// lease is the hits of a cell that this process has charged and not used. The lock of
// its entry's shard guards it.
type lease struct {
	terms     backends.Lease // zero if the hits are only to be given back
	op        backends.Op    // the operation on the cell that fetches and give-backs are made of
	portions  [3]portion     // oldest first; those without hits are last
	wanted    int64          // hits that a worker is to fetch
	fetching  int64          // hits that are being charged
	returning int64          // hits that are being given back
	failing   bool           // the last background call for the cell had no answer
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
	// until is when the counter ends in which the hits were charged.
	until int64
	void  bool // the hits were charged beyond the limit, so nobody may use them
}

// warm begins the lease of a key that has become hot. e is its entry, or nil.
func (s *Store) warm(sh *shard, stem string, e *entry, op *backends.Op) {
	if s.hot.Load() >= maxHot {
		return
	}
	if e == nil {
		e = s.add(sh, stem, op)
	}
	e.lease = &lease{terms: *op.Lease, op: *op}
	e.lease.demand = demand{perTTL: hot * max(1, op.By.Units(op.Unit, op.Den)), since: op.Now}
	s.hot.Add(1)
	sh.work(e)
}

// nextWindow returns an entry for op's cell, which has none, if the cell of the window
// before is leased. The new window of the clock is empty but for the hits of others.
// Otherwise it returns nil.
func (s *Store) nextWindow(sh *shard, stem string, op *backends.Op) *entry {
	before := sh.cells[stem]
	if before == nil || before.lease == nil || before.lease.terms != *op.Lease || op.Until < before.known.Until {
		return nil
	}
	e := s.add(sh, stem, op)
	old := before.lease
	e.at, e.prev = op.Now, max(0, before.known.Value.Whole)
	e.lease = &lease{terms: old.terms, op: *op, demand: old.demand, trip: old.trip, failing: old.failing}
	s.hot.Add(1)
	sh.work(e)
	old.yield(op.Now)
	old.demand = demand{}
	return e
}

// endLease drops the hits that e holds, which stay charged in the store.
func (s *Store) endLease(e *entry) {
	if e.lease == nil {
		return
	}
	s.count.lost.Add(uint64(e.lease.held()))
	if e.lease.terms.TTL > 0 {
		s.hot.Add(-1)
	}
	e.lease = nil
}

// take decides op from the lease of its cell, and reports whether it did.
func (s *Store) take(sh *shard, e *entry, op *backends.Op) (took bool) {
	l := e.lease
	if op.Span == backends.FirstHit && e.over(op.Now) {
		s.count.lost.Add(uint64(l.drop()))
		e.known, e.prev, e.at, e.full = backends.Cell{}, 0, op.Now, false
	}
	hits := op.By.Units(op.Unit, op.Den)
	if hits > l.terms.Share { // no lease is as large
		return false
	}
	if op.Refund {
		return e.putBack(op, hits)
	}
	l.demand.add(op.Now, hits, l.terms.TTL)
	if took = l.spend(op.Now, hits, &s.count); took {
		sh.used += uint64(hits)
	}
	if l.wanted == 0 {
		if l.wanted = e.want(op); l.wanted > 0 {
			l.op = *op
			s.enqueue(sh, e)
		}
	}
	return took
}

// over reports whether the window of a counter has ended.
func (e *entry) over(now int64) bool {
	return e.lease.op.Kind == backends.Counter && e.known.Until > 0 && now >= e.known.Until
}

// used is how many hits of the cell were used, here or elsewhere.
func (e *entry) used(op *backends.Op) int64 {
	v := e.view(op, op.Now)
	if op.Kind == backends.Meter {
		v = v.Sub(backends.Amount{Whole: op.Now}, op.Den)
	}
	return v.Units(op.Unit, op.Den)
}

// reply is the reply to an operation that the lease has decided.
func (e *entry) reply(op *backends.Op) backends.Reply {
	r := backends.Reply{
		Now: op.Now, Admitted: op.Times, Value: e.view(op, op.Now), Prev: e.prev,
		Until: e.known.Until, RetryAt: op.Now, Leased: true,
	}
	switch op.Kind {
	case backends.Meter:
		r.Until = r.Value.Ceil()
	case backends.List:
		r.Until = max(r.Until, op.Now)
	case backends.Counter:
		if r.Until == 0 {
			r.Until = op.Until
		}
	}
	return r
}

// putBack puts the hits of a refund into the newest portion, and reports whether it
// did. The share and the hits used in the cell bound the lease, as far as they are known.
func (e *entry) putBack(op *backends.Op, hits int64) bool {
	l := e.lease
	if e.at == unheard || hits > l.terms.Share-l.out() || hits > e.used(op) {
		return false
	}
	for i := len(l.portions) - 1; i >= 0; i-- {
		p := &l.portions[i]
		if p.ends <= op.Now || p.void {
			continue
		}
		if op.Kind == backends.Meter && p.hits+hits > p.ahead(op, op.Now) {
			return false
		}
		p.hits += hits
		return true
	}
	return false
}

// want is how many hits to fetch now; 0 for none. It is 1, a probe, while the cell's
// value is unknown or the store has not answered.
func (e *entry) want(op *backends.Op) int64 {
	l := e.lease
	expected := l.demand.expected()
	switch {
	case l.fetching > 0, e.credit(op, op.Now), expected < hot/2, l.out() >= l.terms.Share:
		return 0
	case op.Now < l.retry && op.Now > l.retry-2*l.terms.TTL:
		return 0
	case l.failing, e.at == unheard:
		return 1
	}
	leaving := max(expected, e.refilling(op)) // within one ttl
	during := leaving * min(l.trip, 8*l.terms.TTL) / l.terms.TTL
	size := min(leaving+during, l.terms.Share)
	held := l.held()
	if held > max(size/4, 2*during) {
		return 0
	}
	return max(0, min(size-held, l.terms.Share-l.out(), e.remaining(op)/8))
}

// refilling is how many hits refill in a meter's bucket within one ttl, counted from
// the moment at which the bucket would be full without this process's hits. As many
// held hits end, or are used before they end.
func (e *entry) refilling(op *backends.Op) int64 {
	if op.Kind != backends.Meter {
		return 0
	}
	idle := op.Now + e.lease.terms.TTL - e.view(op, op.Now).Whole
	return backends.Amount{Whole: max(0, min(idle, e.lease.terms.TTL))}.Units(op.Unit, op.Den)
}

// remaining is how many hits the store has left for op, as far as is known.
func (e *entry) remaining(op *backends.Op) int64 {
	room, value := op.Max, e.known.Value
	if op.Prev != "" {
		room.Whole -= backends.Weighted(e.prev, op.WeightNum, op.WeightDen)
	}
	if now := (backends.Amount{Whole: op.Now}); op.Kind == backends.Meter && value.Less(now) {
		value = now
	}
	return room.Sub(value, op.Den).Units(op.Unit, op.Den)
}

// fetch is the operation that charges n hits, or as many as fit. It charges them in at
// most 64 equal steps, which may leave out a few of the n.
func (l *lease) fetch(n int64) backends.Op {
	op := l.background()
	step := (n + 63) / 64
	op.By, op.Times, op.ChargeDenied = op.Unit.Times(step, op.Den), n/step, false
	return op
}

// background is an operation on the cell that is decided alone.
func (l *lease) background() backends.Op {
	op := l.op
	op.Lease, op.Group, op.Role, op.IfUndecided = nil, 0, backends.Firm, backends.Open
	return op
}

// giveBack is the operation that gives back the hits of a portion at a time.
func (l *lease) giveBack(p *portion, now int64) backends.Op {
	op := l.background()
	op = op.At(now).Inverse(p.until)
	op.By, op.Times = op.Unit.Times(p.hits, op.Den), 1
	return op
}

// held is how many hits the lease has.
func (l *lease) held() (n int64) {
	for i := range l.portions {
		n += l.portions[i].hits
	}
	return n
}

// out is how many hits are charged and not used: at most the share.
func (l *lease) out() int64 { return l.held() + l.fetching + l.returning }

// hold adds a portion. Hits that are charged while no place is free end with the
// newest portion.
func (l *lease) hold(p portion) {
	if p.hits == 0 {
		return
	}
	l.tidy()
	for i := range l.portions {
		if l.portions[i].hits == 0 {
			l.portions[i] = p
			return
		}
	}
	last := &l.portions[len(l.portions)-1]
	last.hits, last.void = last.hits+p.hits, last.void || p.void
}

// tidy moves portions without hits behind the others.
func (l *lease) tidy() {
	kept := 0
	for _, p := range l.portions {
		if p.hits > 0 {
			l.portions[kept] = p
			kept++
		}
	}
	clear(l.portions[kept:])
}

// drop forgets the held hits and returns their number.
func (l *lease) drop() int64 {
	n := l.held()
	l.portions = [3]portion{}
	return n
}

// yield has the held hits given back in the next sweep, and no hits fetched for a ttl.
func (l *lease) yield(now int64) {
	for i := range l.portions {
		l.portions[i].ends = min(l.portions[i].ends, now)
	}
	l.retry = now + l.terms.TTL
}

// spend takes hits from the lease, oldest portions first, and reports whether the
// lease had them. 0 hits pass while the lease has at least one.
func (l *lease) spend(now, hits int64, count *counters) bool {
	l.drain(now, count)
	usable := int64(0)
	for i := range l.portions {
		if p := &l.portions[i]; !p.void {
			usable += p.hits
		}
	}
	if usable < max(hits, 1) {
		return false
	}
	for i := range l.portions {
		if p := &l.portions[i]; !p.void {
			n := min(hits, p.hits)
			p.hits -= n
			hits -= n
		}
	}
	return true
}

// drain ends hits of a meter that would have refilled by now, so that the hits
// of a lease and a refilled bucket cannot pass together.
func (l *lease) drain(now int64, count *counters) {
	if l.op.Kind != backends.Meter {
		return
	}
	for i := range l.portions {
		p := &l.portions[i]
		if p.hits == 0 {
			continue
		}
		if backed := p.ahead(&l.op, now); backed < p.hits {
			count.refilled.Add(uint64(p.hits - backed))
			p.hits = backed
		}
	}
}

// ahead is how many hits of the meter right after the portion's charge have not
// refilled by now.
func (p *portion) ahead(op *backends.Op, now int64) int64 {
	return p.top.Sub(backends.Amount{Whole: now}, op.Den).Units(op.Unit, op.Den)
}

// isDue reports whether the ttl of a portion is over.
func (l *lease) isDue(now int64) bool {
	for i := range l.portions {
		if p := &l.portions[i]; p.hits > 0 && (p.ends <= now || p.ends > now+l.ttl()) {
			return true
		}
	}
	return false
}

// ttl is how long hits are held, in µs, and how long before a give-back that had no
// answer is tried again.
func (l *lease) ttl() int64 {
	if l.terms.TTL == 0 {
		return 250_000
	}
	return l.terms.TTL
}

// due removes the portions whose ttl is over and returns their hits as one portion,
// with the top of the oldest. A give-back lowers a meter, and with it the portions that
// stay.
func (l *lease) due(now int64) (back portion) {
	for i := range l.portions {
		p := &l.portions[i]
		p.ends = min(p.ends, now+l.ttl()) // the clock may have been set back
		if p.ends <= now && p.hits > 0 && (back.hits == 0 || p.until == back.until) {
			if back.hits == 0 {
				back, p.hits = *p, 0
				continue
			}
			back.hits, back.void = back.hits+p.hits, back.void || p.void
			p.hits = 0
		}
	}
	if back.hits > 0 {
		l.tidy()
		for i := range l.portions {
			p := &l.portions[i]
			p.top = p.top.Sub(l.op.Unit.Times(back.hits, l.op.Den), l.op.Den)
		}
	}
	return back
}
