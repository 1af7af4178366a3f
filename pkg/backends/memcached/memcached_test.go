package memcached_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/memcached"
	"example.org/rls/test/backendtest"
)

const patience = 20 * time.Second

// open opens a store that is closed when the test ends. A test that is not about
// timeouts gives none: the machine may be busy.
func open(t testing.TB, o memcached.Options) *memcached.Store {
	t.Helper()
	if o.Timeout == 0 {
		o.Timeout = patience
		if o.Watch == nil {
			o.Watch = &breaker.Watch{}
		}
		o.Watch.Slow = patience
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

// start opens a store on a server of its own.
func start(t testing.TB) (*memcached.Store, *testenv.Server) {
	t.Helper()
	server := testenv.Memcached(t)
	return open(t, memcached.Options{Servers: []string{server.Addr}}), server
}

func TestConformance(t *testing.T) {
	server := testenv.Memcached(t)
	backendtest.Run(t, func(t *testing.T) backends.Store {
		return backendtest.ByCell(open(t, memcached.Options{Servers: []string{server.Addr}}))
	})
}

func TestReadsWriteNothing(t *testing.T) {
	server := testenv.Memcached(t)
	side := memcache.New(server.Addr)
	backendtest.RunReads(t, func(t *testing.T) backends.Store {
		return open(t, memcached.Options{Servers: []string{server.Addr}})
	}, func(t *testing.T, key string) string {
		item, err := side.Get(memcached.StoredKey(key))
		if errors.Is(err, memcache.ErrCacheMiss) || key == "" {
			return ""
		} else if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(item.CasID, item.Value) // each write has another id
	})
}

// TestAllOrNothingOverTwoServers: a refused batch leaves nothing charged on
// either server, an admitted one is charged on both.
func TestAllOrNothingOverTwoServers(t *testing.T) {
	a, b := testenv.Memcached(t), testenv.Memcached(t)
	s := open(t, memcached.Options{Servers: []string{a.Addr, b.Addr}})
	full, free := twoKeys(t, s, a)
	apply(t, s, hit(full, 4, 5)) // 5 of 5 are used with the hit of twoKeys
	for range 3 {
		both := batch(hit(free, 1, 9), hit(full, 1, 5))
		both.AllOrNothing = true
		if err := s.Apply(context.Background(), both); err != nil || !both.Refused {
			t.Fatalf("refused %v, error %v", both.Refused, err)
		}
	}
	if n := apply(t, s, hit(free, 0, -1)).Value.Whole; n != 1 {
		t.Errorf("refused batches have left %d hits, want 1", n)
	}
	both := batch(hit(free, 1, 9), hit(full, 1, 6))
	both.AllOrNothing = true
	if err := s.Apply(context.Background(), both); err != nil || both.Refused || both.Replies[0].Value.Whole != 2 || both.Replies[1].Value.Whole != 6 {
		t.Errorf("refused %v, error %v, replies %+v", both.Refused, err, both.Replies)
	}
}

// TestRoundTrips counts the requests of each kind of batch. A batch that is decided together over
// several cells is looked at first, and a refused one writes nothing.
func TestRoundTrips(t *testing.T) {
	network := testenv.NewRelay(t, testenv.Memcached(t).Addr)
	s := open(t, memcached.Options{Servers: []string{network.Addr}})
	warm(t, s, 5)
	var mu sync.Mutex
	var sent []string
	network.Watch(func(request []byte) {
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, strings.Fields(string(request))[0])
	})
	log := backends.Op{Limit: &backends.Limit{Kind: backends.List, Den: 1, Window: 60 * second}, Key: "log", Now: epoch, Times: 1,
		By: backends.Amount{Whole: 1}, Max: backends.Amount{Whole: 5}}
	counted := hit("counted", 1, 0)
	counted.Verb = backends.Count
	fitting := hit("window2", 1, 99)
	fitting.Verb = backends.Count
	apply(t, s, fitting)
	group := func(ops ...backends.Op) []backends.Op {
		for i := range ops {
			ops[i].Group = 1
		}
		return ops
	}
	for _, c := range []struct {
		name string
		ops  []backends.Op
		all  bool
		want string // sorted
	}{
		{"the first hit of a window", []backends.Op{hit("window", 1, -1)}, false, "add incr"},
		{"a hit", []backends.Op{hit("window", 1, -1)}, false, "incr"},
		{"three hits", []backends.Op{hit("window", 1, -1), hit("window", 1, -1), hit("window", 1, -1)}, false, "incr incr incr"},
		{"a hit that has to fit", []backends.Op{hit("window", 1, 9)}, false, "cas gets"},
		{"three that have to fit", []backends.Op{hit("window", 1, 9), hit("window", 1, 9), log}, false, "add cas gets"},
		{"hits that do not fit", []backends.Op{hit("window", 9, 9), hit("other", 9, 3)}, false, "gets"},
		{"a group of one cell", group(hit("window", 1, 9), hit("window", 9, 9)), false, "gets"},
		{"a group", group(hit("window", 1, 9), log), false, "cas cas gets gets"},
		{"a group that counts what it denies", group(hit("window", 1, 99), fitting), false, "cas gets gets incr"},
		{"a group that is refused", group(hit("window", 1, 9), hit("other", 9, 3)), false, "gets"},
		{"a group that is refused and counted", group(hit("window", 1, 9), counted), false, "add gets incr"},
		{"all or nothing", []backends.Op{hit("window", 1, 99), log}, true, "cas cas gets gets"},
		{"all or nothing, refused", []backends.Op{hit("window", 1, 9), hit("other", 9, 3), log}, true, "gets"},
	} {
		sent = nil
		b := batch(c.ops...)
		b.AllOrNothing = c.all
		if err := s.Apply(context.Background(), b); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		slices.Sort(sent)
		if got := strings.Join(sent, " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		mu.Unlock()
	}
}

// TestADeniedOperationTellsOfTheChargesBefore: the reply to an operation whose group is refused
// has the hits that an operation before it has charged to the same cell.
func TestADeniedOperationTellsOfTheChargesBefore(t *testing.T) {
	s, _ := start(t)
	full := hit("full", 1, 0)
	b := batch(hit("shared", 2, 9), hit("other", 1, 9), hit("shared", 3, 9), full)
	b.Ops[0].Group, b.Ops[1].Group, b.Ops[2].Group, b.Ops[3].Group = 1, 1, 2, 2
	if err := s.Apply(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	if r := b.Replies[2]; r.Value.Whole != 2 || r.Admitted != 1 || apply(t, s, full.Look()).Value.Whole != 0 {
		t.Errorf("%+v, want 2 hits of the operation before", r)
	}
	if n := apply(t, s, b.Ops[2].Look()).Value.Whole; n != 2 {
		t.Errorf("%d hits are charged, want 2", n)
	}
}

// twoKeys hits one key on server and one on another server, once each.
func twoKeys(t *testing.T, s *memcached.Store, server *testenv.Server) (on, elsewhere string) {
	t.Helper()
	here, there := keysOn(t, s, server, 1, 1)
	return here[0], there[0]
}

// keysOn hits at least n keys on server and m on other servers, and returns them.
func keysOn(t *testing.T, s *memcached.Store, server *testenv.Server, n, m int) (on, elsewhere []string) {
	t.Helper()
	for i := 0; len(on) < n || len(elsewhere) < m; i++ {
		key := fmt.Sprint("key", i)
		testenv.Eventually(t, patience, func() bool { return s.Apply(context.Background(), batch(hit(key, 1, -1))) == nil }, "a server answers")
		if say(t, server.Addr, "incr "+key+" 0") != "NOT_FOUND" {
			on = append(on, key)
		} else {
			elsewhere = append(elsewhere, key)
		}
	}
	return on, elsewhere
}
