package rlqs

import (
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
)

// rival takes in the demand of ShouldRateLimit: the hits of the limit with the longest window that
// no Quota has reported. The number is below 0 after a reset or a grant, which the own cell does
// not see.
func (u *Usage) rival(b *backends.Batch) {
	l, op := u.limits[u.longest], &b.Ops[u.charges+u.longest]
	all, own := &b.Replies[u.charges+u.longest], &b.Replies[u.charges+len(u.limits)]
	if u.Unasked || all.Err != nil || own.Err != nil || all.Recalled {
		return
	}
	level, reported := l.Used(op, all), l.Used(op, own)
	if op.Span == backends.Sliding { // of the running window only, which hits do not leave
		level, reported = all.Value.Whole, own.Value.Whole
	}
	before, known := u.used, u.known
	anew := op.Kind == backends.Counter && reported < u.own // another window
	u.used, u.own, u.known = level-reported, reported, true
	known = known && u.Elapsed > 0
	since, steady := float64(u.used-before), l.Window <= QuotaInterval
	switch {
	case known && op.Kind == backends.Meter:
		left := u.used
		if left < 0 {
			left = level - int64(u.cost(l))
		}
		if u.rivals = u.onMeter(l, since, float64(left)); steady {
			u.rivals = min(u.rivals, u.onSteady(l, op, all.Now))
		}
	case steady:
		u.rivals = max(u.onSteady(l, op, all.Now), u.rivals/2)
	case known && anew:
		u.rivals = u.onWindow(float64(u.used))
	case known && op.Kind == backends.List: // which hits leave one by one: they have come all the same
		u.rivals = u.onWindow(since + float64(max(before, 0))*u.Elapsed.Seconds()/l.Window.Seconds())
	case known:
		u.rivals = u.onWindow(since)
	}
}

// onMeter is the demand on a meter, which drains at the limit's rate unless it is empty. Its level rose
// by so many hits since the last report:
//
//	(since + rate × elapsed) × interval / elapsed
//
// but at most the hits left in it, once for each window of an interval.
func (u *Usage) onMeter(l *descriptors.Limit, since, left float64) float64 {
	elapsed := u.Elapsed.Seconds()
	demand := (since + rateOf(l)*elapsed) * reportSeconds / elapsed
	return max(min(demand, left*max(reportSeconds/l.Window.Seconds(), 1)), 0)
}

// onSteady is the demand on a limit whose window is not longer than an interval: at the rate of the
// hits used in the running window, which has an age, but at most at the limit's rate:
//
//	min(rate × interval, used × interval / age)
func (u *Usage) onSteady(l *descriptors.Limit, op *backends.Op, now int64) float64 {
	window := l.Window.Seconds()
	age := window
	if op.Kind == backends.Counter && (op.Span == backends.Fixed || op.Span == backends.Sliding) {
		age = max(float64(now%l.Window.Microseconds())/1e6, window/10)
	}
	return min(rateOf(l)*reportSeconds, float64(max(u.used, 0))*reportSeconds/age)
}

// onWindow is the demand on a long window that so many hits came to since the last report:
//
//	since × interval / elapsed
func (u *Usage) onWindow(since float64) float64 {
	return max(since, 0) * reportSeconds / u.Elapsed.Seconds()
}

// rateOf is the hits of l in a second.
func rateOf(l *descriptors.Limit) float64 { return float64(l.Requests) / l.Window.Seconds() }
