package memcached_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/memcached"
)

// newFake is a server that knows `version`, and answers each other request as *answer says,
// again and again if endless; "" is the answer of a memcached that has no item.
func newFake(t *testing.T, answer *atomic.Pointer[string], endless *atomic.Bool) (addr string) {
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
				for in := bufio.NewScanner(c); in.Scan(); {
					text := *answer.Load()
					switch verb, _, _ := strings.Cut(in.Text(), " "); {
					case verb == "version":
						_, err = io.WriteString(c, "VERSION 1.6\r\n")
						continue
					case text != "":
					case verb == "gets":
						text = "END\r\n"
					case verb == "incr":
						text = "1\r\n"
					case verb == "add":
						if !strings.HasSuffix(in.Text(), "noreply") {
							text = "STORED\r\n"
						}
						in.Scan() // the item
					}
					_, err := io.WriteString(c, text)
					for endless.Load() && err == nil {
						_, err = io.WriteString(c, strings.Repeat(text, 1+1<<16/len(text)))
					}
					if err != nil {
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

// TestAnswersThatNoCommandHas: such an answer closes the connection, counts as a failure of
// the server and takes little memory; afterwards the store decides as before.
func TestAnswersThatNoCommandHas(t *testing.T) {
	for name, c := range map[string]struct {
		answer  string
		endless bool
	}{
		"a huge item":                  {"VALUE k 0 4000000000 1\r\n", false},
		"a huge item, key with a tab":  {"VALUE k\tb 0 4000000000 1\r\n", false},
		"an item whose size is no one": {"VALUE k 0 -1 1\r\n", false},
		"items without end":            {"VALUE k 0 1000000 1\r\n" + strings.Repeat("x", 1000000) + "\r\n", true},
		"a line without end":           {"1", true},
	} {
		for verb, max := range map[string]int64{"incr": -1, "gets": 10} {
			t.Run(verb+"/"+name, func(t *testing.T) {
				var answer atomic.Pointer[string]
				var endless atomic.Bool
				answer.Store(&c.answer)
				endless.Store(c.endless)
				watch := &breaker.Watch{}
				s := open(t, memcached.Options{Servers: []string{newFake(t, &answer, &endless)}, Watch: watch})
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				err := s.Apply(t.Context(), batch(hit("k", 1, max)))
				runtime.ReadMemStats(&after)
				said := "an answer that no command has"
				if verb == "incr" && name == "items without end" {
					said = "invalid syntax" // of the first line, which is read alone
				}
				if !errors.Is(err, backends.ErrUnavailable) || !strings.Contains(err.Error(), said) {
					t.Errorf("%v, want an error that names the answer", err)
				}
				if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 300 {
					t.Errorf("the answer took %d MiB", took)
				}
				if watch.Away() == 0 && strings.HasPrefix(said, "an answer") {
					t.Error("the server's first answer was wrong, and its breaker is closed")
				}
				right := ""
				endless.Store(false)
				answer.Store(&right)
				testenv.Eventually(t, 10*time.Second, func() bool { return s.Apply(t.Context(), batch(hit("k", 1, max))) == nil }, "the store decides again")
			})
		}
	}
}
