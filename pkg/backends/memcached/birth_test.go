package memcached_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends/memcached"
)

// TestColdKey: the first hit of a counter takes one round trip as the others do, and
// only the first hits of a process create the counter.
func TestColdKey(t *testing.T) {
	server := testenv.Memcached(t)
	network := testenv.NewRelay(t, server.Addr)
	var mu sync.Mutex
	var sent []string
	network.Watch(func(request []byte) {
		mu.Lock()
		sent = append(sent, string(request))
		mu.Unlock()
	})
	requests := func() (all []string) {
		mu.Lock()
		defer mu.Unlock()
		all, sent = sent, nil
		return all
	}
	s := open(t, memcached.Options{Servers: []string{network.Addr}})
	other := open(t, memcached.Options{Servers: []string{server.Addr}})
	must := func(s *memcached.Store, key string, want int64) {
		t.Helper()
		b := batch(hit(key, 1, -1))
		if err := s.Apply(context.Background(), b); err != nil {
			t.Fatal(err)
		}
		if got := b.Replies[0].Value.Whole; got != want {
			t.Errorf("%s: %d hits, want %d", key, got, want)
		}
	}
	must(s, "opens the connection", 1)
	requests()
	for want, creates := range []bool{true, false, false} {
		must(s, "cold", int64(want)+1)
		if got := requests(); len(got) != 1 || strings.Contains(got[0], "add ") != creates {
			t.Errorf("hit %d: requests %q", want, got)
		}
	}
	// Another process has the counter already.
	must(other, "cold", 4)
	must(other, "warm", 1)
	must(s, "warm", 2)
	if got := requests(); len(got) != 1 {
		t.Errorf("a counter that another process has created: requests %q", got)
	}
	// memcached has dropped a counter that this process knows.
	say(t, server.Addr, "delete cold")
	must(s, "cold", 1)
	must(s, "cold", 2)
	if got := say(t, server.Addr, "mg cold t"); !strings.HasPrefix(got, "HD t") || strings.HasPrefix(got, "HD t-1") {
		t.Errorf("the counter has no expiry: %q", got)
	}
}
