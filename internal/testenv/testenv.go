// Package testenv starts the real servers that tests use: Redis, Valkey,
// memcached, Redis Cluster, Redis Sentinel and Envoy. Its Relay is a network in
// front of a server that tests break.
//
// It promises that every server listens on a free loopback port, keeps its
// files under the test's temporary directory, persists nothing, is ready when
// the constructor returns, is stopped when the test ends (also when it was
// paused), shows its log when the test failed, and does not outlive the test
// binary (Linux). A server that cannot be started fails the test: nothing is
// ever skipped.
//
// It leaves the installation of the servers' binaries to `make tools`, and the
// requests to a server to the test.
package testenv

import (
	"bytes"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Eventually polls cond every few milliseconds and fails the test with msg if
// it has not become true within timeout. Cond runs on the calling goroutine.
func Eventually(t testing.TB, timeout time.Duration, cond func() bool, msg string) {
	t.Helper()
	if !Poll(timeout, cond) {
		t.Fatalf("not within %v: %s", timeout, msg)
	}
}

// Poll calls cond until it is true or timeout has passed, and reports which.
// The condition is tried at least once, and once more after the deadline, so
// that a machine that stalls does not turn a late success into a failure.
func Poll(timeout time.Duration, cond func() bool) bool {
	const pause = 5 * time.Millisecond
	for deadline := time.Now().Add(timeout); ; time.Sleep(pause) {
		if cond() {
			return true
		}
		if time.Now().After(deadline) {
			return cond()
		}
	}
}

const (
	lowestPort = 10_000
	shares     = 5 // of the ports, one for a test process
	shareSize  = 2_000
)

var (
	portsMu    sync.Mutex
	portsGiven = map[int]bool{}
)

// share returns the lowest of the ports that this process takes. The processes of
// tests that run at once take different shares, until there are more processes than
// shares. A socket in Linux's abstract namespace marks a share. It goes with its
// process; until then the result of the first call keeps it open.
var share = sync.OnceValues(func() (low int, mark net.Listener) {
	for i := range shares {
		if l, err := net.Listen("unix", fmt.Sprintf("@rls-testenv-%d", i)); err == nil {
			return lowestPort + i*shareSize, l
		}
	}
	return lowestPort + rand.IntN(shares)*shareSize, nil
})

// FreePort returns a loopback TCP port on which nobody listens and which this
// process has not been given before. It and the port 10,000 above it (Redis
// Cluster's bus) lie below the range from which systems take the local ports
// of outgoing connections, and outside of the shares of other test processes, so
// that a server that is down for a while finds its ports free when it comes back.
//
// Another process may still take the port first; the constructors of this
// package then try again with another one.
func FreePort(t testing.TB) int {
	t.Helper()
	const attempts = 1000
	portsMu.Lock()
	defer portsMu.Unlock()
	low, _ := share()
	for range attempts {
		port := low + rand.IntN(shareSize)
		if portsGiven[port] {
			continue
		}
		l, err := net.Listen("tcp", loopback(port))
		if err != nil {
			continue
		}
		_ = l.Close()
		portsGiven[port] = true
		return port
	}
	t.Fatalf("testenv: no free port between %d and %d in %d attempts", low, low+shareSize, attempts)
	return 0
}

func loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// Binary returns the path of a server's binary, from the repository's
// .tools/bin or else from PATH. If it is in neither, Binary says so in one line and ends
// the process, so that the package fails without a message of each of its tests.
func Binary(t testing.TB, name string) string {
	t.Helper()
	if dir, err := os.Getwd(); err == nil {
		for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
			if path, err := exec.LookPath(filepath.Join(dir, ".tools", "bin", name)); err == nil {
				return path
			}
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s is not installed: `make tools` installs the servers that tests start\n", name)
		os.Exit(1)
	}
	return path
}

// BuildService builds cmd/rls, with flags of go build if there are any, and returns its
// path, dir/rls.
func BuildService(dir string, flags ...string) (string, error) {
	// In its own folder, with its own go.mod, also if the test is in another module.
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "example.org/rls").Output()
	if err != nil {
		return "", fmt.Errorf("find the module of cmd/rls: %w", err)
	}
	path, err := filepath.Abs(filepath.Join(dir, "rls"))
	if err != nil {
		return "", err
	}
	build := exec.Command("go", slices.Concat([]string{"build", "-o", path}, flags, []string{"./cmd/rls"})...)
	build.Dir = strings.TrimSpace(string(module))
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build cmd/rls: %w\n%s", err, out)
	}
	return path, nil
}

// Random returns random numbers for any number of goroutines. The log of the test names
// their seed; TEST_SEED in the environment sets it.
func Random(t testing.TB) *rand.Rand {
	t.Helper()
	seed, err := strconv.ParseUint(os.Getenv("TEST_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	t.Logf("TEST_SEED=%d", seed)
	return rand.New(&source{pcg: rand.NewPCG(seed, 0)})
}

type source struct {
	mu  sync.Mutex
	pcg *rand.PCG
}

func (s *source) Uint64() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pcg.Uint64()
}

// Between returns a random number from low to high, inclusive. Small distances from
// low are as likely as large ones, and one number in four is low or high itself.
// The range has at most 2^63-1 numbers.
func Between(r *rand.Rand, low, high int64) int64 {
	switch r.IntN(8) {
	case 0:
		return low
	case 1:
		return high
	}
	reach := uint64(high - low)
	return low + int64(r.Uint64N(min(reach, 1<<r.IntN(bits.Len64(reach)+1))+1))
}

// OneOf returns one of some values.
func OneOf[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

// Log is a log that a test reads while it is written. The zero Log is empty. It
// is safe for concurrent use.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String is the log so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// With returns the lines that contain text.
func (l *Log) With(text string) []string {
	var found []string
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}
