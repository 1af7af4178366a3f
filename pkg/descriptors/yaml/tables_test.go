package yaml_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
)

// inFolder writes files, each a name and its content, into a new folder and moves there, so that
// messages name the files alone.
func inFolder(tb testing.TB, files map[string]string) {
	tb.Helper()
	dir := tb.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte(content), 0o666)); err != nil {
			tb.Fatal(err)
		}
	}
	tb.Chdir(dir)
}

func TestTableProblems(t *testing.T) {
	inFolder(t, map[string]string{
		"plans.csv":    "value,plan\nacme,pro\nb,gold\n\n\"c\",free\nacme,free\n,free\nd\ne,free,x\nf,pre\n\"g\"x,free\nh\xff,free\n",
		"amounts.csv":  "\ufeffunit_multiplier,value,requests_per_unit,unit,burst\r\n1,a,10,minute,\r\n0,b,-1,hourly,1.5\r\n11,c,1,year,\r\n,d,4294967296,DAY,0\r\n2,e,1,,\r\n",
		"burst.csv":    "value,burst\na,5\nb,\n",
		"header.csv":   "vale,plan,burst\n",
		"both.csv":     "value,plan,requests_per_unit\nw,,5\nx,pro,5\ny,gold,5\nz,free,5\n",
		"neither.csv":  "value\na\n",
		"novalue.csv":  "plan,plan\n",
		"empty.csv":    "",
		"rpu.csv":      "value,requests_per_unit\nx,5\n",
		"cut.csv":      "value,plan\na,\"free\nb,free\n",
		"ids.csv":      "value,plan\na,held\n",
		"folder.csv/x": "",
	})
	if err := syscall.Mkfifo("pipe.csv", 0o666); err != nil {
		t.Fatal(err)
	}
	_, _, err := yaml.Load([]yaml.Text{text("a.yaml", `domain: d
plans: {free: {unit: day, requests_per_unit: 1}, pro: [{unit: second, requests_per_unit: 5}, {unit: day, requests_per_unit: 1000}], held: {unit: day, requests_per_unit: 1, reserve: true}}
descriptors:
  - {key: a, rate_limit: {plan: free, table: plans.csv}}
  - {key: b, rate_limit: {unit: year, requests_per_unit: 1, table: amounts.csv}}
  - {key: c, rate_limit: {unit: year, requests_per_unit: 1, table: burst.csv}}
  - {key: d1, rate_limit: {plan: free, table: header.csv}}
  - {key: d2, rate_limit: {plan: free, table: both.csv}}
  - {key: d3, rate_limit: {plan: free, table: neither.csv}}
  - {key: d4, rate_limit: {plan: free, table: novalue.csv}}
  - {key: d5, rate_limit: {plan: free, table: empty.csv}}
  - {key: d6, rate_limit: {plan: free, table: cut.csv}}
  - {key: d7, rate_limit: {plan: free, table: folder.csv}}
  - {key: e, rate_limit: {plan: free, table: none.csv}}
  - {key: f, rate_limit: {plan: free, table: ../x.csv}}
  - {key: g, rate_limit: {plan: free, table: /etc/x.csv}}
  - {key: h, rate_limit: {plan: free, table: tenants.txt}}
  - {key: i, rate_limit: {plan: free, table: {entry: x}}}
  - key: j
    descriptors: [{key: k, rate_limit: {plan: free, table: {file: rpu.csv, entry: x}}}]
  - {key: l, rate_limit: {plan: pro, table: rpu.csv}}
  - {key: m, rate_limit: {plan: unlimited, table: rpu.csv}}
  - {key: n, rate_limit: {unlimited: true, table: burst.csv}}
  - {key: o, value: "x*", share_threshold: true, rate_limit: {plan: free, table: rpu.csv}}
  - {key: p, rate_limits: [{unit: day, requests_per_unit: 1, table: rpu.csv}]}
  - {key: q, rate_limit: {plan: free, table: ids.csv}}
  - {key: r, detailed_metric: true, rate_limit: {plan: free, table: ids.csv}}
  - {key: u1, rate_limit: {plan: free, table: {file: rpu.csv, url: "https://h/t", every: 1s}}}
  - {key: u2, rate_limit: {plan: free, table: {url: "ftp://h/t", every: 999ms}}}
  - {key: u3, rate_limit: {plan: free, table: {url: "https://me:secret@h/t", every: 25h}}}
  - {key: u4, rate_limit: {plan: free, table: {file: rpu.csv, every: 5m}}}
  - {key: u5, rate_limit: {plan: free, table: "https://h/t.txt"}}
  - {key: u6, rate_limit: {plan: free, table: {url: "https:///t#x"}}}
  - {key: u7, rate_limit: {plan: free, table: {url: "https://h/t", evry: 1m}}}
  - {key: u8, rate_limit: {plan: pro, table: {url: "https://h/rows"}}}
  - {key: u9, rate_limit: {plan: free, table: {url: "https://h/away", entry: u9}}}
  - {key: s, mask: {ipv4: 24}, descriptors: [{key: t, rate_limit: {plan: free, table: {file: rpu.csv, entry: s}}}]}
  - {key: v, rate_limit: {plan: free, table: plans.csv}} # whose rows are told once
  - {key: w, rate_limit: {plan: free, table: {file: plans.csv, entry: ""}}}
  - {key: x, rate_limit: {plan: free, table: pipe.csv}}
`)}, rules.Options{Fetched: func(url string, _ time.Duration) (*rules.Table, error) {
		switch url {
		case "https://h/rows":
			const text = "value,plan\na,free\nb,gold\n"
			return rules.ReadTable(url, strings.NewReader(text))
		case "https://h/away":
			return nil, errors.New("the server answers 503")
		}
		return nil, nil
	}})
	want := `a.yaml:13:47: rate_limit.table: folder.csv cannot be read: is not a file
a.yaml:14:46: rate_limit.table: none.csv cannot be read: no such file or directory
a.yaml:15:46: rate_limit.table: must be the name of a file beside this one that ends in .csv, such as tenants.csv, not "../x.csv"; an address is written {url: https://example.org/tenants.csv}
a.yaml:16:46: rate_limit.table: must be the name of a file beside this one that ends in .csv, such as tenants.csv, not "/etc/x.csv"; an address is written {url: https://example.org/tenants.csv}
a.yaml:17:46: rate_limit.table: must be the name of a file beside this one that ends in .csv, such as tenants.csv, not "tenants.txt"; an address is written {url: https://example.org/tenants.csv}
a.yaml:18:46: rate_limit.table.file: is missing; the name of a file beside this one, such as tenants.csv, or url in its place
a.yaml:20:83: rate_limit.table.entry: "x" is no key of the descriptor's path; want one of j, k
a.yaml:21:45: rate_limit.table: rpu.csv has amounts for one limit, and the plan "pro" has 2: want a column plan, or another plan here
a.yaml:24:82: rate_limit.table: has no meaning where values of "o" share a counter; remove share_threshold or mask
a.yaml:25:69: rate_limits[0].table: belongs into rate_limit: a list of limits and a plan name no table
a.yaml:26:46: rate_limit.table: the value of "q" is the id of a reservation: name another key of the descriptor's path as entry
a.yaml:27:31: detailed_metric: has no meaning beside reserve: the value of "r" is the id of a reservation, which is in no counter and in no metric
a.yaml:27:69: rate_limit.table: the value of "r" is the id of a reservation: name another key of the descriptor's path as entry
a.yaml:28:68: rate_limit.table.url: must not be given with file; a table has one of them
a.yaml:29:53: rate_limit.table.url: must be an address such as https://example.org/tenants.csv, not "ftp://h/t"
a.yaml:29:73: rate_limit.table.every: must be a duration from 1s to 24h, such as 5m, not "999ms"
a.yaml:30:53: rate_limit.table.url: must not have a user or a password, which messages would show; TABLE_TOKEN_FILE has a token for tables
a.yaml:30:85: rate_limit.table.every: must be a duration from 1s to 24h, such as 5m, not "25h"
a.yaml:31:70: rate_limit.table.every: needs url; changes of a file are noticed at once
a.yaml:32:47: rate_limit.table: must be the name of a file beside this one that ends in .csv, such as tenants.csv, not "https://h/t.txt"; an address is written {url: https://example.org/tenants.csv}
a.yaml:33:53: rate_limit.table.url: must be an address such as https://example.org/tenants.csv, not "https:///t#x"
a.yaml:34:68: rate_limit.table.evry: unknown key; did you mean "every"?
a.yaml:36:53: rate_limit.table.url: https://h/away cannot be read: the server answers 503
a.yaml:37:87: rate_limit.table: has no meaning where values of "s" share a counter; remove share_threshold or mask
a.yaml:39:71: rate_limit.table.entry: must not be empty; leave it out for the key of the descriptor
a.yaml:40:46: rate_limit.table: pipe.csv cannot be read: is not a file
amounts.csv:3:1: unit_multiplier: must be a whole number from 1 to 4294967295, not "0"
amounts.csv:3:5: requests_per_unit: must be a whole number from 0 to 4294967295, not "-1"
amounts.csv:3:8: unit: unknown unit "hourly"; did you mean "hour"?
amounts.csv:3:15: burst: must be a whole number from 1 to 4294967295, not "1.5"
amounts.csv:4: unit_multiplier: must be at most 10 for the unit year: a window is at most 10 years
amounts.csv:5:4: requests_per_unit: must be a whole number from 0 to 4294967295, not "4294967296"
amounts.csv:5:19: burst: must be a whole number from 1 to 4294967295, not "0"
both.csv:3: plan: the plan "pro" has 2 limits, and amounts are for one: leave the amounts out, or name another plan
both.csv:4: plan: unknown plan "gold"; did you mean "held"?
burst.csv:2: burst: fixed_window has no burst; token_bucket, gcra and leaky_bucket have
burst.csv:2: requests_per_unit: is missing, and the rule is unlimited and has none
burst.csv:3: requests_per_unit: is missing, and the rule is unlimited and has none
cut.csv:3:8: not valid CSV: extraneous or missing " in quoted-field, in the row that begins in line 2
empty.csv:1:1: has no header: want the column value and any of plan, requests_per_unit, unit, unit_multiplier, burst
header.csv:1:1: unknown column "vale"; did you mean "value"?
https://h/rows:3: plan: unknown plan "gold"; did you mean "held"?
neither.csv:1:1: want the column plan, or any of requests_per_unit, unit, unit_multiplier, burst
novalue.csv:1:6: plan: the column is repeated; write it once
plans.csv:3: plan: unknown plan "gold"; did you mean "held"?
plans.csv:6:1: value: "acme" is already in line 2; keep one of the two rows
plans.csv:7:1: value: must not be empty
plans.csv:8:1: the row has fewer fields than the header, which has 2
plans.csv:9:8: the row has more fields than the header, which has 2
plans.csv:10: plan: unknown plan "pre"; did you mean "pro"?
plans.csv:11:3: not valid CSV: extraneous or missing " in quoted-field
plans.csv:12:1: value: is not valid UTF-8
rpu.csv:2: unit: is missing, and the rule is unlimited and has none`
	if err == nil {
		t.Fatal("no problems")
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Error(diff)
	}
}

// A row says what its value gets; empty fields are the rule's, and values without a row have
// the rule's limit.
func TestRowsOfATable(t *testing.T) {
	inFolder(t, map[string]string{
		"sub/amounts.csv": "value,requests_per_unit,unit,unit_multiplier,burst\nacme,50,,,\nglobex,,hour,2,7\n\"a,\"\"b\",0,,,\nsame,,,,\n",
		"sub/plans.csv":   "value,plan\nacme,pro\nnone,\nopen,unlimited\n",
	})
	tree := load(t, text("sub/a.yaml", `domain: d
plans: {pro: [{unit: second, requests_per_unit: 5, name: fast}, {unit: day, requests_per_unit: 1000}]}
descriptors:
  - {key: tenant, rate_limit: {unit: minute, requests_per_unit: 10, strategy: token_bucket, burst: 3, name: n, table: amounts.csv}}
  - key: customer
    descriptors:
      - {key: route, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 3, table: {file: plans.csv, entry: customer}}}
`))
	d := tree.Domain("d")
	for request, want := range map[string]string{
		"tenant=acme":           "d.tenant n 50 per MINUTE×1 burst 3, row sub/amounts.csv:2",
		"tenant=globex":         "d.tenant n 10 per HOUR×2 burst 7, row sub/amounts.csv:3",
		"tenant=same":           "d.tenant n 10 per MINUTE×1 burst 3, row sub/amounts.csv:5",
		"tenant=other":          "d.tenant n 10 per MINUTE×1 burst 3",
		"tenant=":               "d.tenant n 10 per MINUTE×1 burst 3",
		"customer=acme,route=x": "d.customer.route shadow plan pro fast 5 per SECOND×1  1000 per DAY×1, row sub/plans.csv:2",
		"customer=none,route=x": "d.customer.route shadow  3 per HOUR×1, row sub/plans.csv:3",
		"customer=open,route=x": "d.customer.route shadow plan unlimited, row sub/plans.csv:4",
		"customer=x,route=acme": "d.customer.route shadow  3 per HOUR×1",
	} {
		r := d.Match(entries(request))
		got := r.Path
		if r.Shadow {
			got += " shadow"
		}
		if r.Plan != "" {
			got += " plan " + r.Plan
		}
		for i := range r.Limits {
			l := &r.Limits[i]
			got += fmt.Sprintf(" %s %d per %s×%d", l.Name, l.Requests, l.Unit, l.Multiplier)
			if l.Burst > 0 {
				got += fmt.Sprintf(" burst %d", l.Burst)
			}
		}
		if row := r.Row(entries(request)); row.Line > 0 {
			got += ", row " + row.String()
		}
		if got != want {
			t.Errorf("%s: %q, not %q", request, got, want)
		}
	}
	if r := d.Match([]descriptors.Entry{{Key: "tenant", Value: `a,"b`}}); r.Limits[0].Requests != 0 || r.Row([]descriptors.Entry{{Key: "tenant", Value: `a,"b`}}).Line != 4 {
		t.Errorf("%+v", r)
	}
	want := `d.customer.route: unit=HOUR requests_per_unit=3, shadow_mode: true, quota_mode: false, table: {file: "plans.csv", entry: "customer", rows: 3, hash: HASH}
d.tenant: unit=MINUTE requests_per_unit=10, shadow_mode: false, quota_mode: false, strategy: token_bucket, burst: 3, table: {file: "amounts.csv", entry: "tenant", rows: 4, hash: HASH}
`
	got := rules.Dump(tree)
	for _, line := range strings.Split(got, "\n") {
		if _, hash, found := strings.Cut(line, "hash: "); found {
			got = strings.ReplaceAll(got, hash, "HASH}")
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for value, want := range map[string]string{"globex": "exact tenant=globex sub/amounts.csv:3", "open": "exact customer=open,route sub/plans.csv:4"} {
		p := tree.Places(value, 10)
		if got := fmt.Sprintf("%s %s %s:%d", p[0].Match, descriptors.Pairs(p[0].Path), p[0].File, p[0].Line); got != want {
			t.Errorf("%s is found as %q, not %q", value, got, want)
		}
	}
}

// The amounts of a row go before those of its plan, whose name stays, also of an unlimited one.
func TestRowsOfPlansWithAmounts(t *testing.T) {
	inFolder(t, map[string]string{"t.csv": "value,plan,requests_per_unit,unit\nacme,pro,15000000,\nhooli,pro,,\nown,,7,\nopen,unlimited,5,day\nall,unlimited,,\nmany,team,,\n"})
	d := load(t, text("a.yaml", `domain: d
plans: {pro: {unit: minute, requests_per_unit: 1000, name: per-minute}, team: [{unit: second, requests_per_unit: 5}, {unit: day, requests_per_unit: 50}]}
descriptors:
  - {key: k, rate_limit: {unit: hour, requests_per_unit: 3, table: t.csv}}
`)).Domain("d")
	for value, want := range map[string]string{
		"acme":  "plan pro, per-minute 15000000 per MINUTE as per-minute 1000",
		"hooli": "plan pro, per-minute 1000 per MINUTE",
		"own":   "no row,  7 per HOUR as  3",
		"open":  "plan unlimited,  5 per DAY as table 10000",
		"all":   "plan unlimited",
		"many":  "plan team,  5 per SECOND,  50 per DAY",
		"other": "no row,  3 per HOUR",
	} {
		r := d.Match(entries("k=" + value))
		got := r.PathOfPart()
		for i := range r.Limits {
			l := &r.Limits[i]
			got += fmt.Sprintf(", %s %d per %s", l.Name, l.Requests, l.Unit)
			if l.As != nil {
				got += fmt.Sprintf(" as %s %d", l.As.Name, l.As.Requests)
			}
		}
		if got != "d.k "+want || r.Plan != r.RowPlan {
			t.Errorf("%s: %q of the plan %q, not %q", value, got, r.Plan, want)
		}
	}
	if parts := d.Match(entries("k=other")).Parts(); len(parts) != 4 {
		t.Errorf("%d parts", len(parts))
	}
}

// With LIMIT_SHARE, rows have their share; without a limit of the rule they must be complete.
func TestRowsOfUnlimitedRules(t *testing.T) {
	inFolder(t, map[string]string{"t.csv": "value,requests_per_unit,unit\na,10,minute\nb,100,hour\n"})
	for _, limit := range []string{"plan: unlimited", "unlimited: true", "unit: day, requests_per_unit: 0"} {
		tree, _ := loadWith(t, rules.Options{Share: 500_000, OnError: descriptors.PolicyDeny}, rulesOfD("- {key: k, rate_limit: {"+limit+", name: x, table: t.csv}}\n"))
		l := tree.Domain("d").Match(entries("k=a")).Limits[0]
		if l.Requests != 5 || l.Window != time.Minute || l.Name != "x" || l.OnError != descriptors.PolicyDeny {
			t.Errorf("%s: %+v", limit, l)
		}
		if r := tree.Domain("d").Match(entries("k=c")); r.Unlimited == strings.HasPrefix(limit, "unit:") {
			t.Errorf("%s: %+v", limit, r)
		}
	}
}

// DEFAULT_STRATEGY and DEFAULT_BURST make no row wrong: they give way.
func TestRowsThatCannotHaveTheDefaultStrategy(t *testing.T) {
	inFolder(t, map[string]string{"t.csv": "value,requests_per_unit,unit\nmany,20000,day\nslow,1,year\nusual,5,day\n", "b.csv": "value,burst\na,5\n"})
	for _, tt := range []struct {
		strategy algorithms.Strategy
		burst    uint32
		rule     string
		want     string
	}{
		{algorithms.SlidingLog, 0, "unit: day, requests_per_unit: 3", "sliding_window 0 sliding_log 0 sliding_log 0"},
		{algorithms.SlidingLog, 0, "plan: unlimited", "sliding_window 0 sliding_log 0 sliding_log 0"},
		{algorithms.TokenBucket, 1000, "unit: day, requests_per_unit: 3", "token_bucket 1000 token_bucket 1 token_bucket 1000"},
		{algorithms.GCRA, 1000, "plan: unlimited", "gcra 1000 gcra 1 gcra 1000"},
	} {
		tree, warnings := loadWith(t, rules.Options{Strategy: tt.strategy, Burst: tt.burst}, rulesOfD("- {key: k, rate_limit: {"+tt.rule+", table: t.csv}}"))
		got := []string{}
		for _, value := range []string{"many", "slow", "usual"} {
			l := tree.Domain("d").Match(entries("k=" + value)).Limits[0]
			got = append(got, fmt.Sprint(l.Strategy, " ", l.Burst))
		}
		if strings.Join(got, " ") != tt.want || !strings.Contains(warnings, "rate_limit.table: t.csv has rows whose amounts cannot have DEFAULT_STRATEGY") {
			t.Errorf("%s, %s: %v, not %s; warnings: %s", tt.strategy, tt.rule, got, tt.want, warnings)
		}
	}
	// What a rule or a row has written itself does not give way.
	for limit, options := range map[string]rules.Options{
		"unit: day, requests_per_unit: 3, strategy: sliding_log, table: t.csv":               {Strategy: algorithms.SlidingLog},
		"unit: day, requests_per_unit: 3, burst: 1000, table: t.csv":                         {Strategy: algorithms.TokenBucket},
		"unit: day, requests_per_unit: 3, table: b.csv":                                      {Strategy: algorithms.SlidingLog},
		"unit: day, requests_per_unit: 3, strategy: token_bucket, burst: 1000, table: t.csv": {},
	} {
		if _, _, err := yaml.Load([]yaml.Text{rulesOfD("- {key: k, rate_limit: {" + limit + "}}")}, options); err == nil {
			t.Errorf("%s: no problem", limit)
		}
	}
}

// A row can have fewer hits than a lease of the rule needs, also none.
func TestRowsThatCannotHaveTheLease(t *testing.T) {
	inFolder(t, map[string]string{"t.csv": "value,requests_per_unit\nblocked,0\nsmall,19\nlarge,20\n"})
	d := load(t, rulesOfD("- {key: k, rate_limit: {unit: day, requests_per_unit: 1000, lease: true, table: t.csv}}")).Domain("d")
	for value, want := range map[string]bool{"blocked": false, "small": false, "large": true, "other": true} {
		if l := d.Match(entries("k=" + value)).Limits[0]; (l.Lease != algorithms.Lease{}) != want {
			t.Errorf("%s: lease %v", value, l.Lease)
		}
	}
}

// A wrong row is left out and the other rows stay. A table that cannot be used is left out, and its
// rule has its own limit.
func TestWrongRowsAreLeftOut(t *testing.T) {
	inFolder(t, map[string]string{"t.csv": "value,plan\na,free\nb,fre\nc\n", "bad.csv": "x\n"})
	tree, _, err := yaml.Load([]yaml.Text{text("a.yaml", `domain: d
plans: {free: {unit: day, requests_per_unit: 1}}
descriptors:
  - {key: k, rate_limit: {unit: hour, requests_per_unit: 2, table: t.csv}}
  - {key: l, rate_limit: {unit: hour, requests_per_unit: 2, table: bad.csv}}
  - {key: m, rate_limit: {unit: hour, requests_per_unit: 2, table: none.csv}}
`)}, rules.Options{SkipWrong: true})
	d := tree.Domain("d")
	if err == nil || d.Match(entries("k=a")).Plan != "free" || d.Match(entries("k=b")).Plan != "" || d.Match(entries("k=c")) == nil ||
		d.Match(entries("l=a")).Limits[0].Requests != 2 || d.Match(entries("m=a")).Limits[0].Requests != 2 {
		t.Error(err, rules.Dump(tree))
	}
}

// A table with very many problems is read to its end, and the first of them are shown.
func TestManyWrongRows(t *testing.T) {
	inFolder(t, map[string]string{"t.csv": "value,requests_per_unit\n" + strings.Repeat("a,x\n", 1000) + "b,7\n"})
	table, err := rules.OpenTable("t.csv")
	if err != nil {
		t.Fatal(err)
	}
	if problems := table.Problems; len(problems) != 101 || problems[100].Message != "900 more in this file are not shown" || table.Rows.Len != 1 {
		t.Error(table.Rows, problems)
	}
}

// The hash of rules knows each row, and not its order.
// An address is fetched at the shortest interval of all rules that name it, and never without one:
// not where the interval is wrong, either.
func TestIntervalsOfTables(t *testing.T) {
	const table = `- {key: %s, rate_limit: {plan: unlimited, table: {url: "https://h/%s"%s}}}` + "\n"
	got := map[string]time.Duration{}
	_, _, err := yaml.Load([]yaml.Text{rulesOfD(
		fmt.Sprintf(table, "a", "shared", ", every: 5m") + fmt.Sprintf(table, "b", "shared", ", every: 2s") + fmt.Sprintf(table, "c", "shared", "") +
			fmt.Sprintf(table, "d", "alone", "") + fmt.Sprintf(table, "e", "wrong", ", every: 500ms") + fmt.Sprintf(table, "f", "entry", `, entry: ""`)),
	}, rules.Options{Fetched: func(url string, every time.Duration) (*rules.Table, error) {
		got[url] = every
		return nil, nil
	}})
	want := map[string]time.Duration{"https://h/shared": 2 * time.Second, "https://h/alone": time.Minute, "https://h/wrong": time.Minute, "https://h/entry": time.Minute}
	if diff := cmp.Diff(want, got); diff != "" || err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestHashOfTables(t *testing.T) {
	hash := func(table, limit string) uint64 {
		inFolder(t, map[string]string{"t.csv": table})
		return load(t, text("a.yaml", "domain: d\nplans: {p: {unit: day, requests_per_unit: 1}, q: {unit: day, requests_per_unit: 2}}\ndescriptors: [{key: k, rate_limit: {"+limit+"}}]\n")).Hash()
	}
	seen := map[uint64]string{}
	for _, table := range []string{"value,plan\na,p\nb,q\n", "value,plan\na,q\nb,p\n", "value,plan\na,p\n", "value,plan\na,p\nb,\n", "value,requests_per_unit\na,0\n", "value,requests_per_unit\na,\n", "value,burst\na,\nb,\n", "value,unit\na,day\n", "value,unit_multiplier\na,2\n"} {
		h := hash(table, "unit: hour, requests_per_unit: 1, table: t.csv")
		if other, again := seen[h]; again {
			t.Errorf("%q has the hash of %q", table, other)
		}
		seen[h] = table
	}
	const plain = "unit: hour, requests_per_unit: 1"
	if hash("value,plan\na,p\nb,q\n", plain+", table: t.csv") != hash("plan,value\nq,b\np,a\n", plain+", table: {file: t.csv, entry: k}") {
		t.Error("the order of rows changes the hash")
	}
	if hash("value,plan\na,p\n", plain) == hash("value,plan\na,p\n", plain+", table: t.csv") {
		t.Error("the hash does not know the table")
	}
}

// Random tables say for each value what a map of their rows says.
func TestTablesAreMaps(t *testing.T) {
	random := testenv.Random(t)
	for range 30 {
		want := map[string]uint32{}
		var csv strings.Builder
		csv.WriteString("requests_per_unit,value\n")
		for range random.IntN(3000) {
			value := strings.Repeat(fmt.Sprint(random.IntN(2000)), 1+random.IntN(3))
			if random.IntN(500) == 0 {
				value = strings.Repeat("long", 1<<random.IntN(15))
			}
			if _, again := want[value]; !again {
				want[value] = random.Uint32N(1 << random.IntN(32))
				fmt.Fprintf(&csv, "%d,%s\n", want[value], value)
			}
		}
		inFolder(t, map[string]string{"t.csv": csv.String()})
		d := load(t, rulesOfD("- {key: k, rate_limit: {unit: day, requests_per_unit: 77, table: t.csv}}\n")).Domain("d")
		for i := range 6000 {
			value := fmt.Sprint(i)
			if _, known := want[value]; !known {
				want[value] = 77
			}
		}
		for value, requests := range want {
			if r := d.Match([]descriptors.Entry{{Key: "k", Value: value}}); r.Limits[0].Requests != requests || r.Path != "d.k" {
				t.Fatalf("%.40q has %d and not %d", value, r.Limits[0].Requests, requests)
			}
		}
	}
}

// repeating is a text again and again, 64 MiB in all.
func repeating(text string) io.Reader {
	part := strings.Repeat(text, 1<<16/len(text))
	parts := make([]io.Reader, 1<<10)
	for i := range parts {
		parts[i] = strings.NewReader(part)
	}
	return io.MultiReader(parts...)
}

// A field or a row beyond the bounds is a wrong row, of which little is kept while it is read. The rows
// behind it are read, unless it has no end.
func TestFieldsOfTablesHaveBounds(t *testing.T) {
	const bound, tooLong = 1 << 16, "the field that begins here has more than 65536 bytes; write a shorter one, or end its quote or its line"
	const tooMany = "the row has more than 100 fields; a table has at most the columns value, plan, requests_per_unit, unit, unit_multiplier, burst"
	longest, quotes := strings.Repeat("x", bound), strings.Repeat(`""`, bound)
	for name, c := range map[string]struct {
		rows    string
		endless string // behind them, 64 MiB of it
		want    string // the problems
		kept    int    // rows
	}{
		"the longest":         {rows: longest + ",1\r\n\"" + longest[1:] + "\",1\n\"" + quotes + "\",1\nb,1\n" + longest[2:] + ",1", kept: 5},
		"longer":              {rows: "a,1\n" + longest + "x,1\nb,z\nc,1\n", want: "t.csv:3:1: " + tooLong + `|t.csv:4:3: requests_per_unit: must be a whole number from 0 to 4294967295, not "z"`, kept: 2},
		"longer in quotes":    {rows: "a,1\nb,\"" + quotes + "\"\"\"\nc,1\n", want: "t.csv:3:3: " + tooLong, kept: 2},
		"longer last":         {rows: "a,1\nb,1" + longest, want: "t.csv:3:3: " + tooLong, kept: 1},
		"longer in several":   {rows: "a,1\n\"\n\n" + longest + ",1\nc,z\n", want: "t.csv:3:1: " + tooLong + `|t.csv:6:3: requests_per_unit: must be a whole number from 0 to 4294967295, not "z"`, kept: 1},
		"carriage returns":    {rows: "a,1\nb,1" + strings.Repeat("\r", bound+1) + "\nc,1\n", want: "t.csv:3:3: " + tooLong, kept: 2},
		"quotes in a field":   {rows: "a\"b,1\n\"a\"\"b\",1\n\"c\"d,1\n" + strings.Repeat("f\"g,1\n", 20_000) + "e,1\n", want: `t.csv:2:2: not valid CSV: bare " in non-quoted-field|t.csv:4:3: not valid CSV: extraneous or missing " in quoted-field`, kept: 2},
		"a line without end":  {rows: "a,1\n", endless: "x", want: "t.csv:3:1: " + tooLong, kept: 1},
		"a quote without end": {rows: "a,1\n\"", endless: "x", want: "t.csv:3:1: " + tooLong, kept: 1},
		"quotes without end":  {rows: "a,1\n\"", endless: `""`, want: "t.csv:3:1: " + tooLong, kept: 1},
		"lines in a quote":    {rows: "a,1\nb,\"" + strings.Repeat("\n", 1<<20), want: "t.csv:3:3: " + tooLong, kept: 1},
		"fields without end":  {rows: "a,1\n", endless: ",", want: "t.csv:3:101: " + tooMany, kept: 1},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			text := io.Reader(strings.NewReader("value,requests_per_unit\n" + c.rows))
			if c.endless != "" {
				text = io.MultiReader(text, repeating(c.endless))
			}
			runtime.ReadMemStats(&before)
			table, err := rules.ReadTable("t.csv", text)
			runtime.ReadMemStats(&after)
			if err != nil {
				t.Fatal(err)
			}
			got := strings.ReplaceAll(table.Problems.Error(), "\n", "|")
			got, _, _ = strings.Cut(got, "|t.csv:5:2:") // of the first of many quotes
			if got != c.want || table.Rows.Len != c.kept {
				t.Errorf("%d rows are kept, want %d\n got %.500s\nwant %s", table.Rows.Len, c.kept, got, c.want)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 16<<20 {
				t.Errorf("reading takes %d MiB", used>>20)
			}
		})
	}
}

// FuzzTable: no text makes the reader of tables fail otherwise than with problems that have a
// place in the text.
func FuzzTable(f *testing.F) {
	for _, text := range []string{"value,plan\na,free\n", "\xef\xbb\xbfvalue,requests_per_unit,unit,unit_multiplier,burst\r\n\"a\"\"\",1,day,2,3\r\n", "value,burst\na,\"1\nb,2", "value\n", "\"", "value,plan\na,b,c\n\n,\na,b\na,c\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, content string) {
		table, err := rules.ReadTable("t.csv", strings.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		rows, problems := table.Rows, table.Problems
		lines := strings.Count(content, "\n") + 1
		for _, p := range problems {
			if p.Line < 1 || p.Line > lines || p.Column < 1 || p.Message == "" {
				t.Errorf("%v in %q", p, content)
			}
		}
		if rows == nil && len(problems) == 0 || rows != nil && rows.Len > lines {
			t.Errorf("%+v of %q", rows, content)
		}
	})
}

// manyRows writes a table whose amounts repeat or all differ.
func manyRows(tb testing.TB, count int, differ bool) {
	var csv strings.Builder
	csv.WriteString("value,requests_per_unit,unit\n")
	for i := range count {
		amount := i % 1000
		if differ {
			amount = i
		}
		fmt.Fprintf(&csv, "tenant-%08d-eu-1,%d,hour\n", i, amount)
	}
	inFolder(tb, map[string]string{"t.csv": csv.String()})
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// A row costs at most 100 bytes, whatever it says, also when all values were asked
// for. A value's row is found without an allocation.
func TestMemoryOfRows(t *testing.T) {
	const count = 400_000
	for _, differ := range []bool{false, true} {
		manyRows(t, count, differ)
		before, began := heap(), time.Now()
		tree := load(t, rulesOfD("- {key: k, rate_limit: {unit: day, requests_per_unit: 77, table: t.csv}}\n"))
		took := time.Since(began)
		loaded := heap() - before
		d := tree.Domain("d")
		asked := make([][]descriptors.Entry, 1<<16)
		for i := range asked {
			asked[i] = []descriptors.Entry{{Key: "k", Value: fmt.Sprintf("tenant-%08d-eu-1", i*6)}}
		}
		before += heap() - before - loaded
		for _, e := range asked {
			if d.Match(e) == nil {
				t.Fatal("no rule")
			}
		}
		used := heap() - before
		t.Logf("all rows differ: %v: loaded in %v, %d bytes a row, %d when %d rows were asked for", differ, took, loaded/count, used/count, len(asked))
		if max(loaded, used) > 100*count {
			t.Errorf("%d and %d bytes a row", loaded/count, used/count)
		}
		if !differ {
			i := 0
			if n := testing.AllocsPerRun(1000, func() { i++; d.Match(asked[i*31%len(asked)]) }); n > 0 {
				t.Errorf("%v allocations", n)
			}
		}
		runtime.KeepAlive(tree)
	}
}

func BenchmarkTable(b *testing.B) {
	for name, differ := range map[string]bool{"1000 amounts": false, "each its own": true} {
		b.Run(name, func(b *testing.B) {
			manyRows(b, 1_000_000, differ)
			d := load(b, rulesOfD("- {key: k, rate_limit: {unit: day, requests_per_unit: 77, table: t.csv}}\n")).Domain("d")
			asked := make([][]descriptors.Entry, 1<<14)
			for i := range asked {
				asked[i] = []descriptors.Entry{{Key: "k", Value: fmt.Sprintf("tenant-%08d-eu-1", i*61)}}
			}
			for _, e := range asked {
				d.Match(e)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				d.Match(asked[i%len(asked)])
			}
		})
	}
}

func BenchmarkLoadTable(b *testing.B) {
	manyRows(b, 1_000_000, false)
	for b.Loop() {
		load(b, rulesOfD("- {key: k, rate_limit: {unit: day, requests_per_unit: 77, table: t.csv}}\n"))
	}
}
