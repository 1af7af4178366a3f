// Package scripts runs the program as people do at a prompt: the transcripts in testdata
// have its commands, and what they print.
package scripts

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"github.com/rogpeppe/go-internal/testscript"

	"example.org/rls/internal/testenv"
	"example.org/rls/internal/testenv/controlplane"
)

const patience = 20 * time.Second

// programs is the folder with the program under each of its names.
var programs string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if programs, err = os.MkdirTemp("", "rls-scripts-"); err == nil {
			defer func() { _ = os.RemoveAll(programs) }()
			err = build()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "scripts:", err)
			return 1
		}
		return m.Run()
	}())
}

// build builds the program, with the race detector if the test is built with it.
func build() error {
	var flags []string
	if race {
		// As make test builds the packages, so that they are compiled once.
		flags = []string{"-race", "-pgo=off"}
		if err := os.Setenv("CGO_ENABLED", "1"); err != nil {
			return err
		}
	}
	if _, err := testenv.BuildService(programs, flags...); err != nil {
		return err
	}
	for _, name := range []string{"ratelimit", "ratelimit_config_check"} {
		if err := os.Symlink("rls", filepath.Join(programs, name)); err != nil {
			return err
		}
	}
	return nil
}

// TestScripts runs the transcripts in testdata against the real program and real servers.
func TestScripts(t *testing.T) {
	redis, memcached, certs := testenv.Redis(t), testenv.Memcached(t), testenv.Certs(t)
	xds, plane := controlplane.NewPort(t), controlplane.New(t, "dry-run")
	plane.Set("1", &ratelimit.RateLimitConfig{Name: "a", Domain: "a", Descriptors: []*ratelimit.RateLimitDescriptor{
		{Key: "user", RateLimit: &ratelimit.RateLimitPolicy{Unit: ratelimit.RateLimitUnit_HOUR, RequestsPerUnit: 1}},
	}})
	xds.Serve(plane)
	silent := testenv.NewRelay(t, redis.Addr)
	silent.Freeze()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", programs+string(filepath.ListSeparator)+env.Getenv("PATH"))
			env.Setenv("REDIS_ADDR", redis.Addr)
			env.Setenv("MEMCACHED_ADDR", memcached.Addr)
			env.Setenv("XDS_ADDR", xds.Addr)
			env.Setenv("SILENT_ADDR", silent.Addr)
			for _, name := range []string{"PORT", "GRPC_PORT", "DEBUG_PORT", "ADMIN_PORT", "FREE_PORT"} {
				env.Setenv(name, strconv.Itoa(testenv.FreePort(t)))
			}
			for name, file := range map[string]string{
				"CA": certs.CAFile, "SERVER_CERT": certs.ServerCertFile, "SERVER_KEY": certs.ServerKeyFile,
				"CLIENT_CERT": certs.ClientCertFile, "CLIENT_KEY": certs.ClientKeyFile,
			} {
				env.Setenv(name, file)
			}
			env.Setenv("DRAIN_PERIOD", "0s")
			// A program that is built with the race detector sleeps for a second before it exits.
			env.Setenv("GORACE", "atexit_sleep_ms=10")
			_, taken, _ := strings.Cut(redis.Addr, ":")
			env.Setenv("TAKEN_PORT", taken)
			for _, name := range []string{"HOST", "GRPC_HOST", "DEBUG_HOST"} {
				env.Setenv(name, "127.0.0.1")
			}
			return nil
		},
		// http STATUS URL [FILE] gets the URL, or posts the file to it, and prints
		// the body; await repeats that until the status is right, and scrape
		// PATTERN URL until a line of the body matches; terminate sends SIGTERM to
		// the processes in the background, and hangup SIGHUP.
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"http":      func(ts *testscript.TestScript, neg bool, args []string) { httpCmd(ts, neg, args, false) },
			"await":     func(ts *testscript.TestScript, neg bool, args []string) { httpCmd(ts, neg, args, true) },
			"scrape":    scrapeCmd,
			"terminate": func(ts *testscript.TestScript, _ bool, _ []string) { signalAll(ts, syscall.SIGTERM) },
			"hangup":    func(ts *testscript.TestScript, _ bool, _ []string) { signalAll(ts, syscall.SIGHUP) },
		},
	})
}

func signalAll(ts *testscript.TestScript, signal syscall.Signal) {
	for _, cmd := range ts.BackgroundCmds() {
		ts.Check(cmd.Process.Signal(signal))
	}
}

func httpCmd(ts *testscript.TestScript, neg bool, args []string, await bool) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: http|await STATUS URL [FILE]")
	}
	var status int
	var body string
	var err error
	answered := func() bool {
		status, body, err = fetch(ts, args[1:])
		return err == nil && strconv.Itoa(status) == args[0]
	}
	if !answered() && !(await && testenv.Poll(patience, answered)) {
		ts.Fatalf("want %s, got %d %s %v", args[0], status, body, err)
	}
	fmt.Fprint(ts.Stdout(), body)
}

func scrapeCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: scrape PATTERN URL")
	}
	pattern := regexp.MustCompile("(?m)" + args[0])
	var body string
	if !testenv.Poll(patience, func() bool {
		_, body, _ = fetch(ts, args[1:])
		return pattern.MatchString(body)
	}) {
		ts.Fatalf("no %s in\n%s", args[0], body)
	}
}

func fetch(ts *testscript.TestScript, args []string) (int, string, error) {
	method, body := http.MethodGet, []byte(nil)
	if len(args) > 1 {
		method, body = http.MethodPost, []byte(ts.ReadFile(args[1]))
	}
	req, err := http.NewRequest(method, args[0], bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(got), err
}
