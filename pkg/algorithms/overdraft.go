package algorithms

import (
	"fmt"

	"example.org/rls/pkg/backends"
)

// checkOverdraft refuses limits that cannot have debt.
func (l *Limit) checkOverdraft() error {
	switch {
	case l.Overdraft == 0:
		return nil
	case l.Strategy != FixedWindow && l.row.burst == nil:
		return &SpecError{"overdraft", l.row.name + " cannot have debt; fixed_window, token_bucket, gcra and leaky_bucket can"}
	case l.FromFirstHit:
		return &SpecError{"overdraft", "has no meaning with from_first_hit: no window follows that could take the debt over"}
	case l.MaxDelay > 0:
		return &SpecError{"overdraft", "has no meaning with max_delay: a queue lets nobody pass before its turn"}
	}
	return nil
}

// prepareOverdraft checks the debt and derives the values that operations have.
func (l *Limit) prepareOverdraft() error {
	if !l.overdraws() {
		return nil
	}
	if l.Overdraft != FullOverdraft && l.tooSlow(l.MaxDebt()) {
		return &SpecError{"overdraft", fmt.Sprintf("a debt of %d hits at this rate takes more than 100 years to pay; lower it", l.Overdraft)}
	}
	if l.Strategy == FixedWindow {
		l.row, l.tag = &carried, "fo"+l.tag
		l.beyond = &backends.Terms{Debt: backends.Amount{Whole: l.MaxDebt()}, Carry: int64(l.Requests)}
		return nil
	}
	l.tag += "o"
	l.beyond = &backends.Terms{Debt: l.intervals(l.MaxDebt()), Shift: l.tolerance}
	if longest := MaxWindow.Microseconds(); l.beyond.Shift.Whole >= longest { // what is stored stays above 0
		l.beyond.Shift = backends.Amount{Whole: longest}
	}
	return nil
}

// carried is fixed_window with an overdraft: windows hand their debt on.
var carried = row{
	name: fixedWindow.name,
	plan: func(l *Limit, op *backends.Op, _ Charge) {
		op.Span, op.Window = backends.Carried, l.window
		op.Period, op.Until = l.period(op.Now)
		if l.calendar != nil {
			op.Window = l.calendar.longest
		}
	},
	judge: func(l *Limit, op *backends.Op, r *backends.Reply) Decision {
		number, _ := l.period(r.Now)
		used, whole := r.Value.Whole, int64(l.Requests)
		// The window after n others begins with used - n × whole.
		most := int64(maxFill/l.Window) + 2
		begins := func(after int64) int64 { return l.startOf(number+min(max(after, 1), most)) - r.Now }
		return Decision{
			Allowed:    op.Refund || r.Admitted == op.Times,
			Remaining:  whole - used,
			Reset:      micros(begins((used + whole - 1) / whole)),
			RetryAfter: micros(begins(used / whole)),
		}
	},
}

// hitsIn is how many hits a time on a meter stands for, rounded up.
func (l *Limit) hitsIn(time backends.Amount) int64 {
	almost := l.interval.Sub(backends.Amount{Frac: 1}, l.den)
	return time.Add(almost, l.den).Units(l.interval, l.den)
}
