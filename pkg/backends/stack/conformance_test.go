package stack_test

import (
	"hash/maphash"
	"path"
	"strings"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/memcached"
	"example.org/rls/pkg/backends/redis"
	"example.org/rls/pkg/backends/stack"
	"example.org/rls/test/backendtest"
)

// patience is the timeout of every store: the machine may be busy.
const patience = 20 * time.Second

func build(t *testing.T, o stack.Options) backends.Store {
	t.Helper()
	s, err := stack.Build(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func onRedis(t *testing.T, o redis.Options) stack.Tier {
	t.Helper()
	o.Timeout = patience
	if o.Watch == nil {
		o.Watch = &breaker.Watch{Slow: patience}
	}
	s, err := redis.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return stack.Tier{Store: s, Timeout: patience}
}

// TestConformance runs the suite on every stack that serve builds, metrics and
// traces aside. The stack on the memory store is that store.
func TestConformance(t *testing.T) {
	t.Run("memcached", func(t *testing.T) {
		t.Parallel()
		server := testenv.Memcached(t)
		suite(t, func(t *testing.T) stack.Options {
			s, err := memcached.Open(memcached.Options{Servers: []string{server.Addr}, Timeout: patience, Watch: &breaker.Watch{Slow: patience}})
			if err != nil {
				t.Fatal(err)
			}
			return stack.Options{Main: stack.Tier{Store: s, Timeout: patience}}
		})
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		o := redis.Options{URL: testenv.Redis(t).Addr}
		suite(t, func(t *testing.T) stack.Options { return stack.Options{Main: onRedis(t, o)} })
	})
	for name, servers := range map[string]func(*testing.T) redis.Options{
		"redis":  func(t *testing.T) redis.Options { return redis.Options{URL: testenv.Redis(t).Addr} },
		"valkey": func(t *testing.T) redis.Options { return redis.Options{URL: testenv.Valkey(t).Addr} },
		"sentinel": func(t *testing.T) redis.Options {
			s := testenv.Sentinel(t)
			return redis.Options{Type: "sentinel", URL: strings.Join(append([]string{s.MasterName}, s.Addrs()...), ",")}
		},
		"cluster": func(t *testing.T) redis.Options {
			return redis.Options{Type: "cluster", URL: strings.Join(testenv.RedisCluster(t, 3, 0).Addrs(), ",")}
		},
	} {
		t.Run(name+" for limits per second beside another", func(t *testing.T) {
			t.Parallel()
			main, perSecond := redis.Options{URL: testenv.Redis(t).Addr}, servers(t)
			suite(t, func(t *testing.T) stack.Options {
				return stack.Options{Main: onRedis(t, main), PerSecond: onRedis(t, perSecond)}
			})
		})
		t.Run(name+" beside one for limits per second", func(t *testing.T) {
			t.Parallel()
			main, perSecond := servers(t), redis.Options{URL: testenv.Redis(t).Addr}
			suite(t, func(t *testing.T) stack.Options {
				return stack.Options{Main: onRedis(t, main), PerSecond: onRedis(t, perSecond)}
			})
		})
	}
}

// suite runs the suite without and with a local cache.
func suite(t *testing.T, options func(*testing.T) stack.Options) {
	open := func(cache int) backendtest.Open {
		return func(t *testing.T) backends.Store {
			o := options(t)
			o.LocalCache = cache
			s := backendtest.Moved(build(t, o), scatter(path.Base(t.Name())))
			if _, is := o.Main.Store.(*memcached.Store); is {
				s = backendtest.ByCell(s)
			}
			return s
		}
	}
	t.Run("without cache", func(t *testing.T) { backendtest.Run(t, open(0)) })
	t.Run("with cache", func(t *testing.T) {
		backendtest.Run(t, open(1<<20),
			backendtest.Exceptions{"fixed window: a denied hit counts": "a denial from memory is not charged"})
	})
}

// scatter gives the cells of a test of the suite to both stores of a stack.
func scatter(test string) func(*backends.Op) {
	return func(op *backends.Op) {
		limit := *op.Limit
		limit.PerSecond = perSecond(test, op.Key)
		op.Limit = &limit
		if test == "Steps" || test == "Further" || test == "Room" { // the slots of a cluster give charges back, too
			backendtest.ToOneSlot(op)
		}
	}
}

var seed = maphash.MakeSeed()

// perSecond chooses the store of a cell.
func perSecond(test, key string) bool {
	switch test {
	case "Steps", "Further", "Room":
		// The suite compares random batches with a model to the last bit. Over two
		// stores a charge may be made and given back; it may have begun a window
		// meanwhile, and a list loses its newest costs.
		return true
	case "Decisions": // also groups over both stores
		return maphash.String(seed, key)%2 == 0
	}
	// Keys with one tag are in one store, as the keys of a group are.
	tag, _, _ := strings.Cut(key, "}")
	return maphash.String(seed, tag)%2 == 0
}
