package testenv

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
)

const (
	// startAttempts bounds how often a server is started on another port
	// because it ended before it was ready.
	startAttempts = 5
	startTimeout  = 20 * time.Second
	stopTimeout   = 5 * time.Second
	// logShown is how much of the end of a failed test's server log is shown.
	logShown = 8 << 10
)

// Server is one running server process. Its methods are for the test's
// goroutine only.
type Server struct {
	// Addr is the host:port at which the server accepts connections. It
	// stays the same across Restart.
	Addr string

	t       testing.TB
	program program
	dir     string
	port    int
	cmd     *exec.Cmd
	done    chan struct{} // closed when the process has ended
	logFrom int64         // where in the log this process's lines begin
}

// program is how a kind of server is run.
type program struct {
	name string // of its binary
	// args and env may contain {port}, {dir}, and {ready}: a file that some programs
	// write when they are ready. It is removed before each start.
	args []string
	env  []string
	// ready reports whether the process accepts connections. It must not
	// mistake another process on the same port for this one.
	ready func(s *Server) bool
}

// start runs p on a free port, in a new directory. With -short it skips the test instead.
func start(t testing.TB, p program) *Server {
	t.Helper()
	if testing.Short() {
		t.Skipf("with -short no test starts %s", p.name)
	}
	s := &Server{t: t, program: p, dir: t.TempDir()}
	t.Cleanup(func() {
		if s.cmd != nil {
			s.Kill() // faster than Stop; its data is not needed
		}
		if t.Failed() {
			t.Logf("log of %s at %s:\n%s", p.name, s.Addr, s.tail())
		}
	})
	var err error
	for range startAttempts {
		s.port = FreePort(t)
		s.Addr = loopback(s.port)
		if err = s.launch(); err == nil {
			return s
		}
	}
	t.Fatalf("testenv: start %s: %v\n%s", p.name, err, s.tail())
	return nil
}

// launch starts the process and waits until it is ready.
func (s *Server) launch() error {
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the process has its own descriptor
	if s.logFrom, err = log.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	if err := os.RemoveAll(s.readyFile()); err != nil {
		return err
	}

	fill := strings.NewReplacer("{port}", strconv.Itoa(s.port), "{dir}", s.dir, "{ready}", s.readyFile())
	args := make([]string, len(s.program.args))
	for i, arg := range s.program.args {
		args[i] = fill.Replace(arg)
	}
	cmd := exec.Command(Binary(s.t, s.program.name), args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	cmd.Env = os.Environ()
	for _, e := range s.program.env {
		cmd.Env = append(cmd.Env, fill.Replace(e))
	}
	if err := Start(cmd); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(done)
	}()
	s.cmd, s.done = cmd, done

	ready := Poll(startTimeout, func() bool { return s.ended() || s.program.ready(s) })
	switch {
	case s.ended():
		return fmt.Errorf("ended at once: %v", cmd.ProcessState)
	case !ready:
		s.Kill()
		return fmt.Errorf("not ready within %v", startTimeout)
	}
	return nil
}

// Pid returns the process id of the last process started.
func (s *Server) Pid() int { return s.cmd.Process.Pid }

// Pause freezes the process: its port stays open and connections stay up, but
// nothing is answered until Resume.
func (s *Server) Pause() {
	s.t.Helper()
	Freeze(s.t, s.cmd.Process)
}

// Resume lets a paused process go on.
func (s *Server) Resume() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		s.t.Fatalf("testenv: resume %s: %v", s.program.name, err)
	}
}

// Freeze stops a process and returns when its threads have stopped. Where there is
// no /proc it does not wait for them.
func Freeze(t testing.TB, process *os.Process) {
	t.Helper()
	if err := process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatalf("testenv: stop process %d: %v", process.Pid, err)
	}
	Eventually(t, stopTimeout, func() bool {
		threads, _ := procfs.AllThreads(process.Pid) // none without /proc
		return !slices.ContainsFunc(threads, func(thread procfs.Proc) bool {
			stat, err := thread.Stat()
			return err == nil && stat.State != "T"
		})
	}, "the process stands still")
}

// Kill ends the process without warning and returns when it is gone.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill() // fails only if the process has ended
	<-s.done
}

// Stop asks the process to end, paused or not, and returns when it is gone.
func (s *Server) Stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // these fail only if
	_ = s.cmd.Process.Signal(syscall.SIGCONT) // the process has ended
	select {
	case <-s.done:
	case <-time.After(stopTimeout):
		s.Kill()
	}
}

// Restart stops the server if it runs and starts it again on the same port,
// empty, and returns when it is ready.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	if err := s.launch(); err != nil {
		s.t.Fatalf("testenv: restart %s at %s: %v\n%s", s.program.name, s.Addr, err, s.tail())
	}
}

func (s *Server) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

func (s *Server) readyFile() string { return filepath.Join(s.dir, "testenv.ready") }

// wroteReady reports whether the running process has written its file {ready}.
func (s *Server) wroteReady() bool {
	_, err := os.Stat(s.readyFile())
	return err == nil
}

func (s *Server) logFile() string { return filepath.Join(s.dir, "testenv.log") }

// Logged reports whether the running process has written the texts to its log, in their order.
func (s *Server) Logged(texts ...string) bool {
	log, err := os.ReadFile(s.logFile())
	if err != nil {
		return false
	}
	log = log[s.logFrom:]
	for _, text := range texts {
		var found bool
		if _, log, found = bytes.Cut(log, []byte(text)); !found {
			return false
		}
	}
	return true
}

// tail returns the end of the log.
func (s *Server) tail() string {
	log, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-logShown):])
}
