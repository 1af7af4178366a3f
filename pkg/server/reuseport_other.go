//go:build !(linux || darwin || freebsd || netbsd || openbsd)

package server

import "syscall"

// reusePort does nothing: SO_REUSEPORT does not share ports on this system.
func reusePort(syscall.RawConn) error { return nil }
