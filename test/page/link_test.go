package page_test

import (
	"bytes"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"example.org/rls/internal/testenv"
)

// A process without tokens that is started on a terminal prints a link, which opens the page once.
func TestLinkOfATerminal(t *testing.T) {
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	screen, end := testenv.Terminal(t)
	var seen, log testenv.Log
	go func() {
		var b [4096]byte
		for {
			n, err := screen.Read(b[:])
			if err != nil {
				return
			}
			_, _ = seen.Write(b[:n])
		}
	}()
	port := func() string { return strconv.Itoa(testenv.FreePort(t)) }
	cmd := exec.Command(path, "serve")
	cmd.Env = []string{
		"RUNTIME_ROOT=" + dir, "RUNTIME_WATCH_ROOT=false", "HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
		"USE_STATSD=false", "DRAIN_PERIOD=0s", "LOG_LEVEL=debug", "PORT=" + port(), "GRPC_PORT=" + port(), "DEBUG_PORT=" + port(),
	}
	cmd.Stdout, cmd.Stderr = end, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("rls ended: %v\n%s", err, log.String())
		}
	})
	link := regexp.MustCompile(`page: (http://127\.0\.0\.1:\d+/)#link=([A-Z2-7]{26}) \(opens once, within 10 minutes\)`)
	testenv.Eventually(t, patience, func() bool { return link.MatchString(seen.String()) }, "a link on the terminal")
	found := link.FindStringSubmatch(seen.String())
	url, secret := found[1], found[2]

	p := open(t, url+"#link="+secret)
	p.sees("All well")
	p.waits(`!location.href.includes("link") && document.getElementById("who").innerText === ""`) // it may change
	again := open(t, url+"#link="+secret)
	again.sees("This link does not sign in: it was used, or it is older than 10 minutes")
	again.waits(`!location.href.includes("link")`)
	if strings.Contains(log.String(), secret) || bytes.Count([]byte(seen.String()), []byte(secret)) != 1 {
		t.Error("the secret of the link is in the log")
	}
}
