//go:build !linux

package server

import "syscall"

// userTimeout does nothing: only Linux has TCP_USER_TIMEOUT.
func userTimeout(syscall.RawConn) error { return nil }
