package docs_test

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
)

// binary is cmd/rls, built once for all tests of this package.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "rls-docs-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "rls")
	out, err := exec.Command("go", "build", "-o", path, "example.org/rls/cmd/rls").CombinedOutput()
	if err != nil {
		_, _ = os.Stderr.Write(out)
	}
	return path, err
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := binary(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// program is a running rls with its ports on the loopback.
type program struct {
	http string // URL
	grpc string // host:port
}

// serve runs rls with nothing but these variables until the test ends.
func serve(t *testing.T, env []string) program {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatalf("build cmd/rls: %v", err)
	}
	port := func() string { return strconv.Itoa(testenv.FreePort(t)) }
	p := program{http: "127.0.0.1:" + port(), grpc: "127.0.0.1:" + port()}
	cmd := exec.Command(path, "serve")
	cmd.Env = append(append([]string(nil), env...),
		"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1", "DEBUG_PORT=0",
		"PORT="+p.http[len("127.0.0.1:"):], "GRPC_PORT="+p.grpc[len("127.0.0.1:"):])
	p.http = "http://" + p.http
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("rls ended: %v\n%s\n%s", err, strings.Join(env, "\n"), log.String())
		}
	})
	testenv.Eventually(t, 20*time.Second, func() bool { return p.status("/healthcheck", "") == http.StatusOK }, "rls is healthy")
	return p
}

// status is that of a request with body to path, 0 when nobody answers.
func (p program) status(path, body string) int {
	resp, err := http.Post(p.http+path, "application/json", strings.NewReader(body))
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode
}

// hit is a request for one descriptor, to /json.
func (p program) hit(domain, key, value string) int {
	return p.status("/json", `{"domain": "`+domain+`", "descriptors": [{"entries": [{"key": "`+key+`", "value": "`+value+`"}]}]}`)
}
