package server

import (
	"errors"
	"net"
	"runtime"
	"sync"
	"syscall"
	"time"
)

const (
	// handshakeWithin bounds the TLS handshake and the HTTP/2 preface of a new
	// connection.
	handshakeWithin = 10 * time.Second
	// Handshakes that began before the server stops have 1/lastHandshakes of
	// Options.StopWithin to end.
	lastHandshakes = 10
)

// handshakes is a listener for grpc-go that knows the connections whose
// handshake is not over. When grpc-go stops, it resets the connections that are
// in the middle of a handshake, and sends no GOAWAY to any client while a silent
// connection keeps its handshake waiting. finish ends the handshakes first.
type handshakes struct {
	net.Listener

	mu      sync.Mutex
	pending map[*handshake]struct{}
	none    *sync.Cond // signalled when pending is empty
	end     time.Time  // of all handshakes; zero while each has its own deadline
}

// handshake is a new connection. grpc-go sets a deadline on it at first, and no
// deadline when its handshake is over, whether it succeeded or not.
type handshake struct {
	net.Conn
	of *handshakes
}

func newHandshakes(l net.Listener) *handshakes {
	h := &handshakes{Listener: l, pending: map[*handshake]struct{}{}}
	h.none = sync.NewCond(&h.mu)
	return h
}

// Accept implements [net.Listener]. It lets the goroutines that are ready to run
// go first. Without that a storm of connections is accepted faster than their
// handshakes are done: thousands of these are then ready at once, and as the
// scheduler of Go is a queue, calls on other connections wait behind them for
// half a second. Connections that are not accepted yet wait in the system's
// backlog, where they delay no call.
func (h *handshakes) Accept() (net.Conn, error) {
	runtime.Gosched()
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

// finish closes the listener and waits for the handshakes that began; a
// handshake that is not over at end fails.
func (h *handshakes) finish(end time.Time) {
	_ = h.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end = end
	for c := range h.pending {
		_ = c.Conn.SetDeadline(end) // fails where the connection is closed
	}
	for len(h.pending) > 0 {
		h.none.Wait()
	}
}

// over forgets a connection whose handshake is over; it needs h.mu.
func (h *handshakes) over(c *handshake) {
	if delete(h.pending, c); len(h.pending) == 0 {
		h.none.Broadcast()
	}
}

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

func (c *handshake) Close() error {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.of.over(c)
	return c.Conn.Close()
}

func (c *handshake) SyscallConn() (syscall.RawConn, error) { return socketOf(c.Conn) }

// socketOf gives channelz the socket of a connection, whose options it shows.
func socketOf(conn net.Conn) (syscall.RawConn, error) {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return socket.SyscallConn()
}
