package redis_test

import (
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends/redis"
)

// TestConnections: the store counts the open connections and all connections that
// it has opened, whether it or the server closes them.
func TestConnections(t *testing.T) {
	server := testenv.Redis(t)
	s, err := redis.Open(redis.Options{URL: server.Addr, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ping := func() bool { return s.Ping(t.Context()) == nil }
	testenv.Eventually(t, 10*time.Second, ping, "an answer")
	open, opened := s.Connections()
	if open < 1 || opened < open {
		t.Errorf("after an answer %d are open of %d", open, opened)
	}
	server.Restart()
	testenv.Eventually(t, 10*time.Second, func() bool {
		_, now := s.Connections()
		return ping() && now > opened
	}, "a new connection")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, 10*time.Second, func() bool {
		open, _ := s.Connections()
		return open == 0
	}, "all connections are closed")
}
