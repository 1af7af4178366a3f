package server

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// userTimeout sets TCP_USER_TIMEOUT on a listener, which its connections
// inherit: the system closes a connection whose client acknowledges nothing for
// that time. grpc-go sets it too, but only on connections that are not wrapped.
func userTimeout(conn syscall.RawConn) error {
	return setOption(conn, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(takeWithin.Milliseconds()))
}
