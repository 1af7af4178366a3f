package page_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
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
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "config"), 0o755), os.WriteFile(filepath.Join(dir, "config", "shop.yaml"), []byte(rules), 0o600)); err != nil {
		t.Fatal(err)
	}
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
	try := regexp.MustCompile(`try:  (\S+) client (--addr 127\.0\.0\.1:\d+ --domain shop --descriptor banner=me)\r\n`)
	testenv.Eventually(t, patience, func() bool { return try.MatchString(seen.String()) }, "a line for the client on the terminal")
	line := try.FindStringSubmatch(seen.String())
	if answer, err := exec.Command(line[1], append([]string{"client"}, strings.Fields(line[2])...)...).CombinedOutput(); err != nil || !strings.Contains(string(answer), "limit 1 per minute") {
		t.Errorf("%s: %v, %s", line[0], err, answer)
	}
	link := regexp.MustCompile(`page: (http://127\.0\.0\.1:\d+/)#link=([A-Z2-7]{26}) \(opens once, within 10 minutes\)`)
	found := link.FindStringSubmatch(seen.String())
	if found == nil {
		t.Fatalf("no link on the terminal: %s", seen.String())
	}
	url, secret := found[1], found[2]

	p := open(t, url+"#link="+secret)
	p.sees("All well")
	p.waits(`!location.href.includes("link") && document.getElementById("who").innerText === ""`) // it may change
	again := open(t, url+"#link="+secret)
	again.sees("This link does not sign in: it was used, or it is older than 10 minutes")
	again.waits(`!location.href.includes("link")`)
	if strings.Contains(log.String(), secret) || strings.Count(seen.String(), secret) != 1 {
		t.Error("the secret of the link is in the log")
	}
}
