package redis_test

import (
	"bufio"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/redis"
)

// newSlowServer answers each SET, and each INCRBY with 1 after a millisecond. It knows
// no other command.
func newSlowServer(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer func() { _ = c.Close() }()
				for in := bufio.NewReader(c); ; {
					command, err := readCommand(in)
					if err != nil {
						return
					}
					answer := "-ERR unknown command\r\n"
					switch strings.ToLower(command) {
					case "set":
						answer = "+OK\r\n"
					case "pexpire":
						answer = ":1\r\n"
					case "incrby":
						<-time.After(time.Millisecond)
						answer = ":1\r\n"
					}
					if _, err := io.WriteString(c, answer); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		conns.Wait()
	})
	return l.Addr().String()
}

// readCommand reads an array of bulk strings and returns the first.
func readCommand(in *bufio.Reader) (name string, err error) {
	number := func() int {
		var line string
		if err == nil {
			line, err = in.ReadString('\n')
		}
		n, _ := strconv.Atoi(strings.Trim(line, "*$\r\n"))
		return n
	}
	for i := range number() {
		text := make([]byte, number()+len("\r\n"))
		if err == nil {
			_, err = io.ReadFull(in, text)
		}
		if i == 0 {
			name = strings.TrimSpace(string(text))
		}
	}
	return name, err
}

// TestManyCallersOfASlowServer: the server takes longer for the commands of all
// callers than a connection may be silent. Callers that have the time are
// answered.
func TestManyCallersOfASlowServer(t *testing.T) {
	s := open(t, redis.Options{URL: newSlowServer(t), Watch: &breaker.Watch{MaxInFlight: 4096, Slow: 5 * time.Second}})
	var failed atomic.Int64
	var calls sync.WaitGroup
	for range 2000 {
		calls.Go(func() {
			if _, err := try(s, 30*time.Second, hit("a")); err != nil {
				failed.Add(1)
			}
		})
	}
	calls.Wait()
	if n := failed.Load(); n > 0 {
		t.Errorf("%d of 2000 calls failed", n)
	}
}

// TestCommandsBehindASilentServer: commands that wait for a batch fail as soon
// as the batch before them is given up, and are not charged later.
func TestCommandsBehindASilentServer(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redis.Options{URL: server.Addr})
	for range 20 {
		must(t, s, hit("a"))
	}
	server.Pause()
	const callers = 2000
	var calls sync.WaitGroup
	var failed atomic.Int64
	for range callers {
		calls.Go(func() {
			if _, err := try(s, 30*time.Second, hit("waits")); err != nil {
				failed.Add(1)
			}
		})
	}
	testenv.Within(t, time.Second, func() bool { calls.Wait(); return true }, "all calls have ended")
	server.Resume()
	if n := failed.Load(); n != callers {
		t.Errorf("%d of %d calls failed", n, callers)
	}
	// A connection holds one command each until the first batch is given up.
	soon(t, s, hit("a"))
	if n := count(t, s, "waits"); n > 20 {
		t.Errorf("%d calls that failed were charged when the server woke up", n)
	}
}
