package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/redis"
)

// page begins to list the keys, and returns a position before the last page.
func page(t *testing.T, s *redis.Store) (position string) {
	t.Helper()
	for i := range 300 {
		must(t, s, hit(fmt.Sprintf("page.%d", i)))
	}
	_, position, err := s.Page(t.Context(), "page.", "", 10)
	if err != nil || position == "" {
		t.Fatalf("the first page: %q, %v", position, err)
	}
	if _, _, err := s.Page(t.Context(), "page.", position, 10); err != nil {
		t.Fatalf("the second page: %v", err)
	}
	return position
}

// TestPageAfterAFailover: a server that has started anew, or that was promoted, has its keys in another order.
func TestPageAfterAFailover(t *testing.T) {
	moved := func(s *redis.Store, position string) {
		t.Helper()
		var err error
		testenv.Eventually(t, 30*time.Second, func() bool {
			_, _, err = s.Page(t.Context(), "page.", position, 10)
			return err == nil || errors.Is(err, backends.ErrMoved)
		}, "the servers list their keys")
		if !errors.Is(err, backends.ErrMoved) {
			t.Errorf("the position of other servers: %v, want ErrMoved", err)
		}
	}
	server, s := start(t)
	position := page(t, s)
	server.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, _, err := s.Page(ctx, "page.", position, 10); !errors.Is(err, backends.ErrUnavailable) || !strings.Contains(err.Error(), server.Addr) {
		t.Errorf("a server that is away: %v, want its address", err)
	}
	server.Restart()
	moved(s, position)

	cluster := testenv.RedisCluster(t, 3, 1)
	in := openPatiently(t, redis.Options{Type: "cluster", URL: strings.Join(cluster.Addrs(), ",")})
	position = page(t, in)
	key := keyOn(t, cluster.Masters[0], "moves")
	cluster.Masters[0].Kill()
	promote(t, in, key, cluster.Replicas[0])
	moved(in, position)
}

// TestPageOfAFrozenServer ends when its caller's time is over, with the server's name.
func TestPageOfAFrozenServer(t *testing.T) {
	server, s := start(t)
	position := page(t, s)
	server.Pause()
	defer server.Resume()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, _, err := s.Page(ctx, "page.", position, 10); !errors.Is(err, backends.ErrUnavailable) || !strings.Contains(err.Error(), server.Addr) {
		t.Errorf("got %v, want ErrUnavailable of %s", err, server.Addr)
	}
}

// TestPageWithoutINFO: a user of Redis who may not ask for INFO lists keys, too.
func TestPageWithoutINFO(t *testing.T) {
	server := testenv.Redis(t, "--user", "rls", "on", ">secret", "~*", "+@connection", "+@read", "+@write", "+@scripting", "+time")
	s := openPatiently(t, redis.Options{URL: server.Addr, Auth: fixed("rls:secret")})
	page(t, s)
}
