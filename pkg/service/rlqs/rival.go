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
	elapsed, window, steady := u.Elapsed.Seconds(), l.Window.Seconds(), l.Window <= QuotaInterval
	passed := rateOf(l) * perReport // in an perReport, at most
	if steady {
		age := window
		if op.Kind == backends.Counter && (op.Span == backends.Fixed || op.Span == backends.Sliding) {
			age = max(float64(all.Now%l.Window.Microseconds())/1e6, window/10)
		}
		passed = min(passed, float64(max(u.used, 0))*perReport/age)
	}
	switch since := float64(u.used - before); {
	case known && elapsed > 0 && op.Kind == backends.Meter: // which drains, unless it is empty
		left := u.used
		if left < 0 {
			left = level - int64(u.cost(l))
		}
		since = min((since+rateOf(l)*elapsed)*perReport/elapsed, float64(left)*max(perReport/window, 1))
		if u.rivals = max(since, 0); steady {
			u.rivals = min(u.rivals, passed)
		}
	case steady:
		u.rivals = max(passed, u.rivals/2)
	case known && elapsed > 0:
		if anew {
			since = float64(u.used)
		} else if op.Kind == backends.List { // which hits leave one by one
			since += float64(max(before, 0)) * elapsed / window
		}
		u.rivals = max(since, 0) * perReport / elapsed
	}
}

// rateOf is the hits of l in a second.
func rateOf(l *descriptors.Limit) float64 { return float64(l.Requests) / l.Window.Seconds() }
