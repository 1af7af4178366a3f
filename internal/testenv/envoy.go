package testenv

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// EnvoyServer is a running Envoy. Its Addr is the admin interface.
type EnvoyServer struct {
	*Server
}

var adminClient = &http.Client{Timeout: 5 * time.Second}

// Envoy starts an Envoy with a bootstrap configuration and returns when it is
// live. The configuration says nothing about the admin interface and gives its
// listeners port 0; ask Listener for their addresses.
func Envoy(t testing.TB, configYAML string) *EnvoyServer {
	t.Helper()
	config := filepath.Join(t.TempDir(), "envoy.yaml")
	if err := os.WriteFile(config, []byte(configYAML), 0o600); err != nil {
		t.Fatalf("testenv: configure Envoy: %v", err)
	}
	return &EnvoyServer{start(t, program{
		name: "envoy",
		args: []string{
			"--config-path", config,
			"--config-yaml", "{admin: {address: {socket_address: {address: 127.0.0.1, port_value: {port}}}}}",
			"--admin-address-path", "{ready}",
			"--disable-hot-restart", "--concurrency", "1", "--log-level", "warning",
			"--component-log-level", "rate_limit_quota:debug", // nothing else tells of assignments
		},
		ready: func(s *Server) bool {
			// Envoy writes the file once it has its admin port. The file proves that
			// /ready is answered by this process and by no other one.
			if !s.wroteReady() {
				return false
			}
			_, err := admin(s, "/ready")
			return err == nil
		},
	})}
}

// Listener returns the host:port of the listener with the given name. It
// changes when Envoy is restarted.
func (e *EnvoyServer) Listener(name string) string {
	e.t.Helper()
	text := e.Admin("/listeners") // lines such as "name::127.0.0.1:4711"
	for line := range strings.Lines(text) {
		if listener, addr, _ := strings.Cut(strings.TrimSpace(line), "::"); listener == name {
			return addr
		}
	}
	e.t.Fatalf("testenv: Envoy has no listener %q: %s", name, text)
	return ""
}

// Admin returns the answer of the admin interface to a GET, such as
// "/stats?filter=ratelimit".
func (e *EnvoyServer) Admin(path string) string {
	e.t.Helper()
	text, err := admin(e.Server, path)
	if err != nil {
		e.t.Fatalf("testenv: Envoy's admin interface: %v", err)
	}
	return text
}

func admin(s *Server, path string) (string, error) {
	resp, err := adminClient.Get("http://" + s.Addr + path)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("GET %s: %s: %s", path, resp.Status, body)
	}
	return string(body), nil
}
