package algorithms

import (
	"example.org/rls/pkg/backends"
)

// slidingWindow admits while previous × (window − elapsed)/window + current +
// cost <= limit: the rolling window's count, with the previous bucket's hits
// taken as evenly spread (Cloudflare's sliding window counter). The product is
// never floored: a share of the previous bucket counts as a whole hit, which
// for whole costs is the same as cross-multiplying.
var slidingWindow = row{
	name: "sliding_window",
	tag:  tagged("sw"),
	prepare: func(l *Limit) error {
		// Weights in milliseconds, coarser for windows above a year, so that
		// they stay below 2^35 and a store can multiply them in doubles.
		l.weightUnit = 1000
		if l.window/l.weightUnit > 1<<35 {
			l.weightUnit *= 10
		}
		return nil
	},
	bucketed: true,
	paired:   true,
	plan: func(l *Limit, op *backends.Op, c Charge) {
		bucket := c.Now / l.window
		op.Kind = backends.Counter
		op.Max = backends.Amount{Whole: int64(l.Requests)}
		op.Until = (bucket + 2) * l.window // this bucket is the previous one of the next window
		left := (bucket+1)*l.window - c.Now
		op.WeightNum = (left + l.weightUnit - 1) / l.weightUnit
		op.WeightDen = l.window / l.weightUnit
	},
	judge: func(l *Limit, op *backends.Op, r *backends.Reply) Decision {
		current := r.Value.Whole
		end := op.Until - l.window // of the current bucket
		d := Decision{
			Allowed:   op.Refund || r.Admitted == op.Times,
			Remaining: int64(l.Requests) - current - backends.Share(r.Prev, op.WeightNum, op.WeightDen),
		}
		switch {
		case current > 0:
			d.Reset = micros(end + l.window - op.Now)
		case r.Prev > 0:
			d.Reset = micros(end - op.Now)
		}
		if !d.Allowed {
			d.RetryAfter = micros(l.slidingRetryAt(op, r, end) - op.Now)
		}
		return d
	},
}

// slidingRetryAt is the earliest moment at which op's cost would pass. The
// share of a bucket that counts fits some room when its weight is at most
// floor(room × den / count).
func (l *Limit) slidingRetryAt(op *backends.Op, r *backends.Reply, end int64) int64 {
	limit, current, cost := int64(l.Requests), r.Value.Whole, op.By.Whole
	if cost > limit {
		return op.Now + l.window
	}
	if room := limit - current - cost; room >= 0 && r.Prev > 0 {
		weight, _ := mulDiv(room, op.WeightDen, r.Prev)
		return end - min(weight, op.WeightDen)*l.weightUnit
	}
	weight := op.WeightDen
	if current > 0 {
		weight, _ = mulDiv(limit-cost, op.WeightDen, current)
	}
	return end + l.window - min(weight, op.WeightDen)*l.weightUnit
}
