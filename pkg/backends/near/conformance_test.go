package near_test

import (
	"context"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/memcached"
	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/backends/near"
	"example.org/rls/pkg/backends/redis"
	"example.org/rls/test/backendtest"
)

const patience = 20 * time.Second

// prompt does background work as soon as it is due.
type prompt struct {
	*near.Store
	work queued
	used *uint64
}

func (p *prompt) Apply(ctx context.Context, b *backends.Batch) error {
	err := p.Store.Apply(ctx, b)
	p.work.run()
	return err
}

func (p *prompt) Close() error {
	*p.used += p.Leases().Used
	return p.Store.Close()
}

// TestConformance runs the suite over each store: as it is, which has no leases,
// and the timelines on limits with leases.
func TestConformance(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) func() (backends.Store, error){
		"memory": func(*testing.T) func() (backends.Store, error) {
			return func() (backends.Store, error) { return memory.New(memory.Options{MaxKeys: 100_000}) }
		},
		"redis": func(t *testing.T) func() (backends.Store, error) {
			url := testenv.Redis(t).Addr
			return func() (backends.Store, error) {
				return redis.Open(redis.Options{URL: url, Timeout: patience, Watch: &breaker.Watch{Slow: patience}})
			}
		},
		"memcached": func(t *testing.T) func() (backends.Store, error) {
			server := testenv.Memcached(t).Addr
			return func() (backends.Store, error) {
				return memcached.Open(memcached.Options{Servers: []string{server}, Timeout: patience, Watch: &breaker.Watch{Slow: patience}})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opener, used := open(t), uint64(0)
			leased := func(t *testing.T) backends.Store {
				inner, err := opener()
				if err != nil {
					t.Fatal(err)
				}
				p := &prompt{used: &used}
				p.Store = near.New(inner, near.Options{Timeout: patience, Go: p.work.add})
				t.Cleanup(func() { _ = p.Close() })
				if name == "memcached" {
					return backendtest.ByCell(p)
				}
				return p
			}
			t.Run("without leases", func(t *testing.T) { backendtest.Run(t, leased) })
			if used > 0 {
				t.Errorf("%d hits came from leases that no operation asks for", used)
			}
			t.Run("with leases", func(t *testing.T) {
				backendtest.RunLeased(t, leased, algorithms.Lease{Share: 500_000, TTL: 250 * time.Millisecond}, backendtest.Exceptions{
					"fixed window: a denied hit counts":         "a limit with a lease does not count denied hits",
					"fixed window: a check at the limit passes": "a denied hit is not counted, so a check at the limit passes after it, too",
				})
			})
			if used < 20 {
				t.Errorf("only %d hits came from leases", used)
			}
		})
	}
}
