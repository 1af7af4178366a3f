package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrPortInUse says that another process has a port and one of the two does not
// share it (SO_REUSEPORT).
var ErrPortInUse = errors.New("another process has the port")

// listenTCP opens a host:port; port 0 takes a free one.
func (s *Server) listenTCP(addr string) (net.Listener, error) {
	config := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) error {
		return control(conn, func(fd int) error {
			if !s.options.SharePorts {
				return userTimeout(fd)
			}
			return errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1), userTimeout(fd))
		})
	}}
	config.SetMultipathTCP(false) // Multipath TCP has no TCP_USER_TIMEOUT
	l, err := config.Listen(context.Background(), "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("%w: %w", err, ErrPortInUse)
	}
	return l, err
}

// control changes the socket of conn, which is not bound yet.
func control(conn syscall.RawConn, change func(fd int) error) (err error) {
	failed := conn.Control(func(fd uintptr) { err = change(int(fd)) })
	return errors.Join(failed, err)
}

// listening notes an open listener. It fails if another listener of this process has
// the address: with SO_REUSEPORT the system lets two of them share one, as it does for
// two processes, and deals out connections among them.
func (s *Server) listening(l *listener) error {
	s.open = append(s.open, l)
	tcp, ok := l.Addr().(*net.TCPAddr)
	for _, other := range s.open[:len(s.open)-1] {
		has, too := other.Addr().(*net.TCPAddr)
		if ok && too && has.Port == tcp.Port && (covers(has.IP, tcp.IP) || covers(tcp.IP, has.IP)) {
			return fmt.Errorf("%s: listen on %v: the %s listener of this process has %v, want another port", l.name, tcp, other.name, has)
		}
	}
	return nil
}

// covers reports whether a listener on a gets connections to b. IPv6's
// unspecified address includes the addresses of IPv4.
func covers(a, b net.IP) bool {
	return a.Equal(b) || a.IsUnspecified() && (a.To4() == nil || b.To4() != nil)
}

func listenUnix(config net.ListenConfig, path string) (net.Listener, error) {
	if err := removeDeadSocket(path); err != nil {
		return nil, err
	}
	l, err := config.Listen(context.Background(), "unix", path)
	const max = len(syscall.RawSockaddrUnix{}.Path) - 1 // bytes; a zero byte ends the path
	if errors.Is(err, syscall.EINVAL) && len(path) > max {
		return nil, fmt.Errorf("listen unix %s: path of %d bytes, want at most %d", path, len(path), max)
	}
	return l, err
}

// removeDeadSocket removes a socket on which no process listens: a process that was
// killed left it behind. It leaves alone everything else at the path; a file that is not a
// socket is an error.
func removeDeadSocket(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the error of listening explains the problem, if there is one
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("listen unix %s: a file that is not a socket is there, want another path", path)
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		_ = conn.Close()
		return nil
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return os.Remove(path)
	}
	return err
}
