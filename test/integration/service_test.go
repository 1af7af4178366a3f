package integration

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"example.org/rls/internal/testenv"
)

// patience is how long a test waits for something that has no promised time.
const patience = 20 * time.Second

// service is the running program. Its methods may be called on the test's goroutine
// only, its client on any.
type service struct {
	t      testing.TB
	root   string // RUNTIME_ROOT
	cmd    *exec.Cmd
	ended  chan struct{}
	log    *testenv.Log
	addrs  map[string]string // by listener: gRPC, HTTP, debug
	client pb.RateLimitServiceClient
}

// launch starts the program with rules and settings, and returns as soon as it
// listens. The program gets no other variables of the environment.
func launch(t testing.TB, rules string, settings ...string) *service {
	t.Helper()
	s := begin(t, rules, settings...)
	s.connect()
	return s
}

// begin is launch, but returns as soon as the program runs.
func begin(t testing.TB, rules string, settings ...string) *service {
	t.Helper()
	return beginAs(t, []string{program, "serve"}, rules, settings...)
}

// beginAs is begin with a command that becomes the program.
func beginAs(t testing.TB, command []string, rules string, settings ...string) *service {
	t.Helper()
	s := &service{t: t, root: t.TempDir()}
	if err := os.Mkdir(filepath.Join(s.root, "config"), 0o755); err != nil {
		t.Fatal(err)
	}
	s.write("rules.yaml", rules)
	s.run(command, append([]string{
		"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
		"PORT=0", "GRPC_PORT=0", "DEBUG_PORT=0",
		"RUNTIME_ROOT=" + s.root, "RUNTIME_WATCH_ROOT=false",
		"LOG_LEVEL=info", "LOG_FORMAT=json", "USE_STATSD=false", "DRAIN_PERIOD=0s",
	}, settings...))
	return s
}

// run starts a command, with these variables only, until the test ends.
func (s *service) run(command, env []string) {
	s.t.Helper()
	s.log, s.ended = &testenv.Log{}, make(chan struct{})
	s.cmd = exec.Command(command[0], command[1:]...)
	s.cmd.Dir, s.cmd.Env, s.cmd.Stdout, s.cmd.Stderr = s.root, env, s.log, s.log
	if err := testenv.Start(s.cmd); err != nil {
		s.t.Fatalf("start the program: %v", err)
	}
	go func() {
		_ = s.cmd.Wait() // ProcessState has the outcome
		close(s.ended)
	}()
	s.t.Cleanup(func() {
		_ = s.cmd.Process.Kill() // fails only if it has ended
		<-s.ended
		if s.t.Failed() {
			text := s.log.String()
			s.t.Logf("log of the program:\n%s", text[max(0, len(text)-8<<10):])
		}
	})
}

// connect waits until the program listens.
func (s *service) connect() {
	s.t.Helper()
	testenv.Eventually(s.t, patience, s.listening, "the program listens")
	s.client = s.dial()
}

// dial opens a connection of its own.
func (s *service) dial() pb.RateLimitServiceClient {
	s.t.Helper()
	return pb.NewRateLimitServiceClient(dial(s.t, s.addrs["gRPC"], nil))
}

// dial opens a connection until the test ends, with TLS if it is given one.
func dial(t testing.TB, addr string, secure *tls.Config) *grpc.ClientConn {
	t.Helper()
	creds := insecure.NewCredentials()
	if secure != nil {
		creds = credentials.NewTLS(secure)
	}
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// serve is launch, but returns when the program is healthy.
func serve(t testing.TB, rules string, settings ...string) *service {
	t.Helper()
	s := launch(t, rules, settings...)
	testenv.Eventually(t, patience, s.healthy, "the program is healthy")
	return s
}

// in is the service as part of a subtest.
func (s *service) in(t testing.TB) *service {
	sub := *s
	sub.t = t
	return &sub
}

// write puts a rule file in its place atomically.
func (s *service) write(name, rules string) {
	s.t.Helper()
	written := filepath.Join(s.root, "new")
	if err := os.WriteFile(written, []byte(rules), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(written, filepath.Join(s.root, "config", name)); err != nil {
		s.t.Fatal(err)
	}
}

// logs waits until the log has a text.
func (s *service) logs(text string) {
	s.t.Helper()
	testenv.Eventually(s.t, patience, func() bool { return strings.Contains(s.log.String(), text) }, "the log says "+text)
}

// listening reads from the log where the program listens.
func (s *service) listening() bool {
	select {
	case <-s.ended:
		s.t.Fatalf("the program ended: %v", s.cmd.ProcessState)
	default:
	}
	s.addrs = map[string]string{}
	for line := range strings.Lines(s.log.String()) {
		var entry struct{ For, On string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.On != "" {
			s.addrs[entry.For] = entry.On
		}
	}
	// The admin listener comes before them.
	return s.addrs["gRPC"] != "" && s.addrs["HTTP"] != "" && s.addrs["debug"] != ""
}

func (s *service) healthy() bool {
	code, _ := s.get("HTTP", "/healthcheck")
	return code == http.StatusOK
}

// get sends a GET for a path to a listener.
func (s *service) get(listener, path string) (int, string) {
	s.t.Helper()
	client := http.Client{Timeout: patience}
	resp, err := client.Get("http://" + s.addrs[listener] + path)
	if err != nil {
		s.t.Fatalf("GET %s: %v", path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatalf("GET %s: %v", path, err)
	}
	return resp.StatusCode, string(body)
}

// stat reads one of the program's own metrics.
func (s *service) stat(name string) float64 {
	s.t.Helper()
	_, text := s.get("debug", "/stats")
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(text)
	if found == nil {
		s.t.Fatalf("no metric %s in\n%s", name, text)
	}
	value, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return value
}

// inForce waits until /rlconfig contains a text.
func (s *service) inForce(text string) {
	s.t.Helper()
	testenv.Eventually(s.t, patience, func() bool {
		_, rules := s.get("debug", "/rlconfig")
		return strings.Contains(rules, text)
	}, "rules in force: "+text)
}

// terminate sends SIGTERM.
func (s *service) terminate() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
}

// exitCode waits until the program ends and returns its exit code.
func (s *service) exitCode(within time.Duration) int {
	s.t.Helper()
	select {
	case <-s.ended:
	case <-time.After(within):
		s.t.Fatalf("the program has not ended within %v", within)
	}
	return s.cmd.ProcessState.ExitCode()
}

// ends sends SIGTERM and wants the exit code 0.
func (s *service) ends() {
	s.t.Helper()
	s.terminate()
	if code := s.exitCode(patience); code != 0 {
		s.t.Errorf("exit code %d", code)
	}
}

// within is testenv.Within for a condition that the program brings about.
func (s *service) within(limit time.Duration, cond func() bool, msg string) {
	s.t.Helper()
	testenv.Within(s.t, limit, cond, msg, s.cmd.Process.Pid)
}

// goroutinesIn counts the goroutines that have a function on their stack.
func (s *service) goroutinesIn(function string) int {
	s.t.Helper()
	_, stacks := s.get("debug", "/debug/pprof/goroutine?debug=2")
	return strings.Count(stacks, function+"(")
}
