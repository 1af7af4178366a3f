package rlqs_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/memcached"
	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/backends/redis"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/rlqs"
)

// crowd is callers of the bucket {key: v}, without streams.
type crowd []rlqs.Quota

func (w *world) crowd(key string, n int) crowd {
	w.t.Helper()
	q, err := w.replicas[0].quotas.NewQuota("d", []descriptors.Entry{{Key: key, Value: "v"}})
	if err != nil {
		w.t.Fatal(err)
	}
	return slices.Repeat(crowd{q}, n)
}

// report has each caller report a hit that it was denied, and returns the hits that all hold
// afterwards, and how many of them hold any.
func (c crowd) report(w *world, elapsed time.Duration) (held int64, holders int) {
	w.t.Helper()
	usages := make([]rlqs.Usage, len(c))
	for i := range c {
		usages[i] = rlqs.Usage{Quota: &c[i], Denied: 1, Elapsed: elapsed}
	}
	if err := w.replicas[0].quotas.Report(w.t.Context(), usages); err != nil {
		w.t.Fatal(err)
	}
	for i := range c {
		if share := &c[i].Share; share.Kind == rlqs.Portion {
			held += share.Hits
			holders++
		}
	}
	return held, holders
}

const crowdRules = `
domain: d
descriptors:
  - {key: few, rate_limit: {unit: hour, requests_per_unit: 1000}}
  - {key: many, rate_limit: {unit: hour, requests_per_unit: 50000}}
`

// share has n callers report thrice. However many ask for one bucket, they hold what remains and not
// more. Before the first one has reported again, each other one may hold a hit beside it, while as
// many remain as ask.
func (w *world) share(n int, ttl time.Duration, later func()) {
	for key, limit := range map[string]int{"few": 1_000, "many": 50_000} {
		w.replicas[0].quotas.TTL = ttl
		c := w.crowd(key, n)
		if held, _ := c.report(w, 0); held > int64(limit+min(n, limit)) {
			w.t.Errorf("%s: at first %d hold %d of %d", key, n, held, limit)
		}
		for range 2 {
			later()
			if held, holders := c.report(w, 5*time.Second); held > int64(limit) || holders < min(n, limit)*9/10 {
				w.t.Errorf("%s: %d of %d hold %d of %d", key, holders, n, held, limit)
			}
		}
	}
}

func TestManyCallers(t *testing.T) {
	for _, n := range []int{500, 4_200, 20_000, 70_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			in(t, func(t *testing.T) {
				start(t, 1, crowdRules).share(n, 15*time.Second, func() { pass(5 * time.Second) })
			})
		})
	}
}

// TestManyCallersOnServers: all stores count them, and the lists of 4,200 callers cost them little.
func TestManyCallersOnServers(t *testing.T) {
	for name, open := range map[string]func(*testing.T) (backends.Store, error){
		"Redis": func(t *testing.T) (backends.Store, error) {
			return redis.Open(redis.Options{URL: testenv.Redis(t).Addr, Timeout: time.Minute, Watch: &breaker.Watch{Slow: time.Minute}})
		},
		"memcached": func(t *testing.T) (backends.Store, error) {
			return memcached.Open(memcached.Options{Servers: []string{testenv.Memcached(t).Addr}, Timeout: time.Minute, Watch: &breaker.Watch{Slow: time.Minute}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			store, err := open(t)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { store.Close() })
			start(t, 1, crowdRules, func(c *service.Config) { c.Store = store }).share(4_200, time.Hour, func() {})
		})
	}
}

// TestNoRulesYet: a report before the first rules is refused as a request is.
func TestNoRulesYet(t *testing.T) {
	store, err := memory.New(memory.Options{MaxKeys: 10})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	s := service.New(service.Config{Store: store})
	quotas := rlqs.New(rlqs.Options{Service: s, Now: store.Now, TTL: 15 * time.Second})
	data, err := proto.Marshal(reports("d", usage(0, 1, 0, "hour", "v")))
	if err != nil {
		t.Fatal(err)
	}
	err = quotas.StreamRateLimitQuotas(&wire{ctx: t.Context(), messages: [][]byte{data}})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("got %v", err)
	}
}
