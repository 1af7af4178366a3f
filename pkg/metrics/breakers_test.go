package metrics_test

import (
	"errors"
	"testing"

	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/metrics"
)

// TestBreakers: two stores share a server, which is away for one of them.
func TestBreakers(t *testing.T) {
	m := open(t, metrics.Options{})
	main, perSecond := &breaker.Watch{}, &breaker.Watch{}
	m.Breakers("redis", []*breaker.Watch{main, perSecond})
	main.Server("10.0.0.1:6379")
	main.Server("10.0.0.2:6379")
	b := perSecond.Server("10.0.0.1:6379")
	c, err := b.Allow()
	if err != nil {
		t.Fatal(err)
	}
	c.Done(0, errors.New("refused"))
	lines := scrape(t, m)
	for _, want := range []string{
		`rls_breaker_state{backend="redis",server="10.0.0.1:6379"} 2`,
		`rls_breaker_state{backend="redis",server="10.0.0.2:6379"} 0`,
		`rls_policy_active{backend="redis",server="10.0.0.1:6379"} 1`,
		`rls_policy_active{backend="redis",server="10.0.0.2:6379"} 0`,
	} {
		if !lines[want] {
			t.Errorf("no %s", want)
		}
	}
}
