package exact_test

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// cutter is a network between stores and a server that closes the connection in
// place of every nth answer. The server has then carried out the call, and its
// caller is not told.
type cutter struct {
	addr    string
	every   int64 // 0 cuts nothing
	answers atomic.Int64
}

func cut(t *testing.T, server string, every int64) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{addr: l.Addr().String(), every: every}
	var running sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", server)
			if err != nil {
				_ = client.Close()
				continue
			}
			mu.Lock()
			open = append(open, client, upstream)
			mu.Unlock()
			running.Go(func() { pass(upstream, client, func() bool { return false }) })
			running.Go(func() { pass(client, upstream, c.cuts) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, conn := range open {
			_ = conn.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	return c
}

// cuts reports whether the next answer is lost.
func (c *cutter) cuts() bool { return c.every > 0 && c.answers.Add(1)%c.every == 0 }

// pass copies until an end is closed or stop says so, and then closes both.
func pass(to, from net.Conn, stop func() bool) {
	defer func() {
		_ = to.Close()
		_ = from.Close()
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil || stop() {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}
