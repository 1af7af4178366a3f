package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"example.org/rls/tools/launch"
)

// program is a service that is compared.
type program struct {
	name, path string
	// start gives the command its settings, and returns the path on the HTTP port
	// that is answered when the program is ready. The ports are of Redis, gRPC, HTTP
	// and debugging.
	start func(cmd *exec.Cmd, dir string, ports [4]int) string
	// silent: replies do not say which limit counted.
	silent bool
	// while, if not nil, runs while requests are measured. The ports are those of start.
	while func(ports [4]int) error
}

// asRatelimit starts this program and envoyproxy/ratelimit, both under the name
// ratelimit.
func asRatelimit(cmd *exec.Cmd, dir string, ports [4]int) string {
	cmd.Args[0] = "ratelimit"
	cmd.Env = append(os.Environ(),
		"BACKEND_TYPE=redis", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+launch.Loopback(ports[0]),
		"RUNTIME_ROOT="+dir, "RUNTIME_SUBDIRECTORY=", "RUNTIME_APPDIRECTORY=config", "RUNTIME_WATCH_ROOT=false",
		"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
		fmt.Sprintf("GRPC_PORT=%d", ports[1]), fmt.Sprintf("PORT=%d", ports[2]), fmt.Sprintf("DEBUG_PORT=%d", ports[3]),
		"USE_STATSD=false", "LOG_LEVEL=error", "DRAIN_PERIOD=0s")
	return "/healthcheck"
}

// asLimitador starts limitador 2 with every hit counted in Redis.
func asLimitador(cmd *exec.Cmd, dir string, ports [4]int) string {
	cmd.Args = append(cmd.Args,
		"--rls-ip", "127.0.0.1", "--rls-port", strconv.Itoa(ports[1]),
		"--http-ip", "127.0.0.1", "--http-port", strconv.Itoa(ports[2]),
		filepath.Join(dir, limitsFile), "redis", "redis://"+launch.Loopback(ports[0]))
	return "/status"
}

const limitsFile = "limits.yaml"
