package server

import (
	"errors"
	"net"
	"sync"
	"syscall"
	"time"
)

const (
	// handshakeWithin bounds TLS and HTTP/2's first words of a new connection.
	handshakeWithin = 10 * time.Second
	// Handshakes that began before the server stops have 1/lastHandshakes of
	// StopWithin to end.
	lastHandshakes = 10
)

// handshakes is a listener for grpc-go that knows which of its connections are
// too new for calls. grpc-go resets those when it stops, and waits for those
// that say nothing: until they time out it tells nobody to go.
type handshakes struct {
	net.Listener

	mu      sync.Mutex
	pending map[*handshake]struct{}
	none    *sync.Cond // told when nothing is pending
	end     time.Time  // of all handshakes; zero while each has its own
}

// handshake is a connection that grpc-go gives a deadline when it is new and
// none when its handshake is over, well or not.
type handshake struct {
	net.Conn
	of *handshakes
}

func newHandshakes(l net.Listener) *handshakes {
	h := &handshakes{Listener: l, pending: map[*handshake]struct{}{}}
	h.none = sync.NewCond(&h.mu)
	return h
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

// finish lets nobody in any more and waits for the handshakes that began; those
// that are not over by then fail.
func (h *handshakes) finish(end time.Time) {
	_ = h.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end = end
	for c := range h.pending {
		_ = c.Conn.SetDeadline(end) // fails where it is closed
	}
	for len(h.pending) > 0 {
		h.none.Wait()
	}
}

// over says that a handshake is; h.mu is held.
func (h *handshakes) over(c *handshake) {
	if delete(h.pending, c); len(h.pending) == 0 {
		h.none.Broadcast()
	}
}

// SetDeadline implements [net.Conn].
func (c *handshake) SetDeadline(t time.Time) error {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if end := c.of.end; t.IsZero() {
		c.of.over(c)
	} else if !end.IsZero() && t.After(end) {
		t = end
	}
	return c.Conn.SetDeadline(t)
}

// SyscallConn implements [syscall.Conn].
func (c *handshake) SyscallConn() (syscall.RawConn, error) { return socketOf(c.Conn) }

// socketOf is for channelz, which tells of a connection what its socket says.
func socketOf(conn net.Conn) (syscall.RawConn, error) {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return socket.SyscallConn()
}

// Close implements [net.Conn].
func (c *handshake) Close() error {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.of.over(c)
	return c.Conn.Close()
}
