package metrics_test

import (
	"errors"
	"testing"

	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/near"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/top"
)

// connections is a pool.
func connections(open, opened int64) func() (int64, int64) {
	return func() (int64, int64) { return open, opened }
}

// TestAssigned: a scrape looks at the streams once.
func TestAssigned(t *testing.T) {
	m, reads := open(t, metrics.Options{}), 0
	m.Assigned(func() (int, int, map[string]float64) {
		reads++
		return 2, 30, map[string]float64{"d.k": 1.5, "d.z": 0}
	}, func() uint64 { return 0 })
	serves(t, m, "rls_rlqs_streams 2", "rls_rlqs_buckets 30", "# TYPE rls_rlqs_refused_buckets_total counter", "rls_rlqs_refused_buckets_total 0",
		`rls_rlqs_assigned_hits_per_second{rule="d.k"} 1.5`, `rls_rlqs_assigned_hits_per_second{rule="d.z"} 0`)
	if reads != 1 {
		t.Errorf("%d reads", reads)
	}
}

// TestBreakers: two stores share a server, which is away for one of them.
func TestBreakers(t *testing.T) {
	m := open(t, metrics.Options{})
	main, perSecond := &breaker.Watch{Role: "main"}, &breaker.Watch{Role: "per-second"}
	m.Breakers("redis", []*breaker.Watch{main, perSecond})
	main.Server("10.0.0.1:6379")
	main.Server("10.0.0.2:6379")
	b := perSecond.Server("10.0.0.1:6379")
	c, err := b.Allow()
	if err != nil {
		t.Fatal(err)
	}
	c.Done(0, errors.New("refused"))
	serves(t, m,
		`rls_store_servers_away{role="main"} 0`, `rls_store_servers_away{role="per-second"} 1`,
		`rls_breaker_state{backend="redis",server="10.0.0.1:6379"} 2`,
		`rls_breaker_state{backend="redis",server="10.0.0.2:6379"} 0`,
		`rls_policy_active{backend="redis",server="10.0.0.1:6379"} 1`,
		`rls_policy_active{backend="redis",server="10.0.0.2:6379"} 0`)
}

func TestLeases(t *testing.T) {
	m := open(t, metrics.Options{})
	m.Leases(func() near.LeaseStats {
		return near.LeaseStats{Leased: 10, Used: 4, Returned: 2, Refilled: 6, Lost: 1, Held: 3, Keys: 5}
	})
	serves(t, m,
		`rls_lease_hits_total{event="charged"} 10`, `rls_lease_hits_total{event="used"} 4`,
		`rls_lease_hits_total{event="returned"} 2`, `rls_lease_hits_total{event="refilled"} 6`,
		`rls_lease_hits_total{event="lost"} 1`, `rls_lease_hits 3`, `rls_lease_keys 5`)
}

func TestLimited(t *testing.T) {
	twice := top.Row{Domain: "shop", Rule: "shop.user", Entries: []descriptors.Entry{{Key: "user", Value: "\xff"}}, Denied: 2, Remaining: new(int64(4))}
	table := top.Table{Rows: []top.Row{
		{Domain: "shop", Rule: "shop.user", Entries: []descriptors.Entry{{Key: "plan", Value: "free"}, {Key: "user", Value: "ann"}}, Denied: 3},
		twice, twice,
	}}
	for hashed, want := range map[bool][]string{
		false: {
			`rls_top_denied{key="plan=free,user=ann",rule="shop.user"} 3`,
			`rls_top_denied{key="user=\\xff",rule="shop.user"} 2`,
			`rls_top_remaining{key="user=\\xff",rule="shop.user"} 4`,
		},
		// the start of: printf 'shop\0plan=free,user=ann' | sha256sum
		true: {`rls_top_denied{key="3c0392aa7936bdc2",rule="shop.user"} 3`},
	} {
		m := open(t, metrics.Options{})
		m.Limited(func(tell metrics.TellKey) { table.Tell(hashed, tell) })
		told := 0
		if table.Tell(hashed, func(string, string, int64, *int64) { told++ }); told != 2 {
			t.Errorf("%d keys are told, want 2", told)
		}
		serves(t, m, want...)
	}
}
