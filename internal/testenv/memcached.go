package testenv

import (
	"os"
	"path/filepath"
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
	// It writes this file once it listens.
	const portFile = "memcached.port"
	return start(t, program{
		name:      "memcached",
		path:      Binary(t, "memcached"),
		args:      append(options, args...),
		env:       []string{"MEMCACHED_PORT_FILENAME=" + filepath.Join("{dir}", portFile)},
		readyFile: portFile,
		ready: func(s *Server) bool {
			_, err := os.Stat(filepath.Join(s.dir, portFile))
			return err == nil
		},
	})
}
