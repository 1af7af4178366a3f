package integration

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// readable matches every key: the prefix, the domain, and printable ASCII without
// blanks.
var readable = regexp.MustCompile(`^rl_\{?(all|admitted)\|[!-~]+$`)

// checkKeys wants every key in the servers to be readable and to have an expiry.
func checkKeys(t *testing.T, servers []string) {
	wanted := []string{"rl_all|fixed_window=user%201|", "rl_all|sliding_log=user%202|", "rl_admitted|plenty=user%200|"}
	found := map[string]bool{}
	for _, server := range servers {
		for key, ttl := range keysOf(t, server) {
			// The window of a year is kept for another year, and the jitter longer.
			if ttl <= 0 || ttl > 2*365*24*time.Hour+time.Hour {
				t.Errorf("key %q ends in %v", key, ttl)
			}
			if !readable.MatchString(key) || len(key) > 600 {
				t.Errorf("key %.100q of %d bytes is not readable", key, len(key))
			}
			for _, start := range wanted {
				found[start] = found[start] || strings.HasPrefix(key, start)
			}
		}
	}
	for _, start := range wanted {
		if !found[start] {
			t.Errorf("no key begins with %s", start)
		}
	}
}

// keysOf lists the keys of a Redis server and their TTLs.
func keysOf(t *testing.T, server string) map[string]time.Duration {
	t.Helper()
	if !strings.Contains(server, "://") {
		server = "redis://" + server
	}
	options, err := goredis.ParseURL(server)
	if err != nil {
		t.Fatal(err)
	}
	client := goredis.NewClient(options)
	defer func() { _ = client.Close() }()
	const gone = -2 // ended since it was listed
	keys := map[string]time.Duration{}
	ctx := context.Background()
	scan := client.Scan(ctx, 0, "*", 1000).Iterator()
	for scan.Next(ctx) {
		ttl, err := client.PTTL(ctx, scan.Val()).Result()
		if err != nil {
			t.Fatal(err)
		}
		if ttl != gone {
			keys[scan.Val()] = ttl
		}
	}
	if err := scan.Err(); err != nil {
		t.Fatal(err)
	}
	return keys
}
