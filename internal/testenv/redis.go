package testenv

import "testing"

// Redis starts a redis-server without persistence. In args, further options
// in command-line form, {port} and {dir} stand for the server's port and its
// directory: `"--port", "0", "--tls-port", "{port}"`.
func Redis(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, redisProgram(t, "redis-server", args))
}

// Valkey starts a valkey-server; see Redis.
func Valkey(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, redisProgram(t, "valkey-server", args))
}

func redisProgram(t testing.TB, binary string, args []string) program {
	t.Helper()
	return program{
		name: binary,
		path: Binary(t, binary),
		args: append([]string{
			"--bind", "127.0.0.1", "--port", "{port}", "--dir", "{dir}",
			"--save", "", "--appendonly", "no",
			// Ending does not wait for replicas that tests have paused.
			"--shutdown-timeout", "0",
		}, args...),
		// Whatever the options (TLS, passwords), the log says when it is up.
		ready: func(s *Server) bool { return s.logged("Ready to accept connections") },
	}
}
