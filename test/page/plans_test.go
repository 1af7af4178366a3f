package page_test

import (
	"os"
	"path/filepath"
	"testing"
)

// Rules has a row for each plan that a table gives, with its own requests; Denials names the plan.
func TestPlansOfATable(t *testing.T) {
	s := serve(t)
	if err := os.WriteFile(filepath.Join(filepath.Dir(s.rules), "tenants.csv"), []byte("value,plan,requests_per_unit\nacme,pro,15000000\nhooli,pro,\nglobex,unlimited,\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.write(`domain: shop
plans: {free: {unit: day, requests_per_unit: 10}, pro: {unit: day, requests_per_unit: 5}}
descriptors: [{key: tenant, rate_limit: {plan: free, table: tenants.csv}}]
`)
	p := s.signedIn("#rules")
	rows := `[...document.querySelectorAll("[data-testid=rule]")].map(r => r.innerText.replaceAll(/\s+/g, " "))`
	p.waits(rows + `.some(r => r.includes("plan pro"))`) // the rules before are three, too
	s.hit(4, []entry{{"tenant", "new"}})
	s.hit(10, []entry{{"tenant", "hooli"}})
	p.waits(rows + `.some(r => r.includes("10 per day") && r.includes("3 rows plan free") && r.includes("0 %"))`)
	p.waits(rows + `.some(r => r.includes("5 per day") && r.includes("tenants.csv plan pro") && r.includes("50 %"))`)
	p.waits(rows + `.some(r => r.includes("unlimited") && r.includes("plan unlimited"))`)
	p.shot("plans")
	p.click(named("a", "Denials"))
	p.waits(`document.querySelector("[data-testid=denial] [data-testid=plan]")?.innerText === "plan pro"`)
}
