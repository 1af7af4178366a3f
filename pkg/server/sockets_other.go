//go:build !linux

package server

import (
	"net"
	"os"
)

// userTimeout does nothing: only Linux has TCP_USER_TIMEOUT.
func userTimeout(int) error { return nil }

// listenPrivate listens on a Unix socket of the mode 0600. Until the mode is set, the
// umask of the process holds.
func listenPrivate(path string) (net.Listener, error) {
	l, err := listenUnix(net.ListenConfig{}, path)
	if err != nil {
		return nil, err
	}
	return l, os.Chmod(path, 0o600)
}
