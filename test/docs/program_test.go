package docs_test

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
)

// binary is cmd/rls, built once for all tests of this package.
var binary = sync.OnceValues(func() (string, error) { return testenv.BuildService(binaryDir) })

var binaryDir string

func TestMain(m *testing.M) {
	var err error
	if binaryDir, err = os.MkdirTemp("", "rls-docs-"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(binaryDir)
	os.Exit(code)
}

// program is a running rls with its ports on the loopback.
type program struct {
	http, debug string // URLs
	grpc        string // host:port
}

// serve runs rls until the test ends, with these variables and free ports as its
// whole environment. It returns when rls is healthy.
func serve(t *testing.T, env []string) program {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	port := func() string { return strconv.Itoa(testenv.FreePort(t)) }
	web, grpc, debug := port(), port(), port()
	p := program{http: "http://127.0.0.1:" + web, debug: "http://127.0.0.1:" + debug, grpc: "127.0.0.1:" + grpc}
	cmd := exec.Command(path, "serve")
	cmd.Env = append(append([]string(nil), env...), "HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
		"PORT="+web, "GRPC_PORT="+grpc, "DEBUG_PORT="+debug)
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

// status sends a POST with body to path and returns the HTTP status, 0 without an
// answer.
func (p program) status(path, body string) int {
	resp, err := http.Post(p.http+path, "application/json", strings.NewReader(body))
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode
}

// hit asks /json about a descriptor of one entry and returns the HTTP status.
func (p program) hit(domain, key, value string) int {
	return p.status("/json", `{"domain": "`+domain+`", "descriptors": [{"entries": [{"key": "`+key+`", "value": "`+value+`"}]}]}`)
}

func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
