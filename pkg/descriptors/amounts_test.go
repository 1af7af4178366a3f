package descriptors_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
)

// limitOf is the limit of a rule with this rate_limit.
func limitOf(t *testing.T, rateLimit string) *descriptors.Limit {
	t.Helper()
	return &load(t, yamlFile("- {key: k, rate_limit: {"+rateLimit+"}}")).Domain("d").Match(entries("k=v")).Limits[0]
}

// An override whose window is a period of the calendar keeps the rule's calendar.
func TestOverrideOfACalendar(t *testing.T) {
	rule := limitOf(t, "unit: month, requests_per_unit: 100, window: calendar, timezone: Europe/Berlin, month_starts: 15")
	for _, tt := range []struct {
		unit       descriptors.Unit
		multiplier uint32
		want       algorithms.Calendar
	}{
		{descriptors.Month, 1, algorithms.Calendar{On: true, Zone: "Europe/Berlin", MonthStarts: 15}},
		{descriptors.Year, 1, algorithms.Calendar{On: true, Zone: "Europe/Berlin"}},
		{descriptors.Month, 2, algorithms.Calendar{}},
		{descriptors.Minute, 1, algorithms.Calendar{}},
	} {
		got, err := rule.Override(5, tt.unit, tt.multiplier)
		if err != nil || got.Calendar != tt.want {
			t.Errorf("%d × %v: %+v, %v, want %+v", tt.multiplier, tt.unit, got.Calendar, err, tt.want)
		}
	}
}

func TestOverrideReplacesAmountAndWindowOnly(t *testing.T) {
	for _, tt := range []struct {
		rule string
		want algorithms.Spec
	}{
		{"unit: second, requests_per_unit: 100, strategy: gcra, burst: 50", algorithms.Spec{Strategy: algorithms.GCRA, Burst: 50}},
		{"unit: second, requests_per_unit: 100, strategy: gcra", algorithms.Spec{Strategy: algorithms.GCRA, Burst: 1}},
		{"unit: second, requests_per_unit: 100, strategy: token_bucket, burst: 7", algorithms.Spec{Strategy: algorithms.TokenBucket, Burst: 7}},
		// A default burst follows the new amount, as it followed the old one.
		{"unit: second, requests_per_unit: 100, strategy: token_bucket", algorithms.Spec{Strategy: algorithms.TokenBucket, Burst: 200}},
		{"unit: second, requests_per_unit: 100, strategy: leaky_bucket, burst: 3, max_delay: 1s", algorithms.Spec{Strategy: algorithms.LeakyBucket, Burst: 3, MaxDelay: time.Second}},
		{"unit: second, requests_per_unit: 100, window: from_first_hit, extend: true", algorithms.Spec{FromFirstHit: true, Extend: true}},
		{"unit: second, requests_per_unit: 100, strategy: sliding_window", algorithms.Spec{Strategy: algorithms.SlidingWindow}},
		{"unit: second, requests_per_unit: 100, strategy: sliding_log", algorithms.Spec{Strategy: algorithms.SlidingLog}},
		{"unit: second, requests_per_unit: 100, overdraft: true", algorithms.Spec{Overdraft: algorithms.FullOverdraft}},
		{"unit: year, requests_per_unit: 0, overdraft: 7, strategy: gcra", algorithms.Spec{Strategy: algorithms.GCRA, Burst: 1, Overdraft: 7}},
		{"unit: second, requests_per_unit: 100, strategy: sliding_window, precision: 6", algorithms.Spec{Strategy: algorithms.SlidingWindow, Precision: 6}},
		{"unit: second, requests_per_unit: 100, strategy: concurrency, reserve: true", algorithms.Spec{Strategy: algorithms.Concurrency, Reserve: algorithms.DefaultReserve}},
	} {
		rule := limitOf(t, tt.rule+", name: n, replaces: [{name: m}]")
		before := *rule
		got, err := rule.Override(200, descriptors.Minute, 3)
		if err != nil {
			t.Errorf("%s: %v", tt.rule, err)
			continue
		}
		tt.want.Requests, tt.want.Window = 200, 3*time.Minute
		if diff := cmp.Diff(tt.want, got.Spec); diff != "" {
			t.Errorf("%s: %s", tt.rule, diff)
		}
		if got.Unit != descriptors.Minute || got.Multiplier != 3 || got.Name != "" || got.Replaces != nil {
			t.Errorf("%s: %+v", tt.rule, got)
		}
		if rule.Spec != before.Spec || rule.Name != "n" {
			t.Errorf("%s: the rule became %+v", tt.rule, rule)
		}
		// The override of an override keeps the written burst, too.
		again, err := got.Override(50, descriptors.Second, 1)
		first, firstErr := rule.Override(50, descriptors.Second, 1)
		if err != nil || firstErr != nil || again.Spec != first.Spec {
			t.Errorf("%s: %+v, want %+v", tt.rule, again.Spec, first.Spec)
		}
	}
}

func TestOverrideWithoutARuleIsAFixedWindow(t *testing.T) {
	for _, policy := range []descriptors.Policy{descriptors.PolicyError, descriptors.PolicyDeny} {
		got, err := (&descriptors.Limit{OnError: policy}).Override(5, descriptors.Hour, 1)
		if want := (algorithms.Spec{Requests: 5, Window: time.Hour}); err != nil || got.Spec != want || got.OnError != policy {
			t.Errorf("got %+v, %v", got, err)
		}
	}
}

func TestOptionsThatAnOverrideCannotKeepGiveWay(t *testing.T) {
	log := limitOf(t, "unit: minute, requests_per_unit: 5, strategy: sliding_log")
	for requests, want := range map[uint32]algorithms.Strategy{10_000: algorithms.SlidingLog, 10_001: algorithms.SlidingWindow} {
		if got, err := log.Override(requests, descriptors.Minute, 1); err != nil || got.Strategy != want || got.Requests != requests {
			t.Errorf("%d: %+v, %v", requests, got, err)
		}
	}
	slots := limitOf(t, "unit: minute, requests_per_unit: 5, strategy: concurrency")
	if got, err := slots.Override(10_001, descriptors.Minute, 1); err != nil || got.Strategy != algorithms.Concurrency || got.Requests != 10_000 {
		t.Errorf("got %+v, %v", got, err)
	}
	debt := limitOf(t, "unit: second, requests_per_unit: 100, strategy: gcra, burst: 4000000000, overdraft: 4000000000, reserve: true")
	if got, err := debt.Override(1, descriptors.Year, 10); err != nil || got.Burst != 1 || got.Overdraft != algorithms.FullOverdraft || got.Reserve != algorithms.DefaultReserve {
		t.Errorf("got %+v, %v", got, err)
	}
	burst := limitOf(t, "unit: second, requests_per_unit: 100, strategy: gcra, burst: 4000000000")
	if got, err := burst.Override(1, descriptors.Year, 10); err != nil || got.Burst != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := burst.Override(0, descriptors.Year, 1); err != nil || got.Requests != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
}

// A row that the default strategy cannot have is counted in fixed windows, unless the strategy is the
// rule's own.
func TestDefaultsGiveWayToARow(t *testing.T) {
	row := descriptors.Amounts{Requests: 10_001, Given: true}
	slots := limitOf(t, "unit: minute, requests_per_unit: 5, strategy: concurrency")
	if got, err := slots.With(row); err == nil {
		t.Errorf("got %+v", got)
	}
	slots.GivesWay = true
	if got, err := slots.With(row); err != nil || got.Strategy != algorithms.FixedWindow || got.Requests != 10_001 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestOverrideRefusesWhatIsNoWindow(t *testing.T) {
	for _, tt := range []struct {
		unit       descriptors.Unit
		multiplier uint32
		want       string
	}{
		{0, 1, "unit 0 is unknown; want SECOND (1), MINUTE (2), HOUR (3), DAY (4), MONTH (5), YEAR (6) or WEEK (7)"},
		{8, 1, "unit 8 is unknown; want SECOND (1), MINUTE (2), HOUR (3), DAY (4), MONTH (5), YEAR (6) or WEEK (7)"},
		{-1, 1, "unit -1 is unknown; want SECOND (1), MINUTE (2), HOUR (3), DAY (4), MONTH (5), YEAR (6) or WEEK (7)"},
		{257, 1, "unit 257 is unknown; want SECOND (1), MINUTE (2), HOUR (3), DAY (4), MONTH (5), YEAR (6) or WEEK (7)"},
		{descriptors.Year, 0, "unit_multiplier is 0; want 1 to 10 with YEAR"},
		{descriptors.Year, 11, "unit_multiplier is 11; want 1 to 10 with YEAR"},
	} {
		if _, err := limitOf(t, "unit: day, requests_per_unit: 1").Override(1, tt.unit, tt.multiplier); err == nil || err.Error() != tt.want {
			t.Errorf("got %v, want %s", err, tt.want)
		}
	}
}

// An override keeps the lease of its rule if the lease's share is at least one hit,
// and has the same share of its amount as the rules.
func TestOverrideHasTheLeaseAndTheShareOfTheRule(t *testing.T) {
	rule := limitOf(t, "unit: second, requests_per_unit: 100, lease: {share: 10%}")
	for requests, want := range map[uint32]algorithms.Lease{10: rule.Lease, 9: {}} {
		if got, err := rule.Override(requests, descriptors.Hour, 1); err != nil || got.Lease != want {
			t.Errorf("%d: lease %v, %v; want %v", requests, got.Lease, err, want)
		}
	}
	rule.Share = 400_000
	if got, err := rule.Override(1000, descriptors.Hour, 1); err != nil || got.Requests != 400 || got.WrittenRequests != 1000 {
		t.Errorf("%d of %d, %v", got.Requests, got.WrittenRequests, err)
	}
}

// A field that Override does not know by name stays, so that fields to come are
// not lost.
func TestOverrideKeepsEveryOtherFieldOfALimit(t *testing.T) {
	rule := limitOf(t, "unit: second, requests_per_unit: 100, strategy: gcra, burst: 5, on_error: local, thresholds: [{at: 50%}]")
	rule.Shadow, rule.WatchedPart, rule.GivesWay = true, algorithms.Whole, true
	rule.As = rule
	rule.Share, rule.Borrow, rule.Laid = algorithms.Whole, &descriptors.Borrow{}, descriptors.Laid{"burst": "overlay.yaml:2"}
	rule.Raise = &descriptors.Raise{}
	got, err := rule.Override(100, descriptors.Second, 1)
	if err != nil {
		t.Fatal(err)
	}
	// With the amount and window of the rule the copy is the rule's limit.
	if got.Spec != rule.Spec {
		t.Errorf("%+v, want %+v", got.Spec, rule.Spec)
	}
	was, is := reflect.ValueOf(*rule), reflect.ValueOf(got)
	for i := range was.NumField() {
		name := was.Type().Field(i).Name
		switch name {
		case "Limit", "Name", "Replaces":
			continue // the compiled Spec, which is compared above, and the names, which an override does not have
		case "Shadow", "WatchedPart", "As":
			if !is.Field(i).IsZero() {
				t.Errorf("%s is %v: an override is enforced for every key, and is no row's", name, is.Field(i))
			}
			continue
		}
		if was.Field(i).IsZero() || !reflect.DeepEqual(was.Field(i).Interface(), is.Field(i).Interface()) {
			t.Errorf("%s is %v, want %v, which the rule of this test must set", name, is.Field(i), was.Field(i))
		}
	}
}
