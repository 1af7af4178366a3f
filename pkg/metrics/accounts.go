package metrics

import (
	"sync/atomic"

	"example.org/rls/pkg/service"
)

// accountCounts has the hits of a rule's reservations and overdrafts.
type accountCounts struct{ reserved, charged, givenBack, uncharged, cut atomic.Uint64 }

// account counts the hits of reservations and overdrafts.
func (d *decisions) account(o *service.Observation) {
	for _, v := range o.Accounts {
		n, a := &d.find(o.Domain, v).of.accounts, v.Account
		if a.Reservation == "held" {
			n.reserved.Add(uint64(a.Charged))
		} else {
			n.charged.Add(uint64(a.Charged))
		}
		n.givenBack.Add(uint64(a.GivenBack))
		n.uncharged.Add(uint64(a.Uncharged))
		n.cut.Add(uint64(a.Cut))
	}
}

// countAccounts adds the metrics of reservations and overdrafts. Their series begin with the
// first hits.
func (m *Metrics) countAccounts() {
	of := func(series func(*accountCounts, tell)) func(tell) {
		return func(is tell) {
			m.Counted(func(r *RuleCounts) {
				series(&r.accounts, func(value float64, labels ...string) {
					if value > 0 {
						is(value, append([]string{r.Domain, r.Path}, labels...)...)
					}
				})
			})
		}
	}
	m.counter("rls_reserved_hits_total", "Hits that reservations have held.", of(func(n *accountCounts, is tell) {
		is(float64(n.reserved.Load()))
	}), "domain", "rule")
	m.counter("rls_settled_hits_total", "Hits by which settlements differed from their reservations: charged, given_back, or uncharged for lack of room.", of(func(n *accountCounts, is tell) {
		is(float64(n.charged.Load()), "charged")
		is(float64(n.givenBack.Load()), "given_back")
		is(float64(n.uncharged.Load()), "uncharged")
	}), "domain", "rule", "direction")
	m.counter("rls_overdraft_cut_hits_total", "Hits beyond the debt that an overdraft allows, which were not charged.", of(func(n *accountCounts, is tell) {
		is(float64(n.cut.Load()))
	}), "domain", "rule")
}
