package algorithms

import (
	"archive/zip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/internal/testenv"
)

// zoneFiles are the files of the time zone database of Go's distribution, which time/tzdata
// has, too.
func zoneFiles(t *testing.T) []*zip.File {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	r, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r.File
}

// The list of names is that of the database. After an update of Go, UPDATE_ZONES=true writes it.
func TestZones(t *testing.T) {
	var names []string
	for _, f := range zoneFiles(t) {
		if !strings.HasSuffix(f.Name, "/") && f.Name != "Factory" {
			names = append(names, f.Name)
		}
	}
	slices.Sort(names)
	if os.Getenv("UPDATE_ZONES") == "true" {
		if err := os.WriteFile("zones.txt", []byte(strings.Join(names, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(names, Zones()); diff != "" {
		t.Errorf("zones.txt differs from the database of Go; run UPDATE_ZONES=true go test ./pkg/algorithms -run TestZones\n%s", diff)
	}
}

const days = 24 * time.Hour

var nominal = map[string]time.Duration{"day": days, "week": 7 * days, "month": 30 * days, "year": 365 * days}

// Periods around changes of clocks that people know.
func TestPeriods(t *testing.T) {
	for _, tt := range []struct {
		unit             string
		calendar         Calendar
		at, begins, ends string // in the zone
		length           time.Duration
	}{
		{"month", Calendar{Zone: "Europe/Berlin"}, "2026-01-17T12:00:00+01:00", "2026-01-01T00:00:00+01:00", "2026-02-01T00:00:00+01:00", 31 * days},
		{"month", Calendar{Zone: "Europe/Berlin"}, "2026-03-01T00:00:00+01:00", "2026-03-01T00:00:00+01:00", "2026-04-01T00:00:00+02:00", 31*days - time.Hour},
		{"month", Calendar{MonthStarts: 28}, "2026-03-27T23:59:59Z", "2026-02-28T00:00:00Z", "2026-03-28T00:00:00Z", 28 * days},
		{"month", Calendar{MonthStarts: 28}, "2024-03-28T00:00:00Z", "2024-03-28T00:00:00Z", "2024-04-28T00:00:00Z", 31 * days},
		{"day", Calendar{Zone: "Europe/Berlin"}, "2026-03-29T12:00:00+02:00", "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00", 23 * time.Hour},
		{"day", Calendar{Zone: "Europe/Berlin"}, "2026-10-25T00:00:00+02:00", "2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00", 25 * time.Hour},
		{"day", Calendar{Zone: "Australia/Lord_Howe"}, "2026-10-04T12:00:00+11:00", "2026-10-04T00:00:00+10:30", "2026-10-05T00:00:00+11:00", 23*time.Hour + 30*time.Minute},
		{"day", Calendar{Zone: "Australia/Lord_Howe"}, "2026-04-05T00:00:00+11:00", "2026-04-05T00:00:00+11:00", "2026-04-06T00:00:00+10:30", 24*time.Hour + 30*time.Minute},
		// A midnight that does not exist: the day begins at 01:00.
		{"day", Calendar{Zone: "America/Sao_Paulo"}, "2018-11-04T12:00:00-02:00", "2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00", 23 * time.Hour},
		{"day", Calendar{Zone: "Africa/Cairo"}, "2026-04-24T12:00:00+03:00", "2026-04-24T01:00:00+03:00", "2026-04-25T00:00:00+03:00", 23 * time.Hour},
		{"day", Calendar{Zone: "Asia/Beirut"}, "2022-03-27T01:00:00+03:00", "2022-03-27T01:00:00+03:00", "2022-03-28T00:00:00+03:00", 23 * time.Hour},
		// A midnight that comes twice: the day begins at the first, and clocks show the day before again.
		{"day", Calendar{Zone: "America/Havana"}, "2026-11-01T00:30:00-05:00", "2026-11-01T00:00:00-04:00", "2026-11-02T00:00:00-05:00", 25 * time.Hour},
		{"day", Calendar{Zone: "America/St_Johns"}, "2006-10-28T23:30:00-03:30", "2006-10-29T00:00:00-02:30", "2006-10-30T00:00:00-03:30", 25 * time.Hour},
		// Samoa had no 30 December 2011.
		{"day", Calendar{Zone: "Pacific/Apia"}, "2011-12-29T23:59:59-10:00", "2011-12-29T00:00:00-10:00", "2011-12-31T00:00:00+14:00", 24 * time.Hour},
		{"day", Calendar{Zone: "Pacific/Apia"}, "2011-12-31T00:00:00+14:00", "2011-12-31T00:00:00+14:00", "2012-01-01T00:00:00+14:00", 24 * time.Hour},
		{"week", Calendar{Zone: "Pacific/Apia", WeekStarts: 5}, "2011-12-31T00:00:00+14:00", "2011-12-31T00:00:00+14:00", "2012-01-06T00:00:00+14:00", 6 * days},
		{"week", Calendar{}, "2026-11-22T23:59:59Z", "2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z", 7 * days},
		{"week", Calendar{WeekStarts: 7}, "2026-11-22T00:00:00Z", "2026-11-22T00:00:00Z", "2026-11-29T00:00:00Z", 7 * days},
		{"year", Calendar{}, "2026-12-31T23:59:59Z", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z", 365 * days},
		{"year", Calendar{YearStarts: 4, Zone: "Asia/Tokyo"}, "2024-03-31T23:59:59+09:00", "2023-04-01T00:00:00+09:00", "2024-04-01T00:00:00+09:00", 366 * days},
	} {
		l, err := New(Spec{Requests: 1, Window: nominal[tt.unit], Calendar: Calendar{true, tt.calendar.Zone, tt.calendar.WeekStarts, tt.calendar.MonthStarts, tt.calendar.YearStarts}})
		if err != nil {
			t.Fatal(err)
		}
		at, err := time.Parse(time.RFC3339, tt.at)
		if err != nil {
			t.Fatal(err)
		}
		begins, ends, _ := l.Period(at.UnixMicro())
		if b, e := begins.Format(time.RFC3339), ends.Format(time.RFC3339); b != tt.begins || e != tt.ends || ends.Sub(begins) != tt.length {
			t.Errorf("the %s of %s in %+v is %s to %s (%v), want %s to %s (%v)", tt.unit, tt.at, tt.calendar, b, e, ends.Sub(begins), tt.begins, tt.ends, tt.length)
		}
	}
}

// wall is what the clocks of a zone show, as a table that is made by looking at them.
type wall []struct{ from, offset int64 } // seconds

const (
	hour  = int64(3600)
	first = int64(-2208988800) // 1900
	last  = int64(4133980800)  // 2101
)

// watch looks at the clocks of a zone once a day, and finds the second of each change.
func watch(zone *time.Location) (w wall) {
	show := func(t int64) int64 {
		_, offset := time.Unix(t, 0).In(zone).Zone()
		return int64(offset)
	}
	begins := first - 30*24*hour
	shown := show(begins)
	w = append(w, struct{ from, offset int64 }{-1 << 62, shown})
	for t := begins; t < last; t += 24 * hour {
		next := show(t + 24*hour)
		for from := t; shown != next; {
			low, high := from, t+24*hour // the first change is in (low, high]
			for high-low > 1 {
				if mid := (low + high) / 2; show(mid) == shown {
					low = mid
				} else {
					high = mid
				}
			}
			from, shown = high, show(high)
			w = append(w, struct{ from, offset int64 }{from, shown})
		}
	}
	return w
}

// begun is a day that began: its number since 1 January 1970, and when.
type begun struct{ day, at int64 }

// days walks through time, step by step, and returns the days that begin: each when the clocks
// first show its date, or a later one.
func (w wall) days(from, to int64) (list []begun) {
	step, i := int64(60), 0
	for i+1 < len(w) && w[i+1].from <= from {
		i++
	}
	for j := i; j < len(w) && w[j].from <= to; j++ {
		if j > i && w[j].from%60 != 0 || w[j].offset%60 != 0 {
			step = 1
		}
	}
	highest := int64(-1 << 62)
	for t := from - from%60; t < to; t += step {
		for i+1 < len(w) && w[i+1].from <= t {
			i++
		}
		day := floor(t+w[i].offset, 24*hour)
		for ; highest < day; highest++ {
			if highest = max(highest, day-2); t-from > 26*hour {
				list = append(list, begun{highest + 1, t})
			}
		}
	}
	return list
}

func floor(a, b int64) int64 { return (a - (a%b+b)%b) / b }

// Every change of every zone's clocks in 200 years, and random days: each day, week, month and
// year that begins around it begins when a walk through time finds that it does.
func TestPeriodsOfEveryZone(t *testing.T) {
	rng := testenv.Random(t)
	seen := map[uint32]bool{}
	edges := 0
	for _, f := range zoneFiles(t) {
		if strings.HasSuffix(f.Name, "/") || f.Name == "Factory" || seen[f.CRC32] {
			continue
		}
		seen[f.CRC32] = true
		zone, err := time.LoadLocation(f.Name)
		if err != nil {
			t.Fatal(err)
		}
		w := watch(zone)
		var around []int64
		for _, change := range w[1:] {
			around = append(around, change.from)
		}
		for range 20 {
			around = append(around, first+rng.Int64N(last-first))
		}
		made := map[int64]*calendar{}
		for _, at := range around {
			for _, b := range w.days(at-28*hour, at+27*hour) {
				edges++
				checkDay(t, f.Name, made, zone, b)
			}
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d zones, %d days", len(seen), edges)
	if len(seen) < 300 || edges < 50_000 {
		t.Errorf("%d zones and %d days are too few", len(seen), edges)
	}
}

// checkDay checks the periods that begin with a day: the day, and the week, month and year
// whose calendar says so.
func checkDay(t *testing.T, name string, made map[int64]*calendar, zone *time.Location, b begun) {
	date := time.Unix(b.day*24*hour, 0).UTC()
	weekday := (int64(date.Weekday())+6)%7 + 1
	kinds := []calendar{{days: 1}, {days: 7, firstDay: int(weekday) - 4}}
	if date.Day() <= 28 {
		kinds = append(kinds, calendar{months: 1, firstDay: date.Day() - 1})
	}
	if date.Day() == 1 {
		kinds = append(kinds, calendar{months: 12, firstMonth: int(date.Month()) - 1})
	}
	for i := range kinds {
		k := &kinds[i]
		id := int64(k.days)<<32 | int64(k.months)<<16 | int64(k.firstDay+8)<<8 | int64(k.firstMonth)
		c := made[id]
		if c == nil {
			k.zone = zone
			c, made[id] = k, k
		}
		at := b.at * 1_000_000
		number, start, end := c.period(at)
		before, _, until := c.period(at - 1)
		skipped := c.startOf(before+1) == c.startOf(number)
		if start != at || end <= at || until != at || number != before+1 && !skipped || c.startOf(number) != at {
			t.Errorf("%s, %+v days %+v months: %s begins at %v; the period there is %d from %v to %v, the one before is %d until %v", name, c.days, c.months,
				date.Format(time.DateOnly), b.at, number, start, end, before, until)
		}
	}
}

// FuzzCalendar: whatever the time, the period around it contains it, begins where the one
// before it ends, and has a length that such a period can have.
func FuzzCalendar(f *testing.F) {
	zones := Zones()
	for i := range 4 {
		f.Add(uint16(i*100), uint8(i), uint8(i), int64(1_767_222_000_000_000))
		f.Add(uint16(i*50), uint8(i), uint8(27), int64(-2_208_988_800_000_001))
		f.Add(uint16(slices.Index(zones, "Pacific/Apia")), uint8(i), uint8(5), int64(1_325_239_200_000_000))
	}
	f.Fuzz(func(t *testing.T, zone uint16, unit, starts uint8, now int64) {
		now %= 250_000_000_000_000_000 // to the year 9891, and back to 5952 BC
		c := Calendar{On: true, Zone: zones[int(zone)%len(zones)]}
		window, least, most := days, 0.0, 72.0
		switch unit % 4 {
		case 1:
			window, least, most, c.WeekStarts = 7*days, 6*24-2, 8*24+2, starts%8
		case 2:
			window, least, most, c.MonthStarts = 30*days, 27*24-2, 32*24+2, uint32(starts%29)
		case 3:
			window, least, most, c.YearStarts = 365*days, 364*24-2, 367*24+2, starts%13
		}
		l, err := New(Spec{Requests: 1, Window: window, Calendar: c})
		if err != nil {
			t.Fatal(err)
		}
		number, start, end := l.calendar.period(now)
		again, _, _ := l.calendar.period(now)
		before, _, until := l.calendar.period(start - 1)
		after, from, _ := l.calendar.period(end)
		length := float64(end-start) / 3_600_000_000
		if again != number || start > now || now >= end || until != start || from != end || before >= number || after <= number || length < least || length > most {
			t.Errorf("%+v at %d: period %d from %d to %d (%v h), %d until %d, %d from %d", c, now, number, start, end, length, before, until, after, from)
		}
		for n := number - 2; n <= number+2; n++ {
			if l.calendar.startOf(n) > l.calendar.startOf(n+1) {
				t.Errorf("%+v: period %d begins after the next", c, n)
			}
		}
	})
}
