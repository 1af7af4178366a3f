package explain_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
)

func tree(t *testing.T, text, table string) *descriptors.Tree {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tenants.csv"), []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	tree, _, err := yaml.Load([]yaml.Text{{Name: filepath.Join(dir, "shop.yaml"), Content: []byte(text)}}, rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func TestChanges(t *testing.T) {
	before := tree(t, `domain: shop
plans:
  gold: {unit: minute, requests_per_unit: 100}
descriptors:
  - key: plan
    value: pro
    descriptors:
      - key: customer
        rate_limits:
          - {name: per-minute, unit: minute, requests_per_unit: 600}
          - {name: per-day, unit: day, requests_per_unit: 100000}
  - key: route
    rate_limit: {unit: second, requests_per_unit: 10, strategy: token_bucket, burst: 20}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: gone, rate_limit: {unit: hour, requests_per_unit: 5}}
  - {key: same, rate_limit: {unit: hour, requests_per_unit: 60}}
  - {key: tenant, rate_limit: {table: tenants.csv, unit: minute, requests_per_unit: 1}}
`, "value,requests_per_unit,plan\nacme,10,\nbeta,20,\ncyan,30,\nzoe,,gold\n")
	after := tree(t, `domain: shop
plans:
  gold: {unit: minute, requests_per_unit: 50}
descriptors:
  - key: plan
    value: pro
    descriptors:
      - key: customer
        rate_limits:
          - {name: per-minute, unit: minute, requests_per_unit: 60}
          - {name: per-day, unit: day, requests_per_unit: 200000}
          - {name: per-week, unit: week, requests_per_unit: 700000}
  - key: route
    rate_limit: {unit: second, requests_per_unit: 10, strategy: token_bucket, burst: 40}
  - {key: free, rate_limit: {unit: hour, requests_per_unit: 9}}
  - {key: same, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: tenant, rate_limit: {table: tenants.csv, unit: minute, requests_per_unit: 1}}
`, "value,requests_per_unit,plan\nacme,11,\nbeta,20,\ndove,40,\nedda,50,\nzoe,,gold\n")
	changes := append(explain.Changes(explain.LimitsOf(before), explain.LimitsOf(after)), explain.TableChanges(before, after)...)
	var got []string
	for _, c := range changes {
		c.File = filepath.Base(c.File)
		got = append(got, fmt.Sprint(c.Stricter, " ", c))
	}
	want := []string{
		"true shop.plan_pro.customer per-minute 600 → 60 per minute (shop.yaml:8)",
		"false shop.plan_pro.customer per-day 100000 → 200000 per day (shop.yaml:8)",
		"true shop.plan_pro.customer per-week came: 700000 per 7 days, fixed_window (shop.yaml:8)",
		"false shop.route 10 per second, token_bucket, burst 20 → 10 per second, token_bucket, burst 40 (shop.yaml:13)",
		"true shop.free unlimited → 9 per hour, fixed_window (shop.yaml:15)",
		"true shop.same 60 per hour → 1 per minute (shop.yaml:16)",
		"true shop.tenant plan gold 100 → 50 per minute (shop.yaml:17)",
		"false shop.gone went: 5 per hour, fixed_window (shop.yaml:15)",
		"false shop.tenant tenants.csv +2 −1, 1 changed",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if same := explain.Changes(explain.LimitsOf(after), explain.LimitsOf(after)); len(same) > 0 {
		t.Errorf("the same rules: %v", same)
	}
	if less := explain.Changes(explain.LimitsOf(after), explain.LimitsOf(before)); less[0].Stricter || !less[1].Stricter {
		t.Errorf("back: %+v", less)
	}
}

// TestChangesByHash: of limits whose hashes alone are known, it is told which ones changed and came, and how
// many went.
func TestChangesByHash(t *testing.T) {
	limit := func(rule string, n uint32) explain.InForce {
		return explain.InForce{Rule: rule, Name: "n", Words: fmt.Sprint(n, " per minute"), Limit: n, File: "shop.yaml", Line: 7}
	}
	var before []explain.InForce
	for i := range 100_000 { // some of them have the same hash of their names
		before = append(before, limit(fmt.Sprint("shop.", i), 600))
	}
	same := before[50_000] // a second limit with this name
	before = append(before, same)
	hashes := explain.HashesOf(before)
	if got := hashes.Changes(before); len(got) > 0 || len(hashes) > 700_000 {
		t.Errorf("the same limits: %v; %d bytes", got, len(hashes))
	}
	after := slices.Clone(before[3:])
	after[0] = limit("shop.3", 60)
	after[len(after)-1].Words = "1 per day"
	after = append(after, limit("shop.new", 5))
	got := hashes.Changes(after)
	want := []string{
		"went: 3 of the earlier limits",
		"shop.3 n changed to 60 per minute (shop.yaml:7)",
		"shop.50000 n changed to 1 per day (shop.yaml:7)",
		"shop.new n came: 5 per minute (shop.yaml:7)",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || explain.Count(got) != 6 || got[1].Stricter || !got[3].Stricter {
		t.Errorf("got %v, %d", got, explain.Count(got))
	}
	for n := range hashes[:20] { // cut
		_ = hashes[:n].Changes(after[:2])
	}
}
