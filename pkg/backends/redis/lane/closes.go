package lane

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"syscall"
	"time"
)

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
