package lane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/pkg/backends/remote"
)

// Dialer opens connections for go-redis and remembers them, so that all can be
// closed at once when the server has become a replica.
type Dialer struct {
	remote.Dialer
	silence time.Duration
	count   *Connections

	opened     atomic.Int64 // connections so far
	generation atomic.Int64 // how often the connections were left
	epoch      time.Time
	lastHeard  atomic.Int64 // when bytes came last on any connection, in ns since epoch

	mu     sync.Mutex
	open   map[*conn]struct{}
	closes map[refusal]closes
}

// NewDialer returns a dialer that counts its connections in count. connecting bounds the
// time for a connection, and for its TLS handshake, which tls configures; nil is plain
// text. A connection on which no bytes come for silence counts as broken.
func NewDialer(connecting, silence time.Duration, tls func() *tls.Config, count *Connections) *Dialer {
	return &Dialer{
		Dialer:  remote.Dialer{Dialer: net.Dialer{Timeout: connecting}, TLS: tls, Handshake: connecting},
		silence: silence, count: count, epoch: time.Now(), open: map[*conn]struct{}{}, closes: map[refusal]closes{},
	}
}

// Connections counts the connections of a store to its servers and sentinels. The zero
// value is ready to use.
type Connections struct{ open, opened atomic.Int64 }

// Count returns how many connections are open now, and how many were opened so far.
func (c *Connections) Count() (open, opened int64) { return c.open.Load(), c.opened.Load() }

// Dial never fails: instead of an error it returns a connection on which every read and
// write fails, so that each batch tries anew. After some failed dials a pool of go-redis
// would try to connect only once a second.
func (d *Dialer) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := d.connect(ctx, network, addr)
	if err != nil {
		return Broken(err), nil
	}
	return c, nil
}

func (d *Dialer) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	generation := d.generation.Load()
	secure, raw, err := d.Connect(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: secure, raw: raw.(syscall.Conn), dialer: d, asked: addr, at: raw.RemoteAddr().String(), bound: remote.Bound{Header: header, MaxBytes: maxAnswers}}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.generation.Load() != generation {
		_ = c.Conn.Close()
		return nil, errors.New("the connections to the server were given up meanwhile")
	}
	d.open[c] = struct{}{}
	d.opened.Add(1)
	d.count.opened.Add(1)
	d.count.open.Add(1)
	return c, nil
}

// leave closes all connections unless that has happened since generation was the
// latest one. Connections that are being opened are closed, too.
func (d *Dialer) leave(generation int64) {
	d.mu.Lock()
	if d.generation.Load() != generation {
		d.mu.Unlock()
		return
	}
	d.generation.Add(1)
	open := d.open
	d.open = map[*conn]struct{}{}
	d.mu.Unlock()
	d.count.open.Add(-int64(len(open)))
	for c := range open {
		_ = c.Conn.Close()
	}
}

// conn is an open connection. Under TLS, too, it gives access to its socket:
// before each use go-redis looks there whether the server has closed it.
type conn struct {
	net.Conn
	raw     syscall.Conn
	dialer  *Dialer
	patient atomic.Bool // it may be silent for any time

	asked   string // the address that was dialled
	at      string // the address of the server
	command string // that was written last, see command
	waiting bool   // nothing has come since
	given   []byte // what Read returns before further bytes of the server
	bound   remote.Bound
}

// Write writes the commands of one exchange, or a part of them. It answers a command in the
// place of a server that closes connections at it.
func (c *conn) Write(b []byte) (int, error) {
	if c.command == "subscribe" { // Read goes on meanwhile
		return c.Conn.Write(b)
	}
	c.bound.Begin()
	c.command, c.waiting = command(b), true
	if alone := c.command == "hello" || c.command == "time"; alone && c.dialer.closesAt(c.at, c.command) {
		c.given = fmt.Appendf(nil, "-ERR unknown command '%s', at which the server closes connections\r\n", c.command)
		c.waiting = false
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// Read returns bytes of answers that a command of the store can have.
func (c *conn) Read(b []byte) (int, error) {
	if shape := wholes[c.command]; shape != nil && len(c.given) == 0 {
		if err := c.readWhole(b, shape); err != nil {
			return 0, err
		}
	}
	if len(c.given) > 0 {
		n := copy(b, c.given)
		c.given = c.given[n:]
		return n, nil
	}
	return c.read(b)
}

// readWhole reads answers to their end into given. It puts nodes of a cluster that have no
// host on the host that was asked.
func (c *conn) readWhole(buffer []byte, shape *regexp.Regexp) error {
	c.bound.Begin()
	var whole []byte
	for len(whole) == 0 || !c.bound.Complete() {
		n, err := c.read(buffer)
		if err != nil {
			return err
		}
		whole = append(whole, buffer[:n]...)
	}
	switch {
	case c.command == "cluster":
		host, _, _ := net.SplitHostPort(c.asked)
		whole = shape.ReplaceAll(whole, fmt.Appendf(nil, "${1}$$%d\r\n%s${2}", len(host), host))
	case !shape.Match(whole):
		return remote.Wrong("%.80q", whole)
	}
	c.given = whole
	return nil
}

// read reads bytes of answers, and notes whether the server has closed at the last command.
func (c *conn) read(b []byte) (n int, err error) {
	n, err = c.receive(b)
	switch {
	case c.waiting && n == 0:
		err = c.dialer.answered(c.at, c.command, err)
	case c.waiting && c.command != "":
		_ = c.dialer.answered(c.at, c.command, nil)
	}
	c.waiting = false
	if wrong := c.bound.Check(b[:n]); wrong != nil {
		return 0, wrong
	}
	return n, err
}

// receive waits for bytes as long as the server may be silent. go-redis' own time-outs are
// for all answers to a pipeline, and go by the wall clock, which may be set.
func (c *conn) receive(b []byte) (n int, err error) {
	if !c.patient.Load() {
		if err := c.Conn.SetReadDeadline(time.Now().Add(c.dialer.silence)); err != nil {
			return 0, err
		}
	}
	if n, err = c.Conn.Read(b); errors.Is(err, os.ErrDeadlineExceeded) {
		// This process may have been stopped (CPU throttling) with the answer at hand.
		if err := c.Conn.SetReadDeadline(time.Now().Add(2 * time.Millisecond)); err != nil {
			return 0, err
		}
		n, err = c.Conn.Read(b)
	}
	if err == nil {
		c.dialer.lastHeard.Store(int64(time.Since(c.dialer.epoch)))
	}
	return n, err
}

// SetReadDeadline ignores t except zero: a Pub/Sub connection to a sentinel has no read
// deadline.
func (c *conn) SetReadDeadline(t time.Time) error {
	if c.patient.Swap(t.IsZero()) != t.IsZero() && t.IsZero() {
		return c.Conn.SetReadDeadline(t)
	}
	return nil
}

func (c *conn) SyscallConn() (syscall.RawConn, error) { return c.raw.SyscallConn() }

func (c *conn) Close() error {
	c.dialer.mu.Lock()
	if _, open := c.dialer.open[c]; open {
		delete(c.dialer.open, c)
		c.dialer.count.open.Add(-1)
	}
	c.dialer.mu.Unlock()
	return c.Conn.Close()
}

// broken is a connection that could not be made.
type broken struct {
	net.Conn // which nobody reads or writes
	err      error
}

// Broken is the connection that failed with err. It hides the type of err: go-redis would
// keep a connection whose error is an answer of a server, such as a sentinel's.
func Broken(err error) net.Conn {
	idle, _ := net.Pipe()
	return broken{idle, errors.New(Explain(err, false).Error())}
}

// IsBroken reports whether c comes from Broken.
func IsBroken(c net.Conn) bool {
	_, is := c.(broken)
	return is
}

func (b broken) Read([]byte) (int, error)  { return 0, b.err }
func (b broken) Write([]byte) (int, error) { return 0, b.err }

// Answered reports whether err is an answer of a server.
func Answered(err error) bool {
	var answer goredis.Error
	return errors.As(err, &answer)
}

// CannotServe reports whether a server answered that it cannot serve now, whatever
// the command: it loads its data, is busy with a script or has no room for the
// client; it refuses the password; it refuses writes, because it is a replica, has
// too few replicas, is full or fails to save; or its cluster is down.
func CannotServe(err error) bool {
	return goredis.IsLoadingError(err) || goredis.HasErrorPrefix(err, "BUSY ") || goredis.IsMaxClientsError(err) ||
		goredis.IsAuthError(err) ||
		goredis.IsReadOnlyError(err) || goredis.IsNoReplicasError(err) || goredis.IsOOMError(err) || goredis.HasErrorPrefix(err, "MISCONF ") ||
		goredis.IsMasterDownError(err) || goredis.IsClusterDownError(err)
}

// Explain adds advice to an error that a wrong setting causes. silent says that
// the server has not answered any call yet.
func Explain(err error, silent bool) error {
	advice := WrongKind(err)
	switch {
	case silent && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)):
		return fmt.Errorf("closed before the first answer (does the server speak TLS on this port? then use TLS or rediss://): %w", err)
	case errors.Is(err, net.ErrClosed):
		return errors.New("no reply in time, or a replica now: connections closed")
	case advice != "" && !strings.Contains(err.Error(), advice):
		return fmt.Errorf("%s: %w", advice, err)
	}
	return err
}

// WrongKind is advice about a server whose answer shows that it is of another kind
// than the store was told; "" if err is no such answer.
func WrongKind(err error) string {
	switch text := err.Error(); {
	case strings.Contains(text, "cluster support disabled"):
		return "the server is not part of a cluster (use type SINGLE)"
	case strings.Contains(text, "unknown command") && strings.Contains(text, "entinel"):
		return "the server is not a sentinel (use the sentinels' port, or type SINGLE)"
	}
	return ""
}

// Proxies such as twemproxy close a connection at a command that they do not know. The store
// can do without HELLO, TIME and SETRANGE: a server that closed enoughCloses connections in
// a row at one of them is not asked it for askAgain.
const (
	enoughCloses = 2
	askAgain     = 10 * time.Minute
)

var dispensable = map[string]bool{"hello": true, "time": true, "setrange": true}

// errAtHello says that the server closed a new connection at HELLO, before any command of
// the store was sent on it.
var errAtHello = errors.New("closed at HELLO")

// refusal is a command at which the server at addr has closed a connection.
type refusal struct{ addr, command string }

type closes struct {
	times int // in a row
	last  time.Time
}

// closesAt reports whether the server at addr, or for "" any server, closes connections at
// the command.
func (d *Dialer) closesAt(addr, command string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for r, c := range d.closes {
		if r.command == command && (addr == "" || r.addr == addr) && c.times >= enoughCloses && time.Since(c.last) < askAgain {
			return true
		}
	}
	return false
}

// answered notes that the server at addr has answered a command, or that err came instead. A
// server that closes at a command that the store needs closes at any command. It returns
// err, as errAtHello if the command was HELLO.
func (d *Dialer) answered(addr, command string, err error) error {
	closed := errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
	if err != nil && !closed {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	r := refusal{addr, command}
	times := d.closes[r].times + 1
	maps.DeleteFunc(d.closes, func(other refusal, c closes) bool {
		return r == other || closed && !dispensable[command] && addr == other.addr || time.Since(c.last) > 2*askAgain
	})
	if closed && dispensable[command] {
		d.closes[r] = closes{times, time.Now()}
	}
	if closed && command == "hello" {
		return fmt.Errorf("%w: %w", errAtHello, err)
	}
	return err
}
