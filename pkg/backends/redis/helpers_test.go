package redis_test

import (
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
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

// proxy passes connections on to a server. A test can point it to another server,
// and can have it drop the bytes of open connections.
type proxy struct {
	listener net.Listener

	mu     sync.Mutex
	target string
	open   []*tap
}

// tap is one connection; a closed one passes nothing on but stays open.
type tap struct {
	mu     sync.Mutex
	closed bool
}

func (p *tap) Write(b []byte) (int, error) { return len(b), nil }

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: target}
	var conns sync.WaitGroup
	var ends []net.Conn
	accepting := make(chan struct{})
	go func() {
		defer close(accepting)
		for {
			down, err := l.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			up, err := net.Dial("tcp", p.target)
			if err != nil {
				_ = down.Close()
				p.mu.Unlock()
				continue
			}
			valve := &tap{}
			p.open = append(p.open, valve)
			ends = append(ends, down, up)
			p.mu.Unlock()
			conns.Go(func() { valve.pass(up, down) })
			conns.Go(func() { valve.pass(down, up) })
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-accepting
		for _, c := range ends {
			_ = c.Close()
		}
		conns.Wait()
	})
	return p
}

// pass copies until an end is closed, and then closes the other.
func (p *tap) pass(to, from net.Conn) {
	defer func() { _ = to.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		sink := io.Writer(to)
		if p.closed {
			sink = p
		}
		p.mu.Unlock()
		if _, err := sink.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// to has new connections go to target.
func (p *proxy) to(target string) {
	p.mu.Lock()
	p.target = target
	p.mu.Unlock()
}

// swallow drops all bytes that are sent from now on over the connections that are
// open now.
func (p *proxy) swallow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.open {
		c.mu.Lock()
		c.closed = true
		c.mu.Unlock()
	}
}
