package simulation_test

import (
	"fmt"
	"sort"
	"time"

	"example.org/rls/pkg/algorithms"
)

// calendar is days of a time zone, one of which begins in the run.
type calendar struct {
	zone   string
	begins []int64   // when days begin, µs since the epoch
	edge   int64     // one of them, in the run
	date   time.Time // the date that begins then
}

// randomCalendar chooses a zone and a day, half of the time one around which the zone's clocks
// change, and has the run begin shortly before that day does. It looks at the clocks of the
// zone minute by minute: a day begins when they first show its date, or a later one.
func (w *world) randomCalendar() *calendar {
	names := algorithms.Zones()
	c := &calendar{zone: names[w.rng.IntN(len(names))]}
	zone, err := time.LoadLocation(c.zone)
	if err != nil {
		panic(err)
	}
	at := time.UnixMicro(w.now).AddDate(0, 0, w.rng.IntN(1000)).In(zone)
	if _, change := at.ZoneBounds(); !change.IsZero() && w.chance(2) {
		at = change
	}
	const day = 86_400
	var dates []int64
	highest := int64(0)
	for t := (at.Unix() - 28*3600) / 60 * 60; t < at.Unix()+28*3600; t += 60 {
		_, offset := time.Unix(t, 0).In(zone).Zone()
		shown := (t + int64(offset)) / day
		if shown > highest && highest > 0 {
			c.begins, dates = append(c.begins, t*1_000_000), append(dates, shown)
		}
		highest = max(highest, shown)
	}
	i := w.rng.IntN(len(dates))
	c.edge, c.date = c.begins[i], time.Unix(dates[i]*day, 0).UTC()
	w.now = c.edge - w.between(0, 15*time.Second)
	w.start = w.now
	return c
}

// in makes a rule's windows days, weeks or months that begin with the day in the run.
func (c *calendar) in(r *rule, unit int) {
	const day = 24 * time.Hour
	r.calendar, r.spec.Window = c, day
	r.unit = fmt.Sprintf("unit: day, window: calendar, timezone: %s", c.zone)
	switch {
	case unit == 1:
		r.spec.Window = 7 * day
		r.unit = fmt.Sprintf("unit: week, window: calendar, timezone: %s, week_starts: %s", c.zone, weekdays[c.date.Weekday()])
	case unit == 2 && c.date.Day() <= 28:
		r.spec.Window = 30 * day
		r.unit = fmt.Sprintf("unit: month, window: calendar, timezone: %s, month_starts: %d", c.zone, c.date.Day())
	}
}

var weekdays = [...]string{"sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"}

// period is the number of the rule's window in which a time lies.
func (r *rule) period(at int64) int64 {
	c := r.calendar
	switch {
	case c == nil:
		return at / r.window()
	case r.spec.Window > 24*time.Hour && at < c.edge:
		return 0
	case r.spec.Window > 24*time.Hour:
		return 1
	}
	return int64(sort.Search(len(c.begins), func(i int) bool { return c.begins[i] > at }))
}

// longest is how long a window can be. The cell of a calendar's lives 26 hours more, because
// other databases of time zones may have another end for it.
func (r *rule) longest() int64 {
	if r.calendar == nil {
		return r.window()
	}
	return r.window() + (26+26)*time.Hour.Microseconds()
}
