package memcached

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"example.org/rls/pkg/backends/remote"
)

// dial opens a connection that renews itself, see conn. gomemcache calls it.
func (s *server) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	c := &conn{server: s, bound: remote.Bound{Header: header, MaxBytes: maxAnswers}}
	if err := c.open(ctx); err != nil {
		return nil, s.brokeOff(err)
	}
	return c, nil
}

// conn is a connection to one server as gomemcache uses it: write a request,
// read the answer, and so on.
//
// gomemcache keeps idle connections without looking at them, so that after a
// restart of the server the next call on each would fail, perhaps after it had
// charged. This conn checks its connection before it writes a
// request: if the server has closed the connection, or a call to that server was not
// answered in time since it was opened, conn dials another one. No byte of the request has been
// sent by then, so nothing is charged twice. A request that has been sent is never
// repeated.
//
// On a new connection the server has to answer `version` before the first
// request. The system of a frozen server still accepts connections and buffers
// requests, and the server would apply charges that timed out when it wakes up. So
// once a call has timed out, no charge is sent until the server answers.
type conn struct {
	net.Conn
	below    net.Conn // the same in plain text
	server   *server
	timeouts int64 // of the server when this connection was opened
	asked    bool  // a request was written and no answer read yet
	bound    remote.Bound
}

// gomemcache makes room for an item as large as the server announces. The items of the store
// have some kilobytes, and memcached's largest has 1 MiB unless it is told otherwise.
const (
	maxItem    = 4 << 20
	maxAnswers = 64 << 20 // to one request
)

// header reads a line, as the Header of a remote.Bound: VALUE key flags bytes cas.
func header(line []byte) (body, elements int, err error) {
	words := bytes.SplitN(bytes.TrimSuffix(line, []byte("\r\n")), []byte(" "), 5)
	if string(words[0]) != "VALUE" || len(words) < 4 {
		return 0, 0, nil
	}
	n, err := strconv.ParseUint(string(words[3]), 10, 32)
	if err != nil || n > maxItem {
		return 0, 0, remote.Wrong("%.300q announces more than %d bytes", line, maxItem)
	}
	return int(n) + len("\r\n"), 0, nil
}

func (c *conn) open(ctx context.Context) error {
	c.timeouts = c.server.timeouts.Load()
	nc, below, err := c.server.dialer.Connect(ctx, c.server.network, c.server.address)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.server.silence)
	defer cancel()
	if err := greet(ctx, nc); err != nil {
		_ = nc.Close()
		return err
	}
	c.Conn, c.below = nc, below
	return nil
}

// greet waits until the server answers.
func greet(ctx context.Context, nc net.Conn) error {
	if deadline, ok := ctx.Deadline(); ok {
		if err := nc.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if _, err := nc.Write([]byte("version\r\n")); err != nil {
		return err
	}
	line, err := bufio.NewReader(io.LimitReader(nc, 256)).ReadString('\n')
	switch {
	case err == nil && strings.HasPrefix(line, "VERSION "):
		return nil
	case line != "" && (err == nil || errors.Is(err, io.EOF)):
		return fmt.Errorf("new connection to %s: not memcached, it says %q", nc.RemoteAddr(), line)
	case errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET):
		return fmt.Errorf("new connection to %s: the server closed it before an answer (it may speak TLS on this port): %w", nc.RemoteAddr(), err)
	}
	return fmt.Errorf("new connection to %s: %w", nc.RemoteAddr(), err)
}

// Write begins a request, on a new connection if this one is not usable, or
// goes on with it.
func (c *conn) Write(p []byte) (int, error) {
	c.bound.Begin()
	if !c.asked {
		if err := c.begin(); err != nil {
			return 0, c.server.brokeOff(err)
		}
	}
	n, err := c.Conn.Write(p)
	if err != nil {
		err = c.server.brokeOff(err)
	}
	return n, err
}

// begin sees to a usable connection and sets the deadline for the answer.
func (c *conn) begin() error {
	start := time.Now()
	if err := c.Conn.SetDeadline(start.Add(c.server.silence)); err != nil {
		return err
	}
	if c.timeouts != c.server.timeouts.Load() || !isQuiet(c.below) {
		_ = c.Conn.Close()
		ctx, cancel := context.WithDeadline(context.Background(), start.Add(c.server.timeout))
		defer cancel()
		if err := c.open(ctx); err != nil {
			return err
		}
		left := min(c.server.silence, c.server.timeout-time.Since(start))
		if err := c.Conn.SetDeadline(time.Now().Add(left)); err != nil {
			return err
		}
	}
	c.asked = true
	return nil
}

func (c *conn) Read(p []byte) (int, error) {
	c.asked = false
	n, err := c.Conn.Read(p)
	if wrong := c.bound.Check(p[:n]); wrong != nil {
		n, err = 0, wrong
	}
	if err != nil {
		err = c.server.brokeOff(err)
	}
	return n, err
}

// SetDeadline does nothing: a request's deadline is set when it begins, and is
// not moved by the lines of its answer.
func (c *conn) SetDeadline(time.Time) error { return nil }

// isQuiet reports whether an idle connection is open and has no bytes to read, as
// it should between two requests.
func isQuiet(nc net.Conn) bool {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	var quiet bool
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, err := syscall.Read(int(fd), b[:]) // sockets of package net never block
		quiet = errors.Is(err, syscall.EAGAIN)
		return true
	})
	return err == nil && quiet
}
