package lease

import "example.org/rls/pkg/backends"

// portion is hits that were charged together.
type portion struct {
	hits int64
	ends int64 // when unused hits are given back, µs
	// top, of a meter, is the cell right after the charge. Hits that would have
	// refilled since then have ended.
	top backends.Amount
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

// drop forgets the lease and returns the hits that it had.
func (e *entry) drop() int64 {
	n := e.held()
	e.portions = [3]portion{}
	return n
}

// giveBack is the operation that gives back hits of e's cell at a time.
func (e *entry) giveBack(hits, now int64) backends.Op {
	op := at(e.op, now).Inverse()
	op.By, op.Times = times(e.terms.Unit, hits, op.Den), 1
	op.Lease, op.Group, op.Role = nil, 0, backends.Firm
	return op
}
