package memcached_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/memcached"
)

const srvName = "_memcache._tcp.cache.test."

// dns is a name server that knows one SRV record and the loopback address of
// every host.
type dns struct {
	conn  net.PacketConn
	mu    sync.Mutex
	ports []uint16 // of the servers in the record; nil is a failing server
	asked int
}

func startDNS(t *testing.T) *dns {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &dns{conn: conn}
	var running sync.WaitGroup
	running.Go(d.serve)
	t.Cleanup(func() {
		_ = conn.Close()
		running.Wait()
	})
	return d
}

func (d *dns) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "udp", d.conn.LocalAddr().String())
	}}
}

// list makes the record name these servers; none makes look-ups fail.
func (d *dns) list(t *testing.T, servers ...*testenv.Server) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ports = nil
	for _, s := range servers {
		_, port, _ := net.SplitHostPort(s.Addr)
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			t.Fatal(err)
		}
		d.ports = append(d.ports, uint16(n))
	}
}

// questions is how many SRV questions there were.
func (d *dns) questions() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked
}

func (d *dns) serve() {
	buf := make([]byte, 1500)
	for {
		n, from, err := d.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		d.answer(&m)
		if b, err := m.Pack(); err == nil {
			_, _ = d.conn.WriteTo(b, from)
		}
	}
}

func (d *dns) answer(m *dnsmessage.Message) {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := m.Questions[0]
	m.Response, m.Authoritative, m.Additionals = true, true, nil
	header := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1}
	switch {
	case q.Type == dnsmessage.TypeSRV && q.Name.String() == srvName:
		d.asked++
		if d.ports == nil {
			m.RCode = dnsmessage.RCodeServerFailure
		}
		for i, port := range d.ports {
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.SRVResource{
				Port: port, Target: dnsmessage.MustNewName(fmt.Sprintf("host%d.cache.test.", i)),
			}})
		}
	case q.Type == dnsmessage.TypeA:
		m.Answers = []dnsmessage.Resource{{Header: header, Body: &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}}}
	}
}

func TestSRV(t *testing.T) {
	d := startDNS(t)
	a, b := testenv.Memcached(t), testenv.Memcached(t)
	o := memcached.Options{SRV: srvName, SRVRefresh: 20 * time.Millisecond, Resolver: d.resolver()}
	s := open(t, o)
	// Nothing is known yet: Open has returned, decisions are errors.
	if err := s.Apply(context.Background(), batch(hit("key", 1, -1))); !errors.Is(err, backends.ErrUnavailable) {
		t.Fatalf("got %v, want ErrUnavailable", err)
	}
	d.list(t, a)
	testenv.Eventually(t, patience, func() bool { return s.Ping(context.Background()) == nil }, "the record is found")
	for i := range 20 {
		apply(t, s, hit(fmt.Sprint("key", i), 1, -1))
	}
	if got := say(t, a.Addr, "incr key7 0"); got != "1" {
		t.Fatalf("the server in the record has %q", got)
	}

	// A server more: part of the cells live there.
	d.list(t, a, b)
	counted := func(server *testenv.Server) (n int) {
		for i := range 20 {
			if say(t, server.Addr, fmt.Sprintf("incr more%d 0", i)) != "NOT_FOUND" {
				n++
			}
		}
		return n
	}
	testenv.Eventually(t, patience, func() bool {
		for i := range 20 {
			apply(t, s, hit(fmt.Sprint("more", i), 1, -1))
		}
		return counted(b) > 0
	}, "the second server is used")

	// Failing look-ups keep the last good list.
	d.list(t)
	failed := d.questions()
	testenv.Eventually(t, patience, func() bool { return d.questions() > failed+4 }, "failing look-ups")
	if err := s.Ping(context.Background()); err != nil {
		t.Fatalf("after failed look-ups: %v", err)
	}

	// A server that left the record loses its connections too.
	d.list(t, b)
	testenv.Eventually(t, patience, func() bool { return connections(t, a.Addr) == 0 }, "no connections to the server that left")
	apply(t, s, hit("key", 1, -1))
}

func TestSRVWithoutRefreshIsLookedUpUntilFound(t *testing.T) {
	d := startDNS(t)
	a, b := testenv.Memcached(t), testenv.Memcached(t)
	s := open(t, memcached.Options{SRV: srvName, Resolver: d.resolver()})
	testenv.Eventually(t, patience, func() bool { return d.questions() > 0 }, "a first, failing look-up")
	d.list(t, a)
	testenv.Eventually(t, patience, func() bool { return s.Ping(context.Background()) == nil }, "the record is found")
	asked := d.questions()
	d.list(t, b)
	for range 50 {
		apply(t, s, hit("key", 1, -1))
	}
	if got := say(t, a.Addr, "incr key 0"); got != "50" || d.questions() != asked {
		t.Fatalf("the first server has %q of 50, %d more look-ups", got, d.questions()-asked)
	}
}
