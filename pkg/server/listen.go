package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
)

// ErrPortInUse says that another process has a port and one of the two does not
// share it (SO_REUSEPORT).
var ErrPortInUse = errors.New("another process has the port")

// listenTCP opens a host:port; port 0 takes a free one.
func (s *Server) listenTCP(addr string) (net.Listener, error) {
	config := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) error {
		if !s.options.SharePorts {
			return userTimeout(conn)
		}
		return errors.Join(reusePort(conn), userTimeout(conn))
	}}
	config.SetMultipathTCP(false) // Multipath TCP has no TCP_USER_TIMEOUT
	l, err := config.Listen(context.Background(), "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("%w: %w", err, ErrPortInUse)
	}
	return l, err
}

// claims are the TCP addresses of this process's own listeners. With
// SO_REUSEPORT the system lets two of them share one, as it does for two
// processes, and deals out connections among them.
type claims []claim

type claim struct {
	name string
	addr *net.TCPAddr
}

// add fails when another listener has the address.
func (c *claims) add(name string, addr net.Addr) error {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return nil
	}
	for _, other := range *c {
		if other.addr.Port == tcp.Port && (covers(other.addr.IP, tcp.IP) || covers(tcp.IP, other.addr.IP)) {
			return fmt.Errorf("%s: listen on %v: the %s listener of this process has %v, want another port", name, tcp, other.name, other.addr)
		}
	}
	*c = append(*c, claim{name, tcp})
	return nil
}

// covers reports whether a listener on a gets connections to b. IPv6's
// unspecified address includes the addresses of IPv4.
func covers(a, b net.IP) bool {
	return a.Equal(b) || a.IsUnspecified() && (a.To4() == nil || b.To4() != nil)
}

func (s *Server) listenGRPC() (net.Listener, error) {
	if path := s.options.GRPC.UnixSocket; path != "" {
		return listenUnix(net.ListenConfig{}, path)
	}
	return s.listenTCP(s.options.GRPC.Address)
}

func (s *Server) listenHTTP(h HTTP) (net.Listener, error) {
	if h.UnixSocket != "" {
		return listenPrivate(h.UnixSocket)
	}
	return s.listenTCP(h.Address)
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
// killed left it behind. It leaves alone everything else at the path.
func removeDeadSocket(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().Type() != fs.ModeSocket {
		return nil // the error of listening explains the problem, if there is one
	}
	if err != nil {
		return err
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
