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
		l.cell.Span, l.cell.Debt.Whole, l.cell.Carry = backends.Carried, l.MaxDebt(), int64(l.Requests)
		if l.calendar != nil {
			l.cell.Window = l.calendar.longest
		}
		return nil
	}
	l.tag += "o"
	l.cell.Debt, l.cell.Shift = l.intervals(l.MaxDebt()), l.tolerance
	if longest := MaxWindow.Microseconds(); l.cell.Shift.Whole >= longest { // a stored meter stays above 0
		l.cell.Shift = backends.Amount{Whole: longest}
	}
	l.cell.Full.Whole += backends.MaxWait // limits of other amounts, with other debts, share the cell
	return nil
}

// carried is fixed_window with an overdraft: windows hand their debt on.
var carried = row{
	name: fixedWindow.name,
	plan: func(l *Limit, op *backends.Op, _ Charge) {
		op.Mark, op.Until = l.period(op.Now)
	},
	judge: func(l *Limit, op *backends.Op, r *backends.Reply) Decision {
		number, _ := l.period(r.Now)
		used, whole := r.Value.Whole, int64(l.Requests)
		// The window after n others begins with used - n × whole.
		most := int64(maxFill/l.Window) + 2
		begins := func(after int64) int64 { return l.startOf(number+min(max(after, 1), most)) - r.Now }
		return Decision{
			Allowed:    op.Verb.GivesBack() || r.Admitted == op.Times,
			Remaining:  whole - used,
			Reset:      micros(begins((used + whole - 1) / whole)),
			RetryAfter: micros(begins(used / whole)),
		}
	},
}

// debt is how many hits the meter that r describes has beyond the capacity, rounded up.
func (l *Limit) debt(r *backends.Reply) int64 {
	almost := l.cell.Unit.Sub(backends.Amount{Frac: 1}, l.cell.Den)
	beyond := l.ahead(r).Sub(l.tolerance, l.cell.Den)
	return beyond.Add(almost, l.cell.Den).Units(l.cell.Unit, l.cell.Den)
}
