package redis_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/redis"
)

// TestALoneCountNeedsNoScript: the operation of nearly all traffic is two plain
// commands, which cost Redis less than a script.
func TestALoneCountNeedsNoScript(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redis.Options{URL: server.Addr})
	for range 10 {
		must(t, s, hit("a"))
	}
	stats := admin(t, server, "INFO", "commandstats").(string)
	if strings.Contains(stats, "eval") || !strings.Contains(stats, "cmdstat_incrby:calls=10,") || !strings.Contains(stats, "cmdstat_set:calls=10,") {
		t.Errorf("Redis was sent\n%s", stats)
	}
}

// TestALoneCountIsSaturated: a count does not go on beyond backends.MaxValue, so that
// it never overflows.
func TestALoneCountIsSaturated(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redis.Options{URL: server.Addr})
	side, ctx := client(t, server), context.Background()
	must(t, s, hit("a"))
	if err := side.Set(ctx, "a", backends.MaxValue-1, time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if got := must(t, s, hit("a"))[0].Value.Whole; got != backends.MaxValue {
			t.Errorf("it counts %d, want %d", got, backends.MaxValue)
		}
	}
	if got := side.Get(ctx, "a").Val(); got != "4503599627370496" {
		t.Errorf("the key holds %s", got)
	}
	if ttl := side.PTTL(ctx, "a").Val(); ttl <= 0 {
		t.Errorf("it lives %v", ttl)
	}
}

// TestALoneCountWithoutMemory: a charge that a full Redis refuses leaves no key.
func TestALoneCountWithoutMemory(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redis.Options{URL: server.Addr})
	must(t, s, hit("a"))
	admin(t, server, "CONFIG", "SET", "maxmemory", "1")
	if _, err := try(s, time.Second, hit("b")); !errors.Is(err, backends.ErrUnavailable) || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("got %v", err)
	}
	admin(t, server, "CONFIG", "SET", "maxmemory", "0")
	if got := count(t, s, "b"); got != 0 {
		t.Errorf("charged %d times", got)
	}
	must(t, s, hit("b"))
}
