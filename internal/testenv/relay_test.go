package testenv_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
)

// caller is a connection to a Redis through a relay.
type caller struct {
	net.Conn
	in *bufio.Reader
}

func dial(t *testing.T, addr string) *caller {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &caller{c, bufio.NewReader(c)}
}

// ping waits for the answer to a PING.
func (c *caller) ping(within time.Duration) error {
	_ = c.SetDeadline(time.Now().Add(within))
	if _, err := io.WriteString(c, "PING\r\n"); err != nil {
		return err
	}
	return c.pong()
}

func (c *caller) pong() error {
	answer, err := c.in.ReadString('\n')
	if err == nil && answer != "+PONG\r\n" {
		return errors.New(answer)
	}
	return err
}

const silence = 100 * time.Millisecond // long enough for an answer that does come

func TestRelay(t *testing.T) {
	server := testenv.Redis(t)
	for name, test := range map[string]func(*testing.T, *testenv.Relay, *caller){
		"passes everything on": func(t *testing.T, r *testenv.Relay, c *caller) {
			var seen atomic.Int64
			r.Watch(func(b []byte) { seen.Add(int64(len(b))) })
			if err := c.ping(patience); err != nil || seen.Load() != int64(len("PING\r\n")) || r.Opened() != 1 {
				t.Errorf("%v, %d bytes, %d connections", err, seen.Load(), r.Opened())
			}
		},
		"freezes": func(t *testing.T, r *testenv.Relay, c *caller) {
			r.Freeze()
			late := dial(t, r.Addr)
			for _, c := range []*caller{c, late} {
				if err := c.ping(silence); !os.IsTimeout(err) {
					t.Errorf("frozen: %v, want a timeout", err)
				}
			}
			r.Heal()
			for _, c := range []*caller{c, late} {
				_ = c.SetDeadline(time.Now().Add(patience))
				if err := c.pong(); err != nil {
					t.Errorf("healed: %v", err)
				}
			}
		},
		"forgets": func(t *testing.T, r *testenv.Relay, c *caller) {
			r.Forget()
			if err := c.ping(silence); !os.IsTimeout(err) {
				t.Errorf("forgotten: %v, want a timeout", err)
			}
			if err := dial(t, r.Addr).ping(patience); err != nil {
				t.Errorf("a new connection: %v", err)
			}
			r.Heal()
			if err := c.ping(silence); !os.IsTimeout(err) {
				t.Errorf("healed: %v, want a timeout: its peer is gone", err)
			}
		},
		"is a black hole": func(t *testing.T, r *testenv.Relay, c *caller) {
			r.BlackHole()
			r.BlackHole() // twice is once
			if err := c.ping(silence); !os.IsTimeout(err) {
				t.Errorf("an open connection: %v, want a timeout", err)
			}
			for range 3 {
				if late, err := net.DialTimeout("tcp", r.Addr, silence); !os.IsTimeout(err) {
					t.Errorf("a new connection: %v %v, want a timeout", late, err)
				}
			}
			r.Heal()
			if err := dial(t, r.Addr).ping(patience); err != nil {
				t.Errorf("healed: %v", err)
			}
		},
		"cuts replies": func(t *testing.T, r *testenv.Relay, c *caller) {
			r.CutEvery(3)
			for i := 1; i <= 9; i++ {
				err := c.ping(patience)
				if lost := i%3 == 0; lost != errors.Is(err, syscall.ECONNRESET) || !lost && err != nil {
					t.Errorf("reply %d: %v", i, err)
				} else if lost {
					c = dial(t, r.Addr)
				}
			}
		},
		"delays": func(t *testing.T, r *testenv.Relay, c *caller) {
			const delay, jitter = 20 * time.Millisecond, 10 * time.Millisecond
			r.Slow(delay, jitter)
			for range 10 {
				start := time.Now()
				if err := c.ping(patience); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(start); took < 2*(delay-jitter) {
					t.Errorf("an answer after %v", took)
				}
			}
			testenv.Within(t, 20*delay, func() bool {
				for range 100 {
					_, _ = io.WriteString(c, "PING\r\n")
				}
				for range 100 {
					if err := c.pong(); err != nil {
						t.Fatal(err)
					}
				}
				return true
			}, "100 requests are delayed at the same time, and answered")
		},
		"leads to another server": func(t *testing.T, r *testenv.Relay, c *caller) {
			r.To(testenv.Memcached(t).Addr)
			if err := dial(t, r.Addr).ping(patience); err == nil {
				t.Error("a memcached answers PONG")
			}
			if err := c.ping(patience); err != nil {
				t.Errorf("an open connection: %v", err)
			}
		},
		"ends with its sides": func(t *testing.T, r *testenv.Relay, _ *caller) {
			server := testenv.Redis(t)
			r.To(server.Addr)
			c := dial(t, r.Addr)
			if err := c.ping(patience); err != nil {
				t.Fatal(err)
			}
			server.Kill()
			_ = c.SetDeadline(time.Now().Add(patience))
			if _, err := c.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
				t.Errorf("after the server's end: %v", err)
			}
			late, err := net.DialTimeout("tcp", r.Addr, patience)
			if err == nil {
				_ = late.SetDeadline(time.Now().Add(patience))
				_, err = late.Read(make([]byte, 1))
				_ = late.Close()
			}
			if err == nil || os.IsTimeout(err) {
				t.Errorf("without a server: %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := testenv.NewRelay(t, server.Addr)
			c := dial(t, r.Addr)
			if err := c.ping(patience); err != nil {
				t.Fatal(err)
			}
			test(t, r, c)
		})
	}
}
