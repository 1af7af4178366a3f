package algorithms

import "example.org/rls/pkg/backends"

// MaxShares is the largest number of processes that divide a limit.
const MaxShares = 10_000

// Share is a limit as one of n processes decides it alone, on its own copy of the
// cell: each hit counts n times, as if every process had admitted it. So the
// process admits what remained in the cell when it was copied ÷ n, rounded up,
// and a meter refills for it at 1/n of the rate.
type Share struct {
	n     int64
	limit Limit           // with room for n-1 hits more, so that the division rounds up
	extra backends.Amount // the n-1 hits
}

// Share returns the share of one of n processes. n below 1 counts as 1, and n
// above MaxShares as MaxShares. A limit of 0 requests has shares of 0.
func (l *Limit) Share(n int) Share {
	s := Share{n: int64(min(max(n, 1), MaxShares)), limit: *l}
	switch more := uint32(s.n - 1); {
	case l.Requests == 0:
	case l.row.burst:
		s.limit.Burst = l.Burst + min(more, ^l.Burst) // no overflow
		s.limit.tolerance = l.intervals(int64(s.limit.Burst))
		s.extra = s.limit.tolerance.Sub(l.tolerance, l.den)
	default:
		s.limit.Requests = l.Requests + min(more, ^l.Requests)
		s.extra.Whole = int64(s.limit.Requests) - int64(l.Requests)
	}
	return s
}

// Plan returns the step on the copy of the cell for op, which the limit planned.
func (s *Share) Plan(op *backends.Op) backends.Op {
	mine := *op
	if s.limit.Requests > 0 {
		mine.By = s.times(op.By)
		mine.Max = op.Max.Add(s.extra, op.Den)
		mine.Furthest = op.Furthest.Add(s.extra, op.Den)
	}
	return mine
}

// times is n × by. An amount that never fits gives another that never fits.
func (s *Share) times(by backends.Amount) backends.Amount {
	if !s.limit.row.burst {
		return backends.Amount{Whole: min(by.Whole*s.n, backends.MaxCost)}
	}
	l := &s.limit
	if by.Whole > l.tolerance.Whole/s.n+1 {
		return l.tolerance.Add(l.interval, l.den)
	}
	frac := by.Frac * s.n
	return backends.Amount{Whole: by.Whole*s.n + frac/l.den, Frac: frac % l.den}
}

// Judge turns the reply to a step of [Share.Plan] into a decision. Remaining is
// what this process would still admit.
func (s *Share) Judge(op *backends.Op, r *backends.Reply) Decision {
	d := s.limit.Judge(op, r)
	d.Remaining /= s.n
	return d
}

// Replan fills in op with the step that charges c to the cell with these keys, as
// l named them when it planned an operation at the time at, in µs. If every window
// of the clock has a cell of its own and c.Now lies after the window of at, the
// step is as of the last moment of that window. It is not leased.
func (l *Limit) Replan(op *backends.Op, key, prev string, at int64, c Charge) {
	if l.row.bucketed && !l.FromFirstHit {
		c.Now = min(c.Now, (at/l.window+1)*l.window-1)
	}
	l.Plan(op, Identity{}, c)
	op.Key, op.Prev = key, prev
	op.Lease, op.Stem = nil, 0
}
