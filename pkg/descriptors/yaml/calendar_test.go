package yaml_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
)

func TestCalendar(t *testing.T) {
	tree, warnings := loadWith(t, rules.Options{Strategy: algorithms.GCRA}, text("a.yaml", `domain: d
descriptors:
- {key: a, rate_limit: {unit: Day, requests_per_unit: 1, window: calendar}}
- {key: b, rate_limit: {week_starts: sunday, unit: WEEK, timezone: America/New_York, window: calendar, strategy: fixed_window, requests_per_unit: 1}}
- {key: c, rate_limit: {unit: month, requests_per_unit: 1, window: calendar, month_starts: 28, lease: false, unit_multiplier: 1}}
- {key: e, rate_limits: [{unit: year, requests_per_unit: 1, window: calendar, year_starts: april}, {unit: year, requests_per_unit: 1, strategy: fixed_window}]}
`))
	if warnings != "" {
		t.Error(warnings)
	}
	want := `d.a: unit=DAY requests_per_unit=1, shadow_mode: false, quota_mode: false, window: calendar
d.b: unit=WEEK requests_per_unit=1, shadow_mode: false, quota_mode: false, window: calendar, timezone: "America/New_York", week_starts: sunday
d.c: unit=MONTH requests_per_unit=1, shadow_mode: false, quota_mode: false, window: calendar, month_starts: 28
d.e: unit=YEAR requests_per_unit=1, shadow_mode: false, quota_mode: false
d.e: unit=YEAR requests_per_unit=1, shadow_mode: false, quota_mode: false, window: calendar, year_starts: april
`
	if diff := cmp.Diff(want, rules.Dump(tree)); diff != "" {
		t.Error(diff)
	}
}

func TestCalendarProblems(t *testing.T) {
	for _, tt := range []struct{ limit, want string }{
		{"{unit: hour, window: calendar}", "unit: must be day, week, month or year with `window: calendar`"},
		{"{unit: month, unit_multiplier: 2, window: calendar}", "unit_multiplier: must be 1 with `window: calendar`, whose windows are one month long"},
		{"{unit: hour, unit_multiplier: 24, window: calendar}", "unit_multiplier: must be 1 with `window: calendar`, whose windows are one hour long"},
		{"{unit: day, window: calendar, strategy: sliding_window}", "window: calendar is an option of fixed_window, not of sliding_window"},
		{"{unit: day, window: calendar, extend: true}", "extend: needs strategy fixed_window with `window: from_first_hit`"},
		{"{unit: day, timezone: Europe/Berlin}", "timezone: needs `window: calendar`"},
		{"{unit: day, window: from_first_hit, timezone: Europe/Berlin}", "timezone: needs `window: calendar`"},
		{"{unit: week, week_starts: monday}", "week_starts: needs `window: calendar`"},
		{"{unit: month, month_starts: 1}", "month_starts: needs `window: calendar`"},
		{"{unit: year, year_starts: january}", "year_starts: needs `window: calendar`"},
		{"{unit: month, window: calendar, week_starts: monday}", "week_starts: is an option of the unit week, not of month"},
		{"{unit: year, window: calendar, month_starts: 6}", "month_starts: is an option of the unit month, not of year"},
		{"{unit: day, window: calendar, year_starts: april}", "year_starts: is an option of the unit year, not of day"},
		{"{unit: month, window: calendar, month_starts: 0}", "month_starts: must be between 1 and 28, not 0"},
		{"{unit: month, window: calendar, month_starts: 29}", "month_starts: must be between 1 and 28, not 29"},
		{"{unit: month, window: calendar, month_starts: first}", `month_starts: must be a whole number, not the string "first"`},
		{"{unit: week, window: calendar, week_starts: munday}", `week_starts: unknown weekday "munday"; did you mean "monday"?`},
		{"{unit: year, window: calendar, year_starts: 4}", `year_starts: unknown month "4"; one of january, february, march, april, may, june, july, august, september, october, november, december`},
		{"{unit: day, window: calendar, timezone: Europe/Berln}", `timezone: unknown time zone "Europe/Berln"; did you mean "Europe/Berlin"?`},
		{"{unit: day, window: calendar, timezone: new_york}", `timezone: unknown time zone "new_york"; did you mean "America/New_York"?`},
		{"{unit: day, window: calendar, timezone: Mars/Olympus}", `timezone: unknown time zone "Mars/Olympus"; want a name of the IANA database, such as Europe/Berlin`},
		{"{unit: day, window: calendar, timezone: ''}", `timezone: unknown time zone ""; want a name of the IANA database, such as Europe/Berlin`},
		{"{unit: day, window: calendar, timezone: Local}", "timezone: must not be Local, the time zone of the machine, in which processes may differ; want a name such as Europe/Berlin, or UTC"},
		{"{unit: day, window: calender}", `window: unknown window "calender"; did you mean "calendar"?`},
		{"{unlimited: true, timezone: UTC}", "timezone: must not be given with unlimited: true"},
	} {
		// The field that the problem is about stands in a line of its own.
		name, _, _ := strings.Cut(tt.want, ":")
		limit := strings.Replace(strings.Replace(tt.limit, name+":", "\n"+name+":", 1), "}", ", requests_per_unit: 1}", 1)
		want := fmt.Sprintf("a.yaml:5:%d: rate_limit.%s", len(name+": ")+1, tt.want)
		_, _, err := yaml.Load([]yaml.Text{text("a.yaml", "domain: d\ndescriptors:\n- key: k\n  rate_limit: "+limit)}, rules.Options{})
		if err == nil || err.Error() != want {
			t.Errorf("%s:\n%v\nwant %s", tt.limit, err, want)
		}
	}
	_, _, err := yaml.Load([]yaml.Text{text("a.yaml", `domain: d
descriptors:
- key: k
  rate_limits:
  - {unit: month, requests_per_unit: 5, window: calendar, timezone: Europe/Berlin}
  - {unit: month, requests_per_unit: 6}
  - {unit: month, requests_per_unit: 7, window: calendar, timezone: Europe/Berlin}
  - {unit: month, requests_per_unit: 8, window: calendar, shadow_mode: true}
- key: l
  rate_limits:
  - {unit: week, requests_per_unit: 5, window: calendar, timezone: Europe/Berlin}
  - {unit: week, requests_per_unit: 6, window: calendar, timezone: Europe/Paris, week_starts: sunday}
`)}, rules.Options{})
	want := `a.yaml:7:5: rate_limits[2]: has the strategy and window of "5 per calendar month" before it and would share its counter; keep the stricter one or change the window
a.yaml:12:5: rate_limits[1]: is a calendar week like "5 per calendar week" before it and could share its counter: in two time zones one may begin at the same moment; keep one of them, or change the unit`
	if err == nil || err.Error() != want {
		t.Errorf("several calendars:\n%v\nwant\n%s", err, want)
	}
}
