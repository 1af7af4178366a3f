package algorithms

import (
	"time"

	"example.org/rls/pkg/backends"
)

// Plan fills in op with the step that charges c to id. It leaves Group and Role
// to the caller.
func (l *Limit) Plan(op *backends.Op, id Identity, c Charge) {
	*op = backends.Op{
		Limit: &l.cell,
		Now:   c.Now,
		By:    backends.Amount{Whole: int64(min(c.Cost, uint64(backends.MaxCost)))},
		Max:   backends.Amount{Whole: int64(l.Requests)},
		Times: 1,
	}
	if c.Refund {
		op.Verb = backends.Refund
	}
	// Keys are built here: escape analysis puts arguments of a call through a function
	// value on the heap, and the bytes of the identity live on the caller's stack.
	op.Key, op.Stem = l.key(id, l.bucket(c.Now))
	l.row.plan(l, op, c)
	if l.Reserve.TTL > 0 || id.Longest > 0 {
		l.reserve(op, id, c)
	}
	if l.Requests == 0 && (c.Cost > 0 || l.Overdraft > 0) && !c.Refund {
		op.Max = backends.NoRoom // denies also hits that were granted before it was lowered to 0
	}
	if c.Beyond {
		l.chargeBeyond(op)
	}
}

// Judge turns the store's reply to a planned op into a decision, as of r.Now.
// r.Err must be nil.
func (l *Limit) Judge(op *backends.Op, r *backends.Reply) Decision {
	if r.Replicas > 1 {
		return l.judgeShare(op, r)
	}
	d := l.row.judge(l, op, r)
	d.Remaining = max(d.Remaining, 0)
	if d.Allowed {
		d.RetryAfter = 0
	} else {
		d.Delay, d.RetryAfter = 0, max(d.RetryAfter, time.Microsecond) // the cell may have room since
	}
	return d
}

// judgeShare turns the reply of one of r.Replicas processes, to a step of
// [backends.Op.Alone] on its own copy of the cell, into a decision. Remaining is what
// this process would still admit.
func (l *Limit) judgeShare(op *backends.Op, r *backends.Reply) Decision {
	share, mine := *l, op.Alone(r.Replicas)
	whole := *r
	whole.Replicas, whole.Beside = 0, r.Beside.Times(r.Replicas, op.Den)
	// The share has room for a hit of each other process, so that the division rounds up.
	more := uint32(r.Replicas - 1)
	switch {
	case l.Requests == 0:
	case l.overdraws(): // a charge fits while one hit remains
		d := l.Judge(&mine, &whole)
		d.Remaining = (d.Remaining + int64(more)) / r.Replicas
		return d
	case l.row.burst != nil:
		share.Burst = l.Burst + min(more, ^l.Burst) // no overflow
		share.tolerance = l.intervals(int64(share.Burst))
	default:
		share.Requests = l.Requests + min(more, ^l.Requests)
	}
	d := share.Judge(&mine, &whole)
	d.Remaining /= r.Replicas
	return d
}

// Used is the number of hits in use in the cell that r, the reply to op, describes: the
// capacity less what remains, and the hits beyond it: debt, and denied hits that a fixed window
// counts. It is below 0 by a grant.
func (l *Limit) Used(op *backends.Op, r *backends.Reply) int64 {
	used := l.Capacity() - l.row.judge(l, op, r).Remaining
	if op.Kind == backends.Meter {
		used += l.debt(r)
	}
	return used
}
