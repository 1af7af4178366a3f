//go:build !linux

package server

import "syscall"

// userTimeout does nothing: only Linux has it.
func userTimeout(syscall.RawConn) error { return nil }
