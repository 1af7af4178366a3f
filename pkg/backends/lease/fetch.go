package lease

import "example.org/rls/pkg/backends"

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
