package metrics_test

import (
	"testing"

	"example.org/rls/pkg/backends/near"
	"example.org/rls/pkg/metrics"
)

func TestLeases(t *testing.T) {
	m := open(t, metrics.Options{})
	m.Leases(func() near.LeaseStats {
		return near.LeaseStats{Leased: 10, Used: 4, Returned: 2, Refilled: 6, Lost: 1, Held: 3, Keys: 5}
	})
	lines := scrape(t, m)
	for _, want := range []string{
		`rls_lease_hits_total{event="charged"} 10`,
		`rls_lease_hits_total{event="used"} 4`,
		`rls_lease_hits_total{event="returned"} 2`,
		`rls_lease_hits_total{event="refilled"} 6`,
		`rls_lease_hits_total{event="lost"} 1`,
		`rls_lease_hits 3`,
		`rls_lease_keys 5`,
	} {
		if !lines[want] {
			t.Errorf("no %s", want)
		}
	}
}
