package algorithms

import (
	"fmt"
	"slices"
	"time"

	"example.org/rls/pkg/backends"
)

// periods is fixed_window whose windows are the periods of a calendar.
var periods = row{
	name:     fixedWindow.name,
	tag:      "c",
	bucketed: true,
	prepare: func(l *Limit) (err error) {
		if l.calendar, err = newCalendar(l.Calendar, l.Window); err != nil {
			return &SpecError{"timezone", err.Error()}
		}
		return nil
	},
	plan: func(l *Limit, op *backends.Op, c Charge) {
		fixedWindow.plan(l, op, c)
		_, _, end := l.calendar.period(c.Now)
		op.Until = end + l.calendar.keep
	},
	judge: func(l *Limit, op *backends.Op, r *backends.Reply) Decision {
		d := fixedWindow.judge(l, op, r)
		_, _, end := l.calendar.period(r.Now) // the cell outlives it
		d.Reset = micros(end - r.Now)
		d.RetryAfter = d.Reset
		return d
	},
}

// checkCalendar refuses a calendar that has no meaning for the limit.
func (l *Limit) checkCalendar() error {
	c, unit := l.Calendar, l.Calendar.Unit(l.Window)
	for _, f := range []struct {
		field, unit string
		given       bool
	}{
		{"timezone", unit, c.Zone != ""}, {"week_starts", "week", c.WeekStarts > 0},
		{"month_starts", "month", c.MonthStarts > 0}, {"year_starts", "year", c.YearStarts > 0},
	} {
		switch {
		case f.given && !c.On:
			return &SpecError{f.field, "needs `window: calendar`"}
		case f.given && unit != "" && f.unit != unit:
			return &SpecError{f.field, fmt.Sprintf("is an option of the unit %s, not of %s", f.unit, unit)}
		}
	}
	switch {
	case !c.On:
		return nil
	case l.Strategy != FixedWindow || l.FromFirstHit:
		return &SpecError{"window", "calendar is an option of fixed_window, not of " + l.row.name}
	case unit == "":
		return &SpecError{"unit", "must be day, week, month or year with `window: calendar`"}
	case c.WeekStarts > 7 || c.MonthStarts > 28 || c.YearStarts > 12:
		return &SpecError{"window", fmt.Sprintf("the calendar %+v is out of range", c)}
	}
	if _, known := slices.BinarySearch(Zones(), c.Zone); c.Zone != "" && !known {
		return &SpecError{"timezone", fmt.Sprintf("unknown time zone %q", c.Zone)}
	}
	return nil
}

// Period is the period of the calendar that contains now, in µs since the epoch, as times of
// the limit's zone. ok is false without Spec.Calendar.
func (l *Limit) Period(now int64) (start, end time.Time, ok bool) {
	if l.calendar == nil {
		return start, end, false
	}
	_, from, to := l.calendar.period(now)
	return time.UnixMicro(from).In(l.calendar.zone), time.UnixMicro(to).In(l.calendar.zone), true
}
