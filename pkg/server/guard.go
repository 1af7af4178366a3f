package server

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/credentials"

	"example.org/rls/pkg/metrics"
)

// guard bounds how fast a connection may cancel the calls that it starts: each
// costs the server about as much as a call that is answered, and the client
// nothing (CVE-2023-44487, "rapid reset"). grpc-go bounds only how many of
// them run at once.
type guard struct {
	credentials.TransportCredentials
	// rate is the cancellations per second that a connection may go on with,
	// > 0; it may have guardBurst of them at once.
	rate    int
	measure *metrics.Metrics
	log     *slog.Logger
}

// guardBurst is how long a connection's cancellations may exceed the rate.
const guardBurst = 2 * time.Second

var errTooManyCancelled = errors.New("too many cancelled calls")

// ServerHandshake implements [credentials.TransportCredentials].
func (g *guard) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := g.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return conn, info, err
	}
	return &guardedConn{Conn: conn, guard: g, in: frames{skip: len(preface)}}, info, nil
}

// Clone implements [credentials.TransportCredentials].
func (g *guard) Clone() credentials.TransportCredentials {
	clone := *g
	clone.TransportCredentials = g.TransportCredentials.Clone()
	return &clone
}

// guardedConn is a connection that is closed with GOAWAY when its client
// cancels too many calls.
type guardedConn struct {
	net.Conn
	guard *guard
	in    frames
	full  time.Time // when the allowance is whole again

	writing sync.Mutex
	out     frames
}

func (c *guardedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if cancelled := c.in.pass(p[:n]); cancelled > 0 && !c.allow(cancelled) {
		c.guard.measure.CutOff()
		c.guard.log.Warn("gRPC: connection closed, its client cancels too many calls",
			"client", c.RemoteAddr().String(), "most_per_second", c.guard.rate)
		c.goAway()
		return 0, errTooManyCancelled
	}
	return n, err
}

func (c *guardedConn) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	n, err := c.Conn.Write(p)
	c.out.pass(p[:n])
	return n, err
}

// SyscallConn implements [syscall.Conn].
func (c *guardedConn) SyscallConn() (syscall.RawConn, error) { return socketOf(c.Conn) }

func (c *guardedConn) allow(cancelled int) bool {
	now := time.Now()
	if c.full.Before(now) {
		c.full = now
	}
	c.full = c.full.Add(time.Duration(cancelled) * time.Second / time.Duration(c.guard.rate))
	return c.full.Sub(now) <= guardBurst
}

// goAway says why and closes the connection. It says nothing where the frame
// would fall into another one.
func (c *guardedConn) goAway() {
	// Ends a write that the client does not read.
	_ = c.SetWriteDeadline(time.Now().Add(goAwayWithin))
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.out.between() {
		_, _ = c.Conn.Write(goAwayFrame(c.in.last))
	}
	_ = c.Close()
}

const (
	preface      = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	goAwayWithin = 100 * time.Millisecond

	// Of RFC 9113, sections 4.1, 6 and 7.
	frameHeader     = 9 // bytes
	typeRSTStream   = 0x3
	typeGoAway      = 0x7
	enhanceYourCalm = 0xb
)

func goAwayFrame(last uint32) []byte {
	const reason = "too many cancelled calls"
	frame := []byte{0, 0, 8 + byte(len(reason)), typeGoAway, 0, 0, 0, 0, 0}
	frame = binary.BigEndian.AppendUint32(frame, last)
	frame = binary.BigEndian.AppendUint32(frame, enhanceYourCalm)
	return append(frame, reason...)
}

// frames follows one direction of an HTTP/2 connection.
type frames struct {
	head [frameHeader]byte
	have int    // bytes of head
	skip int    // bytes until the next head
	last uint32 // highest stream
}

// pass takes the next bytes and returns how many streams they cancel.
func (f *frames) pass(p []byte) (cancelled int) {
	for len(p) > 0 {
		if f.skip > 0 {
			n := min(f.skip, len(p))
			f.skip, p = f.skip-n, p[n:]
			continue
		}
		n := copy(f.head[f.have:], p)
		f.have, p = f.have+n, p[n:]
		if f.have < frameHeader {
			break
		}
		f.have = 0
		f.skip = int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2])
		f.last = max(f.last, binary.BigEndian.Uint32(f.head[5:])&(1<<31-1))
		if f.head[3] == typeRSTStream {
			cancelled++
		}
	}
	return cancelled
}

// between reports whether the bytes so far end where a frame ends.
func (f *frames) between() bool { return f.have == 0 && f.skip == 0 }
