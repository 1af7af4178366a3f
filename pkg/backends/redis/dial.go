package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"
)

// dialer opens connections for go-redis and remembers them, so that all can be
// closed at once when the server has become a replica.
type dialer struct {
	net.Dialer
	tls   func() *tls.Config // for a new connection; nil for plain text
	count *connections

	mu   sync.Mutex
	open map[*conn]struct{}
}

func newDialer(t *target) *dialer {
	return &dialer{Dialer: net.Dialer{Timeout: t.silence()}, tls: t.TLS, count: &t.connections, open: map[*conn]struct{}{}}
}

// silence is the longest time without an answer before a connection is closed.
func (t *target) silence() time.Duration { return min(t.Timeout, silence) }

// dial never fails: instead of an error it returns a connection on which every
// read and write fails. After some failed dials a pool of go-redis answers with
// the last error and tries to connect only once a second; with a connection
// that fails on first use, each batch tries anew.
func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := d.connect(ctx, network, addr)
	if err != nil {
		return newBroken(err), nil
	}
	return c, nil
}

func (d *dialer) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	raw, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, raw: raw.(syscall.Conn), dialer: d}
	if d.tls != nil {
		config := d.tls()
		if config.ServerName == "" {
			config.ServerName, _, _ = net.SplitHostPort(addr)
		}
		secure := tls.Client(raw, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			return nil, handshakeError(addr, err)
		}
		c.Conn = secure
	}
	d.mu.Lock()
	d.open[c] = struct{}{}
	d.mu.Unlock()
	d.count.opened.Add(1)
	return c, nil
}

// leaveAll closes every connection.
func (d *dialer) leaveAll() {
	d.mu.Lock()
	open := d.open
	d.open = map[*conn]struct{}{}
	d.mu.Unlock()
	d.count.closed.Add(int64(len(open)))
	for c := range open {
		_ = c.Conn.Close()
	}
}

// conn is an open connection. Under TLS, too, it gives access to its socket:
// before each use go-redis looks there whether the server has closed it.
type conn struct {
	net.Conn
	raw    syscall.Conn
	dialer *dialer
}

func (c *conn) SyscallConn() (syscall.RawConn, error) { return c.raw.SyscallConn() }

func (c *conn) Close() error {
	c.dialer.mu.Lock()
	if _, open := c.dialer.open[c]; open {
		delete(c.dialer.open, c)
		c.dialer.count.closed.Add(1)
	}
	c.dialer.mu.Unlock()
	return c.Conn.Close()
}

// broken is a connection that could not be made.
type broken struct{ err error }

// newBroken hides the type of err: go-redis would keep a connection whose error
// is an answer of a server, such as a sentinel's.
func newBroken(err error) broken { return broken{errors.New(explain(err, false).Error())} }

func (b broken) Read([]byte) (int, error)         { return 0, b.err }
func (b broken) Write([]byte) (int, error)        { return 0, b.err }
func (b broken) Close() error                     { return nil }
func (b broken) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (b broken) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (b broken) SetDeadline(time.Time) error      { return nil }
func (b broken) SetReadDeadline(time.Time) error  { return nil }
func (b broken) SetWriteDeadline(time.Time) error { return nil }
