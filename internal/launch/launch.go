// Package launch starts programs that need each other, for what `make demo`
// and `make compare` show: it waits until each can be talked to, notices when
// one ends, and ends them all.
//
// It leaves the servers of tests to internal/testenv.
package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

// Group is programs that run together.
type Group struct {
	// Context is done when one of them has ended: its cause says which, how,
	// and what it said.
	Context context.Context
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
}

// NewGroup returns a group of nobody yet. The end of ctx asks all to end.
func NewGroup(ctx context.Context) *Group {
	ctx, cancel := context.WithCancelCause(ctx)
	return &Group{Context: ctx, cancel: cancel}
}

// Command is a program to Start.
func (g *Group) Command(path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(g.Context, path, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTimeout
	return cmd
}

// Start starts a program. What it says is kept for the cause of its end,
// unless cmd has a place for it.
func (g *Group) Start(cmd *exec.Cmd) error {
	var said bytes.Buffer
	if cmd.Stdout == nil && cmd.Stderr == nil {
		cmd.Stdout, cmd.Stderr = &said, &said
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	g.running.Go(func() {
		_ = cmd.Wait() // told by its state
		g.cancel(errors.New(strings.TrimSpace(fmt.Sprintf("%s ended: %v\n%s", cmd.Path, cmd.ProcessState, said.Bytes()))))
	})
	return nil
}

// Answers waits until url is answered 200 OK.
func (g *Group) Answers(url string) error {
	return g.until(url+" answers", func(ctx context.Context) bool {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// Listens waits until a program takes connections at addr.
func (g *Group) Listens(addr string) error {
	return g.until(addr+" takes connections", func(ctx context.Context) bool {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err != nil {
			return false
		}
		_ = conn.Close()
		return true
	})
}

func (g *Group) until(what string, ready func(context.Context) bool) error {
	ctx, cancel := context.WithTimeoutCause(g.Context, StartTimeout, fmt.Errorf("not within %v: %s", StartTimeout, what))
	defer cancel()
	pause := time.NewTicker(20 * time.Millisecond)
	defer pause.Stop()
	for !ready(ctx) {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Stop ends all and returns when they are gone.
func (g *Group) Stop() {
	g.cancel(nil)
	g.running.Wait()
}

// FreePort returns a loopback port that nobody has just now.
func FreePort() (int, error) {
	listener, err := net.Listen("tcp", Loopback(0))
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// Loopback is the address of a port on the loopback.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
