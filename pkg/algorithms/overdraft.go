package algorithms

import (
	"fmt"
	"math"

	"example.org/rls/pkg/backends"
)

// FullOverdraft is a Spec.Overdraft of fullDebt times the capacity.
const FullOverdraft = math.MaxUint64

const fullDebt = 1000

// fullDebt is the debt in hits of a full overdraft. On a meter it is paid within maxFill.
func (l *Limit) fullDebt() int64 {
	return int64(min(float64(fullDebt*l.Capacity()), float64(maxFill.Microseconds())/float64(l.window)*float64(l.Requests)))
}

// MaxDebt is the most hits that may be used beyond the limit; 0 without an overdraft.
func (l *Limit) MaxDebt() int64 {
	switch {
	case !l.overdraws():
		return 0
	case l.Overdraft == FullOverdraft:
		return l.fullDebt()
	}
	return int64(l.Overdraft)
}

// tooSlow reports whether so many hits, of a burst or a debt, take more than maxFill.
func (l *Limit) tooSlow(hits int64) bool {
	return float64(hits)*float64(l.window) > float64(maxFill.Microseconds())*float64(l.Requests)
}

// overdraws reports whether the limit has an overdraft. One of 0 requests denies every hit and
// has none.
func (l *Limit) overdraws() bool { return l.Overdraft > 0 && l.Requests > 0 }

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

// period returns the number of the window of the clock or the calendar in which now lies, and its end in µs
// since the epoch.
func (l *Limit) period(now int64) (number, end int64) {
	if l.calendar != nil {
		number, _, end = l.calendar.period(now)
		return number, end
	}
	number = now / l.window
	return number, l.startOf(number + 1)
}

// startOf is the start of the window of that number, in µs since the epoch.
func (l *Limit) startOf(number int64) int64 {
	if l.calendar != nil {
		return l.calendar.startOf(number)
	}
	return number * l.window
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
		begins := func(after int64) int64 { return l.startOf(number+max(after, 1)) - r.Now }
		return Decision{
			Allowed:    op.Refund || r.Admitted == op.Times,
			Remaining:  whole - used,
			Reset:      micros(begins((used + whole - 1) / whole)),
			RetryAfter: micros(begins(used / whole)),
		}
	},
}

// Used is the number of hits in use in the cell that r, the reply to op, describes: the
// capacity less what remains, and the debt of an overdraft. Denied hits that a fixed window
// counts are in it.
func (l *Limit) Used(op *backends.Op, r *backends.Reply) int64 {
	switch {
	case op.Kind == backends.Counter && op.Prev == "":
		return r.Value.Whole
	case op.Kind == backends.Meter && l.beyond != nil:
		ahead := r.Value.Sub(backends.Amount{Whole: r.Now}, l.den)
		if debt := ahead.Sub(l.tolerance, l.den); debt.Whole >= 0 {
			return l.Capacity() + l.hitsIn(debt)
		}
	}
	return l.Capacity() - l.Judge(op, r).Remaining
}

// hitsIn is how many hits a time on a meter stands for, rounded up.
func (l *Limit) hitsIn(time backends.Amount) int64 {
	almost := l.interval.Sub(backends.Amount{Frac: 1}, l.den)
	return time.Add(almost, l.den).Units(l.interval, l.den)
}
