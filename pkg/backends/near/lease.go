package near

import (
	"slices"

	"example.org/rls/pkg/backends"
)

const (
	// hot is how many operations on a key within one ttl make it a hot key.
	hot = 8
	// maxHot bounds the keys of a shard that are leased: 16,384 in all shards.
	maxHot = 16_384 / shardCount
	// maxPortions bounds the portions of a lease.
	maxPortions = 3
)

// lease is the hits of a cell that this process has charged and not used. The lock of
// its entry's shard guards it.
type lease struct {
	terms     backends.Lease // zero if the hits are only to be given back
	op        backends.Op    // the operation on the cell that fetches and give-backs are made of
	portions  []portion      // held hits, oldest first
	surplus   int64          // hits that nobody may use: they are given back at once
	wanted    int64          // hits that a worker is to fetch
	fetching  int64          // hits that are being charged
	returning int64          // hits that are being given back
	looking   bool           // a look before a give-back is under way
	// No background call begins before retry (µs): after one without an answer, and for
	// fetches after a denial that came from the lease's own hits.
	retry  int64
	demand demand
	trip   int64 // time of a fetch, smoothed, µs
}

// portion is hits that were charged together.
type portion struct {
	hits int64
	ends int64 // when unused hits are given back, µs
}

// warm begins the lease of a key that has become hot, or goes on with that of the window
// before. e is the entry of op's cell, or nil.
func (s *Store) warm(sh *shard, stem string, e *entry, op *backends.Op) *entry {
	if sh.hot >= maxHot {
		return e
	}
	if e == nil {
		e = s.add(sh, stem, op)
	}
	e.lease = &lease{terms: *op.Lease, op: *op}
	e.lease.demand = demand{perTTL: hot * max(1, op.By.Units(op.Unit, op.Den)), since: op.Now}
	sh.hot++
	sh.work(e)
	return e
}

// nextWindow returns an entry for op's cell, which has none, if the cell of the window
// before is leased. The new window of the clock is empty but for the hits of others.
// Otherwise it returns nil.
func (s *Store) nextWindow(sh *shard, stem string, op *backends.Op) *entry {
	before := sh.cells[stem]
	if before == nil || before.lease == nil || before.lease.terms != *op.Lease || op.Until < before.known.Until {
		return nil
	}
	e := s.warm(sh, stem, nil, op)
	if e != nil {
		old := before.lease
		e.at, e.prev = op.Now, max(0, before.known.Value.Whole)
		e.lease.demand, e.lease.trip = old.demand, old.trip
		old.yield(op.Now)
		old.demand = demand{}
	}
	return e
}

// endLease drops the hits that e holds, which stay charged in the store.
func (sh *shard) endLease(e *entry) {
	if e.lease == nil {
		return
	}
	sh.leases.Lost += uint64(e.lease.held() + e.lease.surplus)
	if e.lease.terms.TTL > 0 {
		sh.hot--
	}
	e.lease = nil
}

// take decides op from the lease of its cell, and reports whether it did.
func (s *Store) take(sh *shard, e *entry, op *backends.Op) (took bool) {
	l := e.lease
	if op.Span == backends.FirstHit && e.over(op.Now) {
		sh.leases.Lost += uint64(l.spend(l.held()))
		e.known, e.prev, e.at, e.full = backends.Cell{}, 0, op.Now, false
	}
	sh.drain(e, op.Now)
	hits := op.By.Units(op.Unit, op.Den)
	switch {
	case hits > l.terms.Share: // no lease is as large
		return false
	case op.Refund:
		return e.putBack(op, hits)
	}
	l.demand.add(op.Now, hits, l.terms.TTL)
	if took = l.held() >= max(hits, 1); took {
		sh.leases.Used += uint64(l.spend(hits))
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

// putBack puts the hits of a refund into the lease, and reports whether it did. The
// share and the hits that were used in the cell, here or elsewhere, bound the lease.
func (e *entry) putBack(op *backends.Op, hits int64) bool {
	l, used := e.lease, e.view(op, op.Now)
	if op.Kind == backends.Meter {
		used = used.Sub(backends.Amount{Whole: op.Now}, op.Den)
	}
	if e.at == unheard || len(l.portions) == 0 || hits > l.terms.Share-l.out() || hits > used.Units(op.Unit, op.Den) {
		return false
	}
	l.portions[len(l.portions)-1].hits += hits
	return true
}

// want is how many hits to fetch now; 0 for none. It is 1, a probe, while the cell's
// value is unknown.
func (e *entry) want(op *backends.Op) int64 {
	l := e.lease
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
	if l.held() > max(size/4, 2*during) {
		return 0
	}
	return max(0, min(size-l.held(), l.terms.Share-l.out(), e.remaining(op)/8))
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

// drain ends held hits of a meter as soon as its bucket would be full without them, so
// that the hits of a lease and a refilled bucket cannot pass together.
func (sh *shard) drain(e *entry, now int64) {
	l := e.lease
	if l.op.Kind != backends.Meter || len(l.portions) == 0 || e.credit(&l.op, now) {
		return
	}
	if n := l.held() - e.ahead(now); n > 0 {
		sh.leases.Refilled += uint64(l.spend(n))
	}
}

// ahead is how many of the hits in a meter have not refilled by now.
func (e *entry) ahead(now int64) int64 {
	op := &e.lease.op
	return e.known.Value.Sub(backends.Amount{Whole: now}, op.Den).Units(op.Unit, op.Den)
}

// fetch is the operation that charges n hits, or as many as fit. It charges them in at
// most 64 equal steps, which may leave out a few of the n.
func (l *lease) fetch(n int64) backends.Op {
	op, step := background(&l.op), (n+63)/64
	op.By, op.Times = op.Unit.Times(step, op.Den), n/step
	return op
}

// giveBack is the operation that gives back hits at now, to the counter that ends at until.
func (l *lease) giveBack(hits, now, until int64) backends.Op {
	op := background(&l.op)
	op = op.At(now).Inverse(until)
	op.By = op.Unit.Times(hits, op.Den)
	return op
}

// background is a charge of op's cell that is decided alone.
func background(op *backends.Op) backends.Op {
	b := *op
	b.Lease, b.Group, b.Role, b.IfUndecided = nil, 0, backends.Firm, backends.Open
	b.Refund, b.Undo, b.ChargeDenied, b.Times = false, false, false, 1
	return b
}

// ttl is how long hits are held, in µs, and how long before a background call that had
// no answer is made again.
func (l *lease) ttl() int64 {
	if l.terms.TTL == 0 {
		return 250_000
	}
	return l.terms.TTL
}

// held is how many hits the lease has.
func (l *lease) held() (n int64) {
	for i := range l.portions {
		n += l.portions[i].hits
	}
	return n
}

// out is how many hits are charged and not used: at most the share.
func (l *lease) out() int64 { return l.held() + l.surplus + l.fetching + l.returning }

// hold adds a portion. Hits beyond the last portion end with it.
func (l *lease) hold(hits, ends int64) {
	switch n := len(l.portions); {
	case hits == 0:
	case n == maxPortions:
		l.portions[n-1].hits += hits
	default:
		l.portions = append(l.portions, portion{hits, ends})
	}
}

// spend takes hits from the lease, oldest portions first, and returns hits. The lease
// has them.
func (l *lease) spend(hits int64) int64 {
	for left := hits; left > 0; {
		p := &l.portions[0]
		n := min(left, p.hits)
		left -= n
		if p.hits -= n; p.hits == 0 {
			l.portions = slices.Delete(l.portions, 0, 1)
		}
	}
	return hits
}

// yield has the held hits given back in the next sweep, and no hits fetched for a ttl.
func (l *lease) yield(now int64) {
	for i := range l.portions {
		l.portions[i].ends = min(l.portions[i].ends, now)
	}
	l.retry = now + l.ttl()
}

// due reports whether the ttl of the oldest hits is over. The clock may have been set
// back.
func (l *lease) due(now int64) bool {
	if l.looking || l.returning > 0 {
		return false
	}
	return l.surplus > 0 || len(l.portions) > 0 && (l.portions[0].ends <= now || l.portions[0].ends > now+l.ttl())
}

// expire takes the hits that are to be given back by now out of the lease.
func (l *lease) expire(now int64) (hits int64) {
	hits, l.surplus = l.surplus, 0
	for len(l.portions) > 0 && (l.portions[0].ends <= now || l.portions[0].ends > now+l.ttl()) {
		hits += l.spend(l.portions[0].hits)
	}
	return hits
}
