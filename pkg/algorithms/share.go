package algorithms

import "example.org/rls/pkg/backends"

// judgeShare turns the reply of one of r.Replicas processes, to a step of
// [backends.Op.Alone] on its own copy of the cell, into a decision. Remaining is what
// this process would still admit.
func (l *Limit) judgeShare(op *backends.Op, r *backends.Reply) Decision {
	share, mine := *l, op.Alone(r.Replicas)
	whole := *r
	whole.Replicas = 0
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
