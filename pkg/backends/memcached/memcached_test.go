package memcached_test

import (
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/backendtest"
	"example.org/rls/pkg/backends/memcached"
)

const patience = 20 * time.Second

// open opens a store that is closed when the test ends.
func open(t testing.TB, o memcached.Options) *memcached.Store {
	t.Helper()
	if o.Timeout == 0 {
		o.Timeout = patience // the machine may be busy
	}
	s, err := memcached.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestConformance(t *testing.T) {
	t.Run("one server", func(t *testing.T) {
		server := testenv.Memcached(t)
		backendtest.Run(t, func(t *testing.T) backends.Store {
			return open(t, memcached.Options{Servers: []string{server.Addr}})
		})
	})
	t.Run("two servers", func(t *testing.T) {
		a, b := testenv.Memcached(t), testenv.Memcached(t)
		backendtest.Run(t, func(t *testing.T) backends.Store {
			return open(t, memcached.Options{Servers: []string{a.Addr, b.Addr}})
		})
	})
}
