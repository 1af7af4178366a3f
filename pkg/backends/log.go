package backends

import (
	"math"
	"math/bits"
	"slices"
)

// Cost is one charge in a Log, or a grant.
type Cost struct {
	At   int64 // microseconds since the epoch
	Hits int64 // of a grant below 0
	// Number is Op.OwnMark of the charge. A clock that is behind changes At, and leaves Number.
	Number int64
}

// reserved reports whether the hits are of a reservation that nothing was given back of. Their
// number is above the times until the year 2112.
func (c Cost) reserved() bool { return c.Number >= MaxValue }

// Log is the state of a List: its charges, oldest first, in the order of At.
type Log []Cost

// Step applies op to the log in place and returns the log after it. It defines
// the effect of an operation on a List for every store.
//
// A clock that was set back leaves charges dated after Op.Now. Step takes them for
// charges of Op.Now. The returned log is without the costs that have left the window
// and with the new dates, even if op is denied, unless op is ReadOnly.
func (l Log) Step(op *Op) (after Log, r Reply) {
	after, used := l.advance(op)
	op.apply(&r, Amount{Whole: used}, op.Max)
	after, r.Value.Whole = after.store(op, used, r.Value.Whole)
	at, _ := op.Dating()
	r.Until, r.RetryAt = op.Now, op.Now
	if n := len(after); n > 0 {
		r.Until = op.Leaves(min(after[n-1].At, at))
	}
	if r.Admitted < op.Times {
		r.RetryAt = after.retryAt(r.Value.Whole, op)
	}
	if op.ReadOnly() {
		return l, r
	}
	return after, r
}

// advance is the log as op finds it, and the sum of its costs.
func (l Log) advance(op *Op) (after Log, used int64) {
	at, gone := op.Dating()
	left := 0
	for left < len(l) && l[left].At <= gone {
		left++
	}
	if after = l[left:]; !op.ReadOnly() {
		after = append(l[:0], after...)
		for i := len(after) - 1; i >= 0 && after[i].At > op.Now; i-- {
			after[i].At = at
		}
	}
	for _, e := range after {
		used += e.Hits
	}
	return after, used
}

// store is the log with costs that sum to after in place of used, and their sum: a Refund may
// find less to give back.
func (l Log) store(op *Op, used, after int64) (Log, int64) {
	switch {
	case op.Verb == Reset:
		return l[:0], 0
	case op.Verb.GivesBack():
		return l.giveBack(op, used, used-after)
	}
	return l.add(op, after-used), after
}

// Dating returns the time that a charge of op, on a List, gets, and the latest time of costs
// that have left the window.
func (o *Op) Dating() (at, gone int64) {
	if o.Parts == 0 {
		return o.Now, o.Now - o.Window
	}
	part := o.part(o.Now)
	return o.starts(part), o.starts(part-o.Parts) - 1
}

// part is the number of the part of the window in which at lies.
func (o *Op) part(at int64) int64 {
	hi, lo := bits.Mul64(uint64(at), uint64(o.Parts))
	part, _ := bits.Div64(hi, lo, uint64(o.Window))
	return int64(part)
}

// starts is the first µs of a part of the window, 0 for parts before the epoch.
func (o *Op) starts(part int64) int64 {
	hi, lo := bits.Mul64(uint64(max(part, 0)), uint64(o.Window))
	at, rest := bits.Div64(hi, lo, uint64(o.Parts))
	if rest > 0 {
		at++
	}
	return int64(at)
}

// Leaves is when a cost of that time leaves the window of o, which is on a List.
func (o *Op) Leaves(at int64) int64 {
	if o.Parts == 0 {
		return at + o.Window
	}
	return o.starts(o.part(at) + o.Parts + 1)
}

// Arrived is a time of costs that leave the window of o, which is on a List, at until.
func (o *Op) Arrived(until int64) int64 {
	if o.Parts == 0 {
		return until - o.Window
	}
	return o.starts(o.part(until) - o.Parts - 1)
}

// add appends a cost of hits to the log, or adds it to the newest one of the same part. A grant is
// a cost below 0.
func (l Log) add(op *Op, hits int64) Log {
	at, _ := op.Dating()
	switch n := len(l); {
	case hits == 0:
		return l
	case hits < 0:
		return append(l, Cost{at, hits, at})
	case n > 0 && op.Parts > 0 && l[n-1].At == at && l[n-1].Number == at && l[n-1].Hits > 0:
		l[n-1].Hits += hits
		return l
	}
	return append(l, Cost{at, hits, op.OwnMark()})
}

// giveBack takes a cost off the newest charges, or as Op.Mark and Limit.Oldest say. Charges of
// reservations come last unless Op.Mark names one; the rest of that charge is then like any other
// charge. Grants stay. It returns the sum of the log after it, which was used.
func (l Log) giveBack(op *Op, used, cost int64) (Log, int64) {
	oldest := op.Oldest && op.Verb != Undo
	for n := 2 * len(l); n > 0 && cost > 0; n-- {
		e := &l[(n-1)%len(l)]
		if oldest {
			e = &l[(2*len(l)-n)%len(l)]
		}
		if e.Hits < 0 || op.Mark > 0 && e.Number != op.Mark || op.Mark == 0 && e.reserved() && n > len(l) {
			continue
		}
		take := min(cost, e.Hits)
		e.Hits -= take
		cost -= take
		used -= take
		if op.Mark > 0 && e.reserved() {
			e.Number = e.At
		}
	}
	return slices.DeleteFunc(l, func(e Cost) bool { return e.Hits == 0 }), used
}

// retryAt is the moment at which enough of the oldest costs have left for one
// more op.By.
func (l Log) retryAt(used int64, op *Op) int64 {
	if op.By.Whole > op.Max.Whole {
		return math.MaxInt64
	}
	for i, e := range l {
		used -= e.Hits
		last := i+1 == len(l) || e.At < min(l[i+1].At, op.Now) // of its time: a grant may leave with a cost
		if last && used+op.By.Whole <= op.Max.Whole {
			return op.Leaves(min(e.At, op.Now))
		}
	}
	return math.MaxInt64
}
