package testenv_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
)

const patience = 10 * time.Second

// ask sends one line to a server and returns the first line of its answer.
func ask(addr, line string, timeout time.Duration) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, timeout)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, line+"\r\n"); err != nil {
		return "", err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(answer), err
}

// Without the servers a package of tests says so once, and fails.
func TestServersThatAreNotInstalled(t *testing.T) {
	for _, server := range []string{"redis", "again"} {
		t.Run(server, func(t *testing.T) {
			if os.Getenv("RLS_TEST_NO_SERVERS") != "" {
				testenv.Redis(t)
			}
		})
	}
	if os.Getenv("RLS_TEST_NO_SERVERS") != "" {
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Dir, cmd.Env = t.TempDir(), []string{"PATH=", "RLS_TEST_NO_SERVERS=true", "TMPDIR=" + t.TempDir()}
	out, err := cmd.CombinedOutput()
	if want := "redis-server is not installed: `make tools` installs the servers that tests start\n"; err == nil || string(out) != want {
		t.Errorf("%v, want only %sgot %s", err, want, out)
	}
}

func TestServersLiveAndDieOnCommand(t *testing.T) {
	servers := []struct {
		name, question, answer string
		start                  func(testing.TB, ...string) *testenv.Server
	}{
		{"redis", "PING", "+PONG", testenv.Redis},
		{"valkey", "PING", "+PONG", testenv.Valkey},
		{"memcached", "mn", "MN", testenv.Memcached},
	}
	for _, tc := range servers {
		t.Run(tc.name, func(t *testing.T) {
			s := tc.start(t)
			answers := func() bool {
				got, err := ask(s.Addr, tc.question, patience)
				return err == nil && got == tc.answer
			}
			if !answers() {
				t.Fatal("no answer from a server that was just started")
			}

			s.Pause()
			if got, err := ask(s.Addr, tc.question, 100*time.Millisecond); err == nil {
				t.Fatalf("paused server answered %q", got)
			}
			s.Resume()
			if !answers() {
				t.Fatal("no answer after Resume")
			}

			addr, pid := s.Addr, s.Pid()
			s.Kill()
			if _, err := net.Dial("tcp", addr); err == nil {
				t.Fatal("killed server still accepts connections")
			}
			s.Restart()
			if s.Addr != addr || s.Pid() == pid {
				t.Fatalf("Restart: address %s, pid %d; want address %s and a pid other than %d", s.Addr, s.Pid(), addr, pid)
			}
			if !answers() {
				t.Fatal("no answer after Restart")
			}

			s.Pause()
			s.Stop()
			if err := syscall.Kill(s.Pid(), 0); err == nil {
				t.Fatal("the process of a stopped server is still there")
			}
		})
	}
}

func TestServersStopWithTheirTest(t *testing.T) {
	var pid int
	if !t.Run("starts one", func(t *testing.T) { pid = testenv.Redis(t).Pid() }) || pid == 0 {
		return // with -short
	}
	if err := syscall.Kill(pid, 0); err == nil {
		t.Fatalf("server %d outlived the test that started it", pid)
	}
}

func TestFreePortsDiffer(t *testing.T) {
	seen := map[int]bool{}
	for range 200 {
		port := testenv.FreePort(t)
		if seen[port] {
			t.Fatalf("port %d was given twice", port)
		}
		seen[port] = true
	}
}

// orphanage tells the test binary to be the parent that dies.
const orphanage = "TESTENV_ORPHANAGE"

func TestServersDieWithTheTestBinary(t *testing.T) {
	if os.Getenv(orphanage) != "" {
		s := testenv.Redis(t)
		fmt.Printf("\nstarted %d\n", s.Pid())
		if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		select {}
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), orphanage+"=1", "TMPDIR="+t.TempDir())
	out, err := cmd.Output()
	_, started, found := strings.Cut(string(out), "\nstarted ")
	var pid int
	if _, scanErr := fmt.Sscan(started, &pid); !found || scanErr != nil || err == nil {
		t.Fatalf("the dying parent (%v) reported no server:\n%s", err, out)
	}
	testenv.Eventually(t, patience, func() bool { return gone(pid) },
		fmt.Sprintf("server %d dies with the test binary that started it", pid))
}

// gone reports whether a process has ended, reaped or not: who inherits an
// orphan may never wait for it.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(state, "Z")
}
