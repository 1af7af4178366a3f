package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/redis"
	"example.org/rls/test/backendtest"
)

// open opens a store and closes it when the test ends.
func open(t testing.TB, o redis.Options) *redis.Store {
	t.Helper()
	s, err := redis.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// start starts a Redis and opens a patient store on it.
func start(t testing.TB) (*testenv.Server, *redis.Store) {
	server := testenv.Redis(t)
	return server, openPatiently(t, redis.Options{URL: server.Addr})
}

// openPatiently opens a store whose calls may take as long as a busy machine needs.
func openPatiently(t testing.TB, o redis.Options) *redis.Store {
	o.Watch = &breaker.Watch{Slow: 10 * time.Second}
	return open(t, o)
}

func TestConformance(t *testing.T) {
	suite := func(o redis.Options) func(t *testing.T) {
		return func(t *testing.T) {
			backendtest.Run(t, func(t *testing.T) backends.Store { return openPatiently(t, o) })
		}
	}
	t.Run("reads", func(t *testing.T) {
		server := testenv.Redis(t)
		side := client(t, server)
		backendtest.RunReads(t, func(t *testing.T) backends.Store { return openPatiently(t, redis.Options{URL: server.Addr}) },
			func(t *testing.T, key string) string {
				dump, ends := side.Dump(t.Context(), redis.StoredKey(key)), side.PExpireTime(t.Context(), redis.StoredKey(key))
				if ends.Err() != nil || dump.Err() != nil && !errors.Is(dump.Err(), goredis.Nil) {
					t.Fatal(dump.Err(), ends.Err())
				}
				return fmt.Sprint(dump.Val(), ends.Val())
			})
	})
	t.Run("redis", suite(redis.Options{URL: testenv.Redis(t).Addr}))
	t.Run("valkey", suite(redis.Options{URL: testenv.Valkey(t).Addr}))
	cluster := testenv.RedisCluster(t, 3, 0)
	o := redis.Options{Type: "cluster", URL: strings.Join(cluster.Addrs(), ",")}
	t.Run("cluster, several slots", func(t *testing.T) {
		backendtest.Run(t, func(t *testing.T) backends.Store { return backendtest.Apart(openPatiently(t, o), redis.SlotOf) })
	})
	t.Run("cluster, one slot", func(t *testing.T) {
		backendtest.Run(t, func(t *testing.T) backends.Store {
			if strings.HasSuffix(t.Name(), "/Scan") || strings.HasSuffix(t.Name(), "/Pages") { // it lists the keys as they are
				return openPatiently(t, o)
			}
			return backendtest.Moved(openPatiently(t, o), backendtest.ToOneSlot)
		})
	})
}

// client is a connection beside the store's.
func client(t testing.TB, server *testenv.Server) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: server.Addr, Protocol: 2})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// admin sends a command to a server.
func admin(t testing.TB, server *testenv.Server, command ...any) any {
	t.Helper()
	reply, err := client(t, server).Do(context.Background(), command...).Result()
	if err != nil {
		t.Fatalf("%v: %v", command, err)
	}
	return reply
}

// fixed is a password that is never changed.
func fixed(auth string) func() string { return func() string { return auth } }

// info returns a field of the server's INFO.
func info(t testing.TB, server *testenv.Server, field string) string {
	t.Helper()
	for line := range strings.Lines(admin(t, server, "INFO").(string)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("INFO has no %s", field)
	return ""
}

func atoi(t testing.TB, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
