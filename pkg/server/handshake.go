package server

import (
	"net"
	"sync"
	"time"
)

const (
	// handshakeWithin bounds TLS and HTTP/2's first words of a new connection.
	handshakeWithin = 10 * time.Second
	// lastHandshakes is how long handshakes may go on when the server stops:
	// until then GracefulStop tells nobody to go, and Stop waits as well.
	lastHandshakes = 500 * time.Millisecond
)

// handshakes is a listener for grpc-go whose connections can be hurried before
// a call is possible on them.
type handshakes struct {
	net.Listener

	mu      sync.Mutex
	pending map[*handshake]struct{}
	end     time.Time // of all handshakes; zero while each has its own
}

// handshake is a connection that grpc-go gives a deadline when it is new and
// none when its handshake is over.
type handshake struct {
	net.Conn
	of *handshakes
}

func newHandshakes(l net.Listener) *handshakes {
	return &handshakes{Listener: l, pending: map[*handshake]struct{}{}}
}

// Accept implements [net.Listener].
func (h *handshakes) Accept() (net.Conn, error) {
	conn, err := h.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &handshake{conn, h}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pending[c] = struct{}{}
	return c, nil
}

// endAt makes handshakes fail that are not over by then.
func (h *handshakes) endAt(end time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end = end
	for c := range h.pending {
		_ = c.Conn.SetDeadline(end) // fails where it is closed
	}
}

// SetDeadline implements [net.Conn].
func (c *handshake) SetDeadline(t time.Time) error {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if end := c.of.end; t.IsZero() {
		delete(c.of.pending, c)
	} else if !end.IsZero() && t.After(end) {
		t = end
	}
	return c.Conn.SetDeadline(t)
}
