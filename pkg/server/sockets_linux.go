package server

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// userTimeout sets TCP_USER_TIMEOUT on a listener, which its connections
// inherit: the system closes a connection whose client acknowledges nothing for
// that time. grpc-go sets it too, but only on connections that are not wrapped.
func userTimeout(fd int) error {
	return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(takeWithin.Milliseconds()))
}

// listenPrivate listens on a Unix socket of the mode 0600. The mode is set before bind
// creates the file, so that nobody else can open the socket in between.
func listenPrivate(path string) (net.Listener, error) {
	return listenUnix(net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) error {
		return control(conn, func(fd int) error { return syscall.Fchmod(fd, 0o600) })
	}}, path)
}
