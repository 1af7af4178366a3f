package algorithms

import "example.org/rls/pkg/backends"

// fixedWindow counts hits in the bucket floor(now / window). By default every
// hit counts, denied ones too, and a hit is denied when the count after it is
// above the limit, as in envoyproxy/ratelimit. With FromFirstHit the window
// starts at the key's first hit; with Extend every hit starts it anew. With Calendar
// it is a period of the calendar. With a lease denied hits do not count: they would
// take the place of hits that another process gives back.
var fixedWindow = row{
	name: "fixed_window",
	prepare: func(l *Limit) (err error) {
		switch {
		case l.Calendar.On:
			l.tag = "c"
			l.calendar, err = l.newCalendar()
		case l.Extend:
			l.tag = "fe"
		case l.FromFirstHit:
			l.tag = "ff"
		}
		return err
	},
	bucketed: true,
	plan: func(l *Limit, op *backends.Op, c Charge) {
		if l.beyond != nil {
			l.planCarried(op)
			return
		}
		op.ChargeDenied = !c.AdmittedOnly && !c.Refund && l.lease == nil
		if l.FromFirstHit {
			op.Span = backends.FirstHit
			if l.Extend {
				op.Span = backends.EveryHit
			}
			op.Until = c.Now + l.window
			return
		}
		if l.calendar != nil {
			_, _, end := l.calendar.period(c.Now)
			op.Until = end + l.calendar.keep
			return
		}
		op.Until = (c.Now/l.window + 1) * l.window
	},
	judge: func(l *Limit, op *backends.Op, r *backends.Reply) Decision {
		if l.beyond != nil {
			return l.judgeCarried(op, r)
		}
		d := Decision{
			Allowed:   op.Refund || r.Admitted == op.Times,
			Remaining: int64(l.Requests) - r.Value.Whole,
			Reset:     micros(r.Until - r.Now),
		}
		if l.calendar != nil { // the cell outlives the period
			_, _, end := l.calendar.period(r.Now)
			d.Reset = micros(end - r.Now)
		}
		d.RetryAfter = d.Reset
		return d
	},
}
