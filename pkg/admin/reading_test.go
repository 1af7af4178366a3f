package admin_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/memcached"
	"example.org/rls/pkg/backends/redis"
)

const everyStrategy = `domain: shop
descriptors:
- {key: fixed, rate_limit: {unit: year, requests_per_unit: 10}}
- {key: first, rate_limit: {unit: year, requests_per_unit: 10, window: from_first_hit}}
- {key: sliding, rate_limit: {unit: year, requests_per_unit: 10, strategy: sliding_window}}
- {key: log, rate_limit: {unit: year, requests_per_unit: 10, strategy: sliding_log}}
- {key: bucket, rate_limit: {unit: year, requests_per_unit: 10, strategy: token_bucket}}
- {key: gcra, rate_limit: {unit: year, requests_per_unit: 10, burst: 10, strategy: gcra}}
- {key: leaky, rate_limit: {unit: year, requests_per_unit: 10, strategy: leaky_bucket}}
`

// seen is a store that keeps a look at each cell that it was asked for.
type seen struct {
	backends.Store
	mu    sync.Mutex
	looks map[string]backends.Op
}

func (s *seen) Apply(ctx context.Context, b *backends.Batch) error {
	s.mu.Lock()
	for i := range b.Ops {
		s.looks[b.Ops[i].Key] = b.Ops[i].Look()
	}
	s.mu.Unlock()
	return s.Store.Apply(ctx, b)
}

// TestReadingChangesNoCell: the role read changes no cell on any route, whatever limit
// and cost the body has.
func TestReadingChangesNoCell(t *testing.T) {
	const patience = 20 * time.Second
	// Each opens a store, and returns what it keeps of a cell; "" is no cell.
	for name, open := range map[string]func(*testing.T) (backends.Store, func(look backends.Op) (string, error)){
		"memory": func(t *testing.T) (backends.Store, func(backends.Op) (string, error)) {
			store := newStore(t)
			return store, func(look backends.Op) (string, error) {
				b := backends.Batch{Ops: []backends.Op{look}, Replies: make([]backends.Reply, 1)}
				err := store.Apply(t.Context(), &b)
				if value := b.Replies[0].Value; value.Whole != 0 && value.Whole != look.Now {
					return fmt.Sprint(value), err
				}
				return "", err
			}
		},
		"redis": func(t *testing.T) (backends.Store, func(backends.Op) (string, error)) {
			server := testenv.Redis(t)
			side := goredis.NewClient(&goredis.Options{Addr: server.Addr})
			t.Cleanup(func() { _ = side.Close() })
			store, err := redis.Open(redis.Options{URL: server.Addr, Timeout: patience, Watch: &breaker.Watch{Slow: patience}})
			if err != nil {
				t.Fatal(err)
			}
			return store, func(look backends.Op) (string, error) {
				dump, err := side.Dump(t.Context(), look.Key).Result()
				if errors.Is(err, goredis.Nil) {
					return "", nil
				}
				return fmt.Sprint(dump, side.PExpireTime(t.Context(), look.Key)), err
			}
		},
		"memcached": func(t *testing.T) (backends.Store, func(backends.Op) (string, error)) {
			server := testenv.Memcached(t)
			side := memcache.New(server.Addr)
			store, err := memcached.Open(memcached.Options{Servers: []string{server.Addr}, Timeout: patience, Watch: &breaker.Watch{Slow: patience}})
			if err != nil {
				t.Fatal(err)
			}
			return store, func(look backends.Op) (string, error) {
				item, err := side.Get(memcached.StoredKey(look.Key))
				if errors.Is(err, memcache.ErrCacheMiss) {
					return "", nil
				} else if err != nil {
					return "", err
				}
				return fmt.Sprint(item.CasID, item.Value), nil // each write has another id
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			below, bytes := open(t)
			t.Cleanup(func() { _ = below.Close() })
			store := &seen{Store: below, looks: map[string]backends.Op{}}
			stored := func() map[string]string {
				store.mu.Lock()
				defer store.mu.Unlock()
				all := map[string]string{}
				for key, look := range store.looks {
					cell, err := bytes(look)
					if err != nil {
						t.Fatal(err)
					}
					if cell != "" {
						all[key] = cell
					}
				}
				return all
			}
			r := start(t, listening{change: func(o *admin.Options) { o.Limits = newLimits(t, store, everyStrategy) }})
			keys := []string{"fixed", "first", "sliding", "log", "bucket", "gcra", "leaky"}
			for _, key := range keys {
				r.chargeEntry(key, "ann", 7)
			}
			before := stored()
			if len(before) != len(keys) {
				t.Fatalf("charged the cells %q", before)
			}
			r.events(readToken)
			for _, key := range keys {
				for _, limit := range []string{"", `,"limit":{"requests_per_unit":%d,"unit":"year"}`, `,"limit":{"requests_per_unit":%d,"unit":"day"}`} {
					for _, requests := range []int{0, 1, 5, 1_000_000} {
						for _, hits := range []string{"", `,"hits_addend":0`, `,"hits_addend":20`, `,"hits_addend":3,"is_negative_hits":true`} {
							descriptor := fmt.Sprintf(`{"entries":[{"key":"%s","value":"ann"}]%s%s}`, key, strings.ReplaceAll(limit, "%d", fmt.Sprint(requests)), hits)
							for _, path := range []string{"/v1/get", "/v1/explain"} {
								if got := r.ask("POST", path, `{"domain":"shop","descriptors":[`+descriptor+"]}", bearer(readToken)); got.code != 200 {
									t.Fatalf("%s %s: got %d %s", path, descriptor, got.code, got.text)
								}
							}
						}
					}
				}
			}
			for _, to := range paths {
				if to.method == "GET" && to.path != "/v1/events" || to.write { // a reader may not write
					r.ask(to.method, to.path, strings.Replace(to.body, "user", "fixed", 1), bearer(readToken))
				}
			}
			after := stored()
			for key := range store.looks {
				if after[key] != before[key] {
					t.Errorf("%s: %q became %q", key, before[key], after[key])
				}
			}
		})
	}
}
