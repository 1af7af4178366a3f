package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"syscall"
)

func address(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// listenTCP shares the port with other processes of the same user that ask for
// it in the same way. Port 0 takes a free one.
func listenTCP(addr string) (net.Listener, error) {
	config := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) error {
		return errors.Join(reusePort(conn), userTimeout(conn))
	}}
	config.SetMultipathTCP(false) // it has no user timeout
	return config.Listen(context.Background(), "tcp", addr)
}

// claims are the TCP addresses of this process's own listeners. The system
// would let them share one, as it does for two processes, and deal out
// connections among them.
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
			return fmt.Errorf("%s: listen on %v: %s of this process listens on %v, want another port", name, tcp, other.name, other.addr)
		}
	}
	*c = append(*c, claim{name, tcp})
	return nil
}

// covers reports whether who listens on a gets what is sent to b. IPv6's
// unspecified address stands for those of IPv4, too.
func covers(a, b net.IP) bool {
	return a.Equal(b) || a.IsUnspecified() && (a.To4() == nil || b.To4() != nil)
}

func (s *Server) listenGRPC() (_ *handshakes, err error) {
	var l net.Listener
	if path := s.cfg.GRPC.UDS; path != "" {
		l, err = listenUnix(path)
	} else {
		l, err = listenTCP(address(s.cfg.GRPC.Host, s.cfg.GRPC.Port))
	}
	if err != nil {
		return nil, fmt.Errorf("gRPC: %w", err)
	}
	return newHandshakes(l), nil
}

func listenUnix(path string) (net.Listener, error) {
	if err := removeDeadSocket(path); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	const most = len(syscall.RawSockaddrUnix{}.Path) - 1 // bytes; a zero ends it
	if errors.Is(err, syscall.EINVAL) && len(path) > most {
		return nil, fmt.Errorf("listen unix %s: path of %d bytes, want at most %d", path, len(path), most)
	}
	return l, err
}

// removeDeadSocket removes what a process that was killed left behind, and
// nothing else.
func removeDeadSocket(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().Type() != fs.ModeSocket {
		return nil // listening says what is wrong, if anything
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
