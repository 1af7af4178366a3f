package service_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/service/operate"
)

const priced = `domain: d
plans: {free: {unit: minute, requests_per_unit: 10}, pro: [{unit: minute, requests_per_unit: 100}, {unit: day, requests_per_unit: 120}]}
descriptors:
- {key: tenant, rate_limit: {plan: free, table: plans.csv}}
- key: api
  descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 5, strategy: sliding_window, table: {file: amounts.csv, entry: api}}}
`

// table writes a table into the folder of the test.
func table(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
}

func withTables(t *testing.T, change ...func(*config)) *rig {
	t.Helper()
	t.Chdir(t.TempDir())
	table(t, "plans.csv", "value,plan\nacme,pro\nopen,unlimited\n")
	table(t, "amounts.csv", "value,requests_per_unit,unit\nbig,7,\nday,,day\n")
	return start(t, priced, change...)
}

// A row decides; a value without one gets the rule's limit.
func TestTablesDecide(t *testing.T) {
	r := withTables(t)
	r.want(desc("tenant", "new"), ok, 9)
	r.want(withHits(100, desc("tenant", "acme")), ok, 0)
	r.want(desc("tenant", "acme"), over, 0)
	r.pass(time.Minute)
	r.want(withHits(20, desc("tenant", "acme")), ok, 0) // of the day
	r.want(withHits(1, desc("tenant", "acme")), over, 0)
	r.want(withHits(1_000_000, desc("tenant", "open")), ok, 4294967295)
	r.want(desc("api", "big", "user", "ann"), ok, 6)
	r.want(desc("api", "big", "user", "bob"), ok, 6)
	r.want(desc("api", "small", "user", "big"), ok, 4)
}

// Counters survive a new table, and a changed limit acts as a changed requests_per_unit does.
func TestCountersSurviveANewTable(t *testing.T) {
	r := withTables(t)
	r.want(withHits(4, desc("tenant", "new")), ok, 6)
	r.want(withHits(90, desc("tenant", "acme")), ok, 10)
	r.want(withHits(5, desc("api", "big", "user", "ann")), ok, 2)
	table(t, "plans.csv", "value,plan\nnew,pro\nother,free\n")
	table(t, "amounts.csv", "value,requests_per_unit,unit\nbig,6,\n")
	r.load(priced)
	r.want(desc("tenant", "new"), ok, 95) // the day has begun with 1
	r.want(desc("tenant", "acme"), over, 0)
	r.want(desc("api", "big", "user", "ann"), ok, 0)
}

// An override goes before the row of a table.
func TestOverridesGoBeforeTables(t *testing.T) {
	r := withTables(t)
	for _, tenant := range []string{"acme", "open", "new"} {
		own := desc("tenant", tenant)
		r.want(withLimit(3, 2, nil, own), ok, 2)
		got := r.inspect(operate.Trace, request(own))[0]
		if l := got.Limits[0]; got.Rule != "d.override" || l.Plan != "" || l.Limit != 3 || (got.Row != "") != (tenant != "new") {
			t.Errorf("%s: %+v", tenant, got)
		}
	}
}

// What operators ask for finds the cells of the row: look, reset, grant, and the reset of all
// values of the rule.
func TestVerbsOnTables(t *testing.T) {
	store := new(seen)
	r := withTables(t, store.under)
	acme := request(desc("tenant", "acme"))
	r.hit(withHits(60, desc("tenant", "acme")))
	look := r.inspect(operate.Look, acme)[0]
	if look.Rule != "d.tenant" || look.Limits[0].Plan != "pro" || look.Row != "plans.csv:2" || len(look.Limits) != 2 || look.Limits[0].Count != 60 || look.Limits[1].Count != 60 {
		t.Errorf("%+v", look)
	}
	r.change(operate.Grant(operate.Granting{Hits: 50, Only: "100 per minute"}), acme)
	r.want(withHits(60, desc("tenant", "acme")), ok, 0)
	r.change(operate.Reset, acme)
	r.want(withHits(100, desc("tenant", "acme")), ok, 0)

	r.hit(desc("tenant", "open"))
	r.hit(desc("tenant", "new"))
	r.hit(desc("tenant", "a|b={}%"))
	r.hit(desc("api", "big", "user", "ann"))
	r.hit(desc("api", "day", "user", "a|b"))
	r.hit(desc("api", "x", "user", "ann"))
	r.wantMatching("d.tenant", true, operate.Progress{Matched: 4})
	r.wantMatching("d.tenant", false, operate.Progress{Matched: 4, Changed: 4})
	r.wantMatching("d.api.user", false, operate.Progress{Matched: 3, Changed: 3})
	scanner, err := backends.ScannerOf(store)
	if err != nil {
		t.Fatal(err)
	}
	if err := backends.Scan(t.Context(), scanner, "", func(keys []string) error { return fmt.Errorf("%q are left", keys) }); err != nil {
		t.Error(err)
	}
}
