package server

import (
	"errors"
	"net"
	"syscall"
)

// listenPrivate listens on a Unix socket of the mode 0600. The mode is set before bind
// creates the file, so that nobody else can open the socket in between.
func listenPrivate(path string) (net.Listener, error) {
	return listenUnix(net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) error {
		var failed error
		err := conn.Control(func(fd uintptr) { failed = syscall.Fchmod(int(fd), 0o600) })
		return errors.Join(err, failed)
	}}, path)
}
