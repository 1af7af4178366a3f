// Package launch starts programs that need each other, for `make demo`. It waits until
// each accepts connections, notices when one ends, and ends them all.
//
// internal/testenv does the same for the servers of tests.
package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// StartTimeout is how long a program may take to be ready.
	StartTimeout = 20 * time.Second
	stopTimeout  = 5 * time.Second
)

// Group is a set of programs that run together.
type Group struct {
	// Context is done when a program has ended. Its cause names the program, its
	// exit status and its output.
	Context context.Context
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
}

// NewGroup returns an empty group. When ctx ends, its programs get a SIGTERM.
func NewGroup(ctx context.Context) *Group {
	ctx, cancel := context.WithCancelCause(ctx)
	return &Group{Context: ctx, cancel: cancel}
}

// Command returns a command for Start.
func (g *Group) Command(path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(g.Context, path, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTimeout
	return cmd
}

// Start starts a program and waits until it is ready: until Answers or Listens returns
// for its address. Its output goes to cmd.Stdout and cmd.Stderr; if neither is set, it
// becomes part of the cause of Context.
func (g *Group) Start(cmd *exec.Cmd, ready func(addr string) error, addr string) error {
	var output bytes.Buffer
	if cmd.Stdout == nil && cmd.Stderr == nil {
		cmd.Stdout, cmd.Stderr = &output, &output
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	g.running.Go(func() {
		_ = cmd.Wait() // ProcessState has its result
		g.cancel(errors.New(strings.TrimSpace(fmt.Sprintf("%s ended: %v\n%s", cmd.Path, cmd.ProcessState, output.Bytes()))))
	})
	return ready(addr)
}

// Answers waits until url is answered with 200 OK, for StartTimeout at most.
func (g *Group) Answers(url string) error {
	client := http.Client{Timeout: StartTimeout}
	return g.until(url+" answers", func() bool {
		resp, err := client.Get(url)
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// Listens waits until addr accepts connections, for StartTimeout at most.
func (g *Group) Listens(addr string) error {
	return g.until(addr+" accepts connections", func() bool {
		conn, err := net.DialTimeout("tcp", addr, StartTimeout)
		if err != nil {
			return false
		}
		_ = conn.Close()
		return true
	})
}

func (g *Group) until(what string, ready func() bool) error {
	ctx, cancel := context.WithTimeoutCause(g.Context, StartTimeout, fmt.Errorf("not within %v: %s", StartTimeout, what))
	defer cancel()
	for !ready() {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Stop ends all programs and returns when they have ended.
func (g *Group) Stop() {
	g.cancel(nil)
	g.running.Wait()
}

// FreePorts sets each to a port of the loopback that is free at this moment and that it has
// not chosen before. A port that is set already stays if it is free.
func FreePorts(each ...*int) error {
	for _, port := range each {
		for try := 0; *port == 0 || !free(*port); try++ {
			if try == 1000 {
				return fmt.Errorf("no port from %d to %d is free", lowestPort, highestPort)
			}
			*port = lowestPort + rand.IntN(highestPort-lowestPort+1)
			if _, before := chosen.LoadOrStore(*port, true); before {
				*port = 0
			}
		}
	}
	return nil
}

// Systems take the local ports of outgoing connections from 32768 on, so none of these is
// taken by chance before its program listens.
const lowestPort, highestPort = 30_000, 32_767

var chosen sync.Map // the ports that FreePorts has chosen

// free reports whether nobody listens on a port.
func free(port int) bool {
	listener, err := net.Listen("tcp", Loopback(port))
	if err != nil {
		return false
	}
	_ = listener.Close()
	return true
}

// Loopback returns the address of a port on the loopback.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
