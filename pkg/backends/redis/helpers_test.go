package redis_test

import (
	"context"
	"strconv"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/internal/testenv"
)

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
