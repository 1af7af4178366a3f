package algorithms

import "example.org/rls/pkg/backends"

// fixedWindow counts hits in the bucket floor(now / window). By default every
// hit counts, denied ones too, and a hit is denied when the count after it is
// above the limit, as in envoyproxy/ratelimit. With FromFirstHit the window
// starts at the key's first hit; with Extend every hit starts it anew. With a
// lease denied hits do not count: they would take the place of hits that another
// process gives back. A limit with a Calendar has the row periods in its place, and
// one with an Overdraft the row carried.
var fixedWindow = row{
	name: "fixed_window",
	prepare: func(l *Limit) error {
		switch {
		case l.Extend:
			l.tag, l.cell.Span = "fe", backends.EveryHit
		case l.FromFirstHit:
			l.tag, l.cell.Span = "ff", backends.FirstHit
		}
		return nil
	},
	bucketed: true,
	plan: func(l *Limit, op *backends.Op, c Charge) {
		if !c.AdmittedOnly && !c.Refund && l.cell.Lease == nil {
			op.Verb = backends.Count
		}
		if l.FromFirstHit {
			op.Until = c.Now + l.window
			return
		}
		op.Until = (c.Now/l.window + 1) * l.window
	},
	judge: func(l *Limit, op *backends.Op, r *backends.Reply) Decision {
		d := Decision{
			Allowed:   op.Verb.GivesBack() || r.Admitted == op.Times,
			Remaining: int64(l.Requests) - r.Value.Whole,
			Reset:     micros(r.Until - r.Now),
		}
		d.RetryAfter = d.Reset
		return d
	},
}
