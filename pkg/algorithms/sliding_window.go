package algorithms

import (
	"example.org/rls/pkg/backends"
)

// slidingWindow admits while previous × (window − elapsed)/window + current +
// cost <= limit: an estimate of the rolling window's count that assumes the
// previous bucket's hits to be evenly spread (Cloudflare's sliding window
// counter). The product is rounded up, so that a fraction of a hit counts as a
// whole one, which for whole costs is the same as cross-multiplying.
var slidingWindow = row{
	name: "sliding_window",
	tag:  "sw",
	prepare: func(l *Limit) error {
		l.cell.Span = backends.Sliding
		return nil
	},
	plan: func(l *Limit, op *backends.Op, c Charge) {
		op.Mark = c.Now / l.window
		op.Until = (op.Mark + 2) * l.window // this window is the one before the next
	},
	judge: func(l *Limit, op *backends.Op, r *backends.Reply) Decision {
		current := r.Value.Whole
		end := r.Until - l.window // of the current window
		num, den := l.cell.Weight(end - r.Now)
		d := Decision{
			Allowed:   op.Verb.GivesBack() || r.Admitted == op.Times,
			Remaining: int64(l.Requests) - current - backends.Weighted(r.Prev, num, den),
		}
		switch {
		case current > 0:
			d.Reset = micros(end + l.window - r.Now)
		case r.Prev > 0:
			d.Reset = micros(end - r.Now)
		}
		if !d.Allowed {
			d.RetryAfter = micros(l.slidingRetryAt(op, r, end) - r.Now)
		}
		return d
	},
}

// slidingRetryAt is the earliest moment at which op's cost would pass. The
// part of a bucket that counts fits some room when its weight is at most
// floor(room × den / count).
func (l *Limit) slidingRetryAt(op *backends.Op, r *backends.Reply, end int64) int64 {
	limit, current, cost := int64(l.Requests), r.Value.Whole, op.By.Whole+r.Beside.Whole
	if cost > limit {
		return r.Now + l.window
	}
	if room := limit - current - cost; room >= 0 && r.Prev > 0 {
		return end - l.fittingWeight(room, r.Prev)*l.cell.WeightUnit()
	}
	return end + l.window - l.fittingWeight(limit-cost, current)*l.cell.WeightUnit()
}

// fittingWeight is the largest weight, in backends.Limit.WeightUnit, at which a
// bucket of count hits takes at most room.
func (l *Limit) fittingWeight(room, count int64) int64 {
	den := l.window / l.cell.WeightUnit()
	if room >= count {
		return den
	}
	weight, _ := mulDiv(room, den, count)
	return weight
}
