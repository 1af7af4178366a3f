//go:build !(linux || darwin || freebsd || netbsd || openbsd)

package server

import "syscall"

// reusePort does nothing: the system does not share ports between processes.
func reusePort(syscall.RawConn) error { return nil }
