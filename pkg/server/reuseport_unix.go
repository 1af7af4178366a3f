//go:build linux || darwin || freebsd || netbsd || openbsd

package server

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// reusePort sets SO_REUSEPORT, with which a second process can listen on the same
// port and take over before the first one ends.
func reusePort(conn syscall.RawConn) error {
	return setOption(conn, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
}

func setOption(conn syscall.RawConn, level, name, value int) (err error) {
	if controlErr := conn.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), level, name, value)
	}); controlErr != nil {
		return controlErr
	}
	return err
}
