package testenv

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// hole is a listener that drops SYNs, because its queue of connections to accept
// is full. This is what Linux does; other systems may refuse.
type hole struct {
	listener *net.TCPListener
	filled   chan struct{} // closed when the hole is no more

	mu    sync.Mutex
	plugs []net.Conn // fill the queue, or came before it was full
}

// dig makes l a hole.
func dig(l *net.TCPListener) (*hole, error) {
	h := &hole{listener: l, filled: make(chan struct{})}
	// The deadline wakes Accept, which accepts nothing while it has passed.
	if err := errors.Join(l.SetDeadline(time.Now()), h.backlog(0)); err != nil {
		return nil, errors.Join(err, h.fill())
	}
	// The queue is full when a connection waits for an answer to its SYN. Over the
	// loopback the answer comes at once, also on a busy machine.
	const attempts, answer = 10, 50 * time.Millisecond
	for range attempts {
		c, err := net.DialTimeout("tcp", l.Addr().String(), answer)
		if err != nil {
			if os.IsTimeout(err) {
				return h, nil
			}
			return nil, errors.Join(err, h.fill())
		}
		h.keep(c)
	}
	return nil, errors.Join(errors.New("the queue of the listener does not fill"), h.fill())
}

// keep holds c open until the hole is filled.
func (h *hole) keep(c net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.plugs = append(h.plugs, c)
}

// fill has the listener accept connections again. It does nothing without a hole.
func (h *hole) fill() error {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.plugs {
		reset(c)
	}
	defer close(h.filled)
	if err := h.backlog(syscall.SOMAXCONN); err != nil {
		return err
	}
	return h.listener.SetDeadline(time.Time{})
}

// backlog bounds the queue: Linux takes one connection more than n.
func (h *hole) backlog(n int) error {
	raw, err := h.listener.SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) { err = syscall.Listen(int(fd), n) })
	return errors.Join(failed, err)
}
