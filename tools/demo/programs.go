package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	startTimeout = 20 * time.Second // until a program answers
	stopTimeout  = 5 * time.Second
)

// programs run together.
type programs struct {
	// ctx is done when a program has ended, or when all are told to. Its cause names the program and
	// its exit status.
	ctx     context.Context
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
}

// start starts a program with env added to the environment. It returns when the URL is answered with
// 200 OK. The program gets a SIGTERM when ctx ends.
func (p *programs) start(url string, env []string, path string, args ...string) error {
	cmd := exec.CommandContext(p.ctx, path, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTimeout
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	p.running.Go(func() {
		_ = cmd.Wait() // ProcessState has its result
		p.cancel(fmt.Errorf("%s ended: %v", cmd.Path, cmd.ProcessState))
	})
	late := fmt.Errorf("not within %v: %s answers", startTimeout, url)
	ctx, cancel := context.WithTimeoutCause(p.ctx, startTimeout, late)
	defer cancel()
	for !answers(url) {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func answers(url string) bool {
	client := http.Client{Timeout: startTimeout}
	resp, err := client.Get(url)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// stop ends all programs and returns when they have ended.
func (p *programs) stop() {
	p.cancel(nil)
	p.running.Wait()
}

// freePorts sets each to a port of the loopback that is free at this moment and that it has
// not chosen before. A port that is set already stays if it is free.
func freePorts(each ...*int) error {
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

var chosen sync.Map // the ports that freePorts has chosen

// free reports whether nobody listens on a port.
func free(port int) bool {
	listener, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return false
	}
	_ = listener.Close()
	return true
}

// loopback is the address of a port on the loopback.
func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
