package memcached_test

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
)

// link is a network between the store and a real memcached that a test can
// watch and break.
type link struct {
	addr string
	mu   sync.Mutex
	up   []net.Conn
	lost map[net.Conn]bool
}

// relay forwards connections to target and shows each chunk that clients send
// to watch before it goes on.
func relay(t *testing.T, target string, watch func([]byte)) *link {
	t.Helper()
	return relayFrom(t, "tcp", "127.0.0.1:0", target, watch)
}

func relayFrom(t *testing.T, network, address, target string, watch func([]byte)) *link {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	k := &link{addr: l.Addr().String(), lost: map[net.Conn]bool{}}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			k.mu.Lock()
			k.up = append(k.up, client, server)
			k.mu.Unlock()
			running.Go(func() { k.pipe(server, client, watch) })
			running.Go(func() { k.pipe(client, server, func([]byte) {}) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		k.mu.Lock()
		for _, c := range k.up {
			_ = c.Close()
		}
		k.mu.Unlock()
		running.Wait()
	})
	return k
}

func (k *link) pipe(to, from net.Conn, watch func([]byte)) {
	buf := make([]byte, 1<<16)
	for {
		n, err := from.Read(buf)
		if n > 0 && !k.isLost(from) {
			watch(buf[:n])
			_, _ = to.Write(buf[:n])
		}
		if errors.Is(err, io.EOF) && !k.isLost(from) {
			_ = to.Close()
		}
		if err != nil {
			return
		}
	}
}

// forget stops to forward the open connections without telling either side, like
// a firewall that was restarted.
func (k *link) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.up {
		k.lost[c] = true
	}
}

func (k *link) isLost(c net.Conn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lost[c]
}

// connections is how many connections clients have opened so far.
func (k *link) connections() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.up) / 2
}
