package redis_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends/redis"
)

// closing has the fake close connections at commands, and counts these.
func (f *fake) closing(commands ...string) *atomic.Int64 {
	var n atomic.Int64
	f.set(func(command []string) string {
		if slices.Contains(commands, command[0]) {
			n.Add(1)
			return closed
		}
		if command[0] == "auth" || command[0] == "select" {
			return "+OK\r\n"
		}
		return ""
	})
	return &n
}

// TestServersThatCloseAtACommand: as twemproxy does. The store does without HELLO, TIME and
// the write before a probe.
func TestServersThatCloseAtACommand(t *testing.T) {
	server := newFake(t)
	for name, url := range map[string]string{"plain": server.addr, "password and database": "redis://user:secret@" + server.addr + "/3"} {
		t.Run(name, func(t *testing.T) {
			closed := server.closing("hello", "time", "setrange", "client", "info", "script", "readonly")
			watch, log := watched()
			s := open(t, redis.Options{URL: url, Watch: watch})
			must(t, s, hit("a"))
			testenv.Eventually(t, 10*time.Second, func() bool { return len(log.With("refuses to tell its time")) == 1 }, "the log says that TIME is refused")
			n := closed.Load()
			for range 100 {
				must(t, s, hit("a"))
			}
			if now := closed.Load(); now != n {
				t.Errorf("%d more connections were closed", now-n)
			}
			server.closing("incrby", "setrange")
			testenv.Eventually(t, 10*time.Second, func() bool {
				_, _ = try(s, time.Second, hit("a"))
				return watch.Away() > 0
			}, "the server is away")
			server.closing("hello", "time", "setrange")
			testenv.Eventually(t, 10*time.Second, func() bool {
				_, err := try(s, time.Second, hit("a"))
				return err == nil && watch.Away() == 0
			}, "the server is back, although it closes at the write before a probe")
		})
	}
}

// TestServersThatCloseAtLogin: the store never does without AUTH and SELECT.
func TestServersThatCloseAtLogin(t *testing.T) {
	for _, at := range []string{"auth", "select"} {
		t.Run(at, func(t *testing.T) {
			server := newFake(t)
			closed := server.closing(at)
			s := open(t, redis.Options{URL: "redis://:secret@" + server.addr + "/3"})
			testenv.Eventually(t, 10*time.Second, func() bool {
				if _, err := try(s, time.Second, hit("a")); err == nil {
					t.Fatal("a call succeeded without " + strings.ToUpper(at))
				}
				return closed.Load() > 6
			}, "the store goes on asking")
		})
	}
}

// TestOneCloseAtHello: a server that closes once is asked again, and so is a new server.
func TestOneCloseAtHello(t *testing.T) {
	server := newFake(t)
	var hellos atomic.Int64
	server.set(func(command []string) string {
		if command[0] == "hello" && hellos.Add(1) == 1 {
			return closed
		}
		return ""
	})
	must(t, open(t, redis.Options{URL: server.addr}), hit("a"))
	if n := hellos.Load(); n < 2 {
		t.Errorf("the server was asked %d times", n)
	}
}
