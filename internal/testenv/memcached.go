package testenv

import (
	"os"
	"testing"
)

// Memcached starts a memcached. Args are further options; {port} and {dir}
// stand for the server's port and its directory.
func Memcached(t testing.TB, args ...string) *Server {
	t.Helper()
	options := []string{"-l", "127.0.0.1", "-p", "{port}", "-U", "0"}
	if os.Geteuid() == 0 {
		options = append(options, "-u", "root") // it refuses to be root by accident
	}
	return start(t, program{
		name:  "memcached",
		args:  append(options, args...),
		env:   []string{"MEMCACHED_PORT_FILENAME={ready}"}, // written once it listens
		ready: (*Server).wroteReady,
	})
}
