package server

import (
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"example.org/rls/internal/pace"
)

// guard secures new connections, and bounds how fast a connection's streams may be
// reset. A call that is opened and reset costs the server about as much as a call that
// is answered, and the client nothing (CVE-2023-44487, "rapid reset"); the same holds
// for a call that is opened and followed by a frame that makes the server reset it,
// as a WINDOW_UPDATE of 0 (CVE-2025-8671, "made you reset"). grpc-go bounds only
// how many calls run at once.
//
// The resets of each side have an allowance of their own: a call that exceeds
// its deadline is often reset by both sides and shall not count twice.
type guard struct {
	credentials.TransportCredentials
	options *Options
	// rate is the number of resets per second that each side of a connection may
	// make for any time; guardBurst × rate may come at once. 0 is no bound.
	rate int
}

// guardBurst is how long the resets may exceed the rate.
const guardBurst = 2 * time.Second

var errTooManyReset = errors.New("too many cancelled calls")

// credentials are those of the gRPC listener.
func (s *Server) credentials(o *GRPC) credentials.TransportCredentials {
	creds := insecure.NewCredentials()
	if o.TLS != nil {
		creds = credentials.NewTLS(o.TLS)
	}
	return &guard{creds, &s.options, o.MaxCancellationsPerSecond}
}

// ServerHandshake implements [credentials.TransportCredentials]. It logs why a
// handshake failed, at debug level: anyone who can connect can make it fail.
func (g *guard) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := g.TransportCredentials.ServerHandshake(raw)
	switch {
	case err != nil:
		g.options.Log.Debug("gRPC: TLS handshake failed", "client", raw.RemoteAddr().String(), "error", err.Error())
	case g.rate > 0:
		conn = &guardedConn{Conn: conn, guard: g, in: frames{skip: len(http2.ClientPreface)}, out: frames{answering: true}}
	}
	return conn, info, err
}

// allows reports whether a side of a connection may reset so many more streams now.
func (g *guard) allows(resets int, has *pace.Allowance) bool {
	return has.Take(time.Duration(resets)*time.Second/time.Duration(g.rate), guardBurst)
}

func (g *guard) Clone() credentials.TransportCredentials {
	return &guard{g.TransportCredentials.Clone(), g.options, g.rate}
}

// guardedConn is a connection that is closed with GOAWAY when too many of its
// streams are reset.
type guardedConn struct {
	net.Conn
	guard *guard

	// Of the goroutine that reads.
	in         frames
	byClient   pace.Allowance
	writing    sync.Mutex // guards the fields below, and that frames are written whole
	out        frames
	byServer   pace.Allowance
	saidGoAway bool
}

func (c *guardedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if resets := c.in.pass(p[:n]); resets > 0 && !c.guard.allows(resets, &c.byClient) {
		// The deadline ends a write that the client does not read.
		_ = c.SetWriteDeadline(time.Now().Add(goAwayWithin))
		c.writing.Lock()
		defer c.writing.Unlock()
		c.goAway("cancels too many calls")
		return 0, errTooManyReset
	}
	return n, err
}

func (c *guardedConn) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	n, err := c.Conn.Write(p)
	if resets := c.out.pass(p[:n]); resets > 0 && !c.guard.allows(resets, &c.byServer) {
		_ = c.SetWriteDeadline(time.Now().Add(goAwayWithin))
		c.goAway("makes the server reset too many calls")
		return n, errTooManyReset
	}
	return n, err
}

func (c *guardedConn) SyscallConn() (syscall.RawConn, error) { return socketOf(c.Conn) }

const goAwayWithin = 100 * time.Millisecond

// goAway sends GOAWAY with the reason and closes the connection; it needs
// c.writing. It sends nothing while another frame is half written.
func (c *guardedConn) goAway(why string) {
	if c.saidGoAway {
		return
	}
	c.saidGoAway = true
	c.guard.options.Measure.CutOff()
	c.guard.options.Log.Warn("gRPC: connection closed, its client "+why,
		"client", c.RemoteAddr().String(), "most_per_second", c.guard.rate)
	if c.out.have == 0 && c.out.skip == 0 {
		const anyStream = 1<<31 - 1 // whichever the client opened may have been handled
		_ = http2.NewFramer(c.Conn, nil).WriteGoAway(anyStream, http2.ErrCodeEnhanceYourCalm, []byte(errTooManyReset.Error()))
	}
	_ = c.Close()
}

const (
	headerLen    = 9 // bytes of a frame's header, RFC 9113, section 4.1
	errorCodeLen = 4 // bytes of RST_STREAM's payload, section 6.4
)

// frames finds the RST_STREAM frames in one direction of an HTTP/2 connection.
// http2.Framer cannot do it, because it pulls from a reader and these bytes pass
// by, and http2.ReadFrameHeader, which pulls too, takes twenty times as long.
type frames struct {
	// answering is for the direction from the server: RST_STREAM with NO_ERROR
	// follows a complete answer to a client that goes on sending, and does not
	// count.
	answering bool

	head [headerLen + errorCodeLen]byte
	have int // bytes of head
	skip int // bytes until the next header
}

// pass takes the next bytes and returns how many streams they reset.
func (f *frames) pass(p []byte) (resets int) {
	for len(p) > 0 {
		if f.skip > 0 {
			n := min(f.skip, len(p))
			f.skip, p = f.skip-n, p[n:]
			continue
		}
		want := headerLen
		if f.have >= headerLen {
			want += errorCodeLen
		}
		n := copy(f.head[f.have:want], p)
		f.have, p = f.have+n, p[n:]
		if f.have < want {
			break
		}
		switch {
		case http2.FrameType(f.head[3]) != http2.FrameRSTStream:
			f.have, f.skip = 0, int(f.head[0])<<16|int(f.head[1])<<8|int(f.head[2])
		case want > headerLen: // the error code is there, too
			f.have = 0
			code := http2.ErrCode(binary.BigEndian.Uint32(f.head[headerLen:]))
			if !f.answering || code != http2.ErrCodeNo {
				resets++
			}
		}
	}
	return resets
}
