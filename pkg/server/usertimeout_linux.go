package server

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// userTimeout ends the listener's connections when their client is gone, or
// does not read, while something is to be sent. grpc-go would set it on its
// own, but only on connections that nobody wrapped.
func userTimeout(conn syscall.RawConn) error {
	return setOption(conn, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(takeWithin.Milliseconds()))
}
