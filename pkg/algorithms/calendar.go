package algorithms

import (
	_ "embed"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	_ "time/tzdata" // the time zones, for machines that have none
)

// Calendar makes the windows of a fixed_window the periods of a calendar: the days, weeks,
// months or years of a time zone, whichever Spec.Window is the nominal length of (24 hours,
// 7, 30 or 365 days). The zero Calendar is none; the other fields need On.
type Calendar struct {
	On          bool
	Zone        string // one of Zones; "" is UTC
	WeekStarts  uint8  // of weeks: 1 is Monday and 7 Sunday; 0 is Monday
	MonthStarts uint32 // of months: the day, 1 to 28; 0 is 1
	YearStarts  uint8  // of years: the month, 1 to 12; 0 is January
}

// calendarUnits are the periods by their nominal lengths.
var calendarUnits = map[time.Duration]string{
	24 * time.Hour: "day", 7 * 24 * time.Hour: "week", 30 * 24 * time.Hour: "month", 365 * 24 * time.Hour: "year",
}

// Unit is day, week, month or year: the period of a calendar with windows of that nominal
// length. It is "" if there is none, or if c is not On.
func (c Calendar) Unit(window time.Duration) string {
	if !c.On {
		return ""
	}
	return calendarUnits[window]
}

// For is the part of c that has a meaning for windows of that nominal length.
func (c Calendar) For(window time.Duration) Calendar {
	fits := Calendar{On: true, Zone: c.Zone}
	switch c.Unit(window) {
	case "":
		return Calendar{}
	case "week":
		fits.WeekStarts = c.WeekStarts
	case "month":
		fits.MonthStarts = c.MonthStarts
	case "year":
		fits.YearStarts = c.YearStarts
	}
	return fits
}

//go:embed zones.txt
var zoneNames string

// Zones lists the time zones of the IANA database, sorted.
var Zones = sync.OnceValue(func() []string { return strings.Fields(zoneNames) })

// newCalendar makes the calendar c for windows of that nominal length, or finds it.
func newCalendar(c Calendar, window time.Duration) (*calendar, error) {
	key := calendarKey{c, window}
	if found, ok := calendars.Load(key); ok {
		return found.(*calendar), nil
	}
	zone, err := time.LoadLocation(c.Zone)
	if err != nil {
		return nil, err
	}
	made := &calendar{zone: zone, longest: (window + 2*time.Hour).Microseconds()}
	switch c.Unit(window) {
	case "day":
		made.days = 1
	case "week":
		made.days, made.firstDay = 7, int(max(c.WeekStarts, 1))-4 // 1970 began on a Thursday
	case "month":
		made.months, made.firstDay = 1, int(max(c.MonthStarts, 1))-1
	case "year":
		made.months, made.firstMonth = 12, int(max(c.YearStarts, 1))-1
	}
	if made.months > 0 { // 31 days, 366 days
		made.longest += 24 * time.Hour.Microseconds()
	}
	if zone != time.UTC {
		made.keep = farthest * 1_000_000
	}
	found, _ := calendars.LoadOrStore(key, made)
	return found.(*calendar), nil
}

// calendars are the calendars of this process, by calendarKey. Limits share them, so that a
// limit which a request brings finds the running period, and so that a time zone has one
// meaning in a process, whatever becomes of the files of the machine.
var calendars sync.Map

type calendarKey struct {
	Calendar
	window time.Duration
}

// calendar cuts time into the periods of a time zone. A period begins at the first moment at
// which the zone's clocks show midnight of its first day, or a later time: a midnight that
// clocks skip begins when they have skipped it, and one that comes twice when it first comes.
// A day that a zone skips as a whole is a period of no length.
type calendar struct {
	zone *time.Location
	// The period n begins n × months and n × days after 1 January 1970, later by firstMonth
	// and firstDay. One of months and days is 0.
	months, days, firstMonth, firstDay int
	// keep is how long a cell outlives its period, in µs. Databases of time zones change, and
	// processes with another one may see the period end later: they have to find its cell.
	keep int64
	// longest is as long as a period is, and two hours more if clocks change, in µs.
	longest int64
	running atomic.Pointer[period] // the last one that was asked for
}

// period is a period of a calendar; start and end in µs since the epoch.
type period struct{ number, start, end int64 }

// farthest is further than any zone's clocks are from UTC, and than a change of the rules of
// a zone can move a midnight, in seconds.
const farthest = 26 * 3600

// period is the period that contains now, in µs since the epoch. Numbers rise with time, by 1
// but for days that the zone skips.
func (c *calendar) period(now int64) (number, start, end int64) {
	if p := c.running.Load(); p != nil && p.start <= now && now < p.end {
		return p.number, p.start, p.end
	}
	const day, perMonth = 86_400_000_000, 2_629_746_000_000 // a 4,800th of the 146,097 days of 400 years
	n := now / (int64(c.months)*perMonth + int64(c.days)*day)
	for c.startOf(n) > now {
		n--
	}
	for c.startOf(n+1) <= now {
		n++
	}
	p := &period{n, c.startOf(n), c.startOf(n + 1)}
	c.running.Store(p)
	return p.number, p.start, p.end
}

// startOf is when the period of that number begins, in µs since the epoch.
func (c *calendar) startOf(number int64) int64 {
	n := int(number)
	midnight := time.Date(1970, time.Month(1+c.firstMonth+n*c.months), 1+c.firstDay+n*c.days, 0, 0, 0, 0, time.UTC).Unix()
	for t := time.Unix(midnight-farthest, 0).In(c.zone); ; {
		_, offset := t.Zone()
		_, changes := t.ZoneBounds()
		if !changes.IsZero() && !changes.After(t) { // Go 1.26: on the last day of leap years
			changes = t.Add(time.Hour)
		}
		at := max(t.Unix(), midnight-int64(offset))
		if changes.IsZero() || at < changes.Unix() {
			return at * 1_000_000
		}
		t = changes
	}
}
