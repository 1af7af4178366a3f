package descriptors

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Unit is the unit of a limit's window. The numbers are those of Envoy's
// RateLimitResponse.RateLimit.Unit.
type Unit int32

// The units. A week has 7 days, a month 30 and a year 365.
const (
	UnitUnknown Unit = iota
	Second
	Minute
	Hour
	Day
	Month
	Year
	Week
)

const day = 24 * time.Hour

var units = [...]struct {
	name     string
	duration time.Duration
}{
	UnitUnknown: {"UNKNOWN", 0},
	Second:      {"SECOND", time.Second},
	Minute:      {"MINUTE", time.Minute},
	Hour:        {"HOUR", time.Hour},
	Day:         {"DAY", day},
	Month:       {"MONTH", 30 * day},
	Year:        {"YEAR", 365 * day},
	Week:        {"WEEK", 7 * day},
}

// Valid reports whether u is one of the units and not UnitUnknown.
func (u Unit) Valid() bool { return u > UnitUnknown && int(u) < len(units) }

// Duration is the unit's length, 0 when it is not valid.
func (u Unit) Duration() time.Duration {
	if !u.Valid() {
		return 0
	}
	return units[u].duration
}

// String is the unit's name in upper case, as Envoy writes it.
func (u Unit) String() string {
	if !u.Valid() {
		return units[UnitUnknown].name
	}
	return units[u].name
}

// MarshalText implements [encoding.TextMarshaler] by String.
func (u Unit) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]: it takes the name of a unit in any case.
func (u *Unit) UnmarshalText(name []byte) error {
	if *u = ParseUnit(string(name)); !u.Valid() {
		return fmt.Errorf("unit is %q: want one of %s", name, strings.Join(UnitNames(), ", "))
	}
	return nil
}

// Period is a window of n units in words: "minute", "15 minutes".
func Period(u Unit, n uint32) string {
	name := strings.ToLower(u.String())
	if n == 1 {
		return name
	}
	return fmt.Sprintf("%d %ss", n, name)
}

// Window is a window in words: "calendar month" if calendar is the unit of a period of the
// calendar, and else by the longest unit up to a day that divides it: "minute", "2 hours", "30 days".
func Window(calendar string, window time.Duration) string {
	if calendar != "" {
		return "calendar " + calendar
	}
	unit := Second
	for _, u := range []Unit{Minute, Hour, Day} {
		if window%u.Duration() == 0 {
			unit = u
		}
	}
	return Period(unit, uint32(window/unit.Duration()))
}

// ParseUnit finds a unit by its name in any case. It returns UnitUnknown for
// any other text.
func ParseUnit(name string) Unit {
	for u := Second; u.Valid(); u++ {
		if strings.EqualFold(units[u].name, name) {
			return u
		}
	}
	return UnitUnknown
}

// ParseLimit reads a limit as people write it in arguments: N/UNIT, or N/M*UNIT with a window of
// M units, such as 100/minute or 100/2*minute.
func ParseLimit(text string) (rate Rate, err error) {
	amount, window, _ := strings.Cut(text, "/")
	n, wrong := strconv.ParseUint(amount, 10, 32)
	m := uint64(1)
	if times, single, multiplied := strings.Cut(window, "*"); multiplied {
		window = single
		if m, err = strconv.ParseUint(times, 10, 32); err != nil || m == 0 {
			window = ""
		}
	}
	unit := ParseUnit(window)
	if wrong != nil || !unit.Valid() {
		return rate, fmt.Errorf("%q is wrong: want N/UNIT or N/M*UNIT, such as 100/minute or 100/2*minute; UNIT is second, minute, hour, day, week, month or year", text)
	}
	return Rate{uint32(n), unit, uint32(m)}, nil
}

// UnitNames lists the units as rules write them, the shortest first.
func UnitNames() []string {
	return []string{"second", "minute", "hour", "day", "week", "month", "year"}
}
