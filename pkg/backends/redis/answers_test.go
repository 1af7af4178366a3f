package redis_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/redis"
)

// closed and endless, at the end of a fake's answer, have it close the connection, and repeat
// the byte before until the client closes the connection.
const closed, endless = "<closed>", "<endless>"

// fake is a server that answers commands as the test says.
type fake struct {
	addr   string
	answer atomic.Pointer[func(command []string) string] // "" is the answer of a right server
	conns  sync.WaitGroup
}

func newFake(t *testing.T) *fake {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{addr: l.Addr().String()}
	f.set(func([]string) string { return "" })
	f.conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.conns.Go(func() { f.serve(c) })
		}
	})
	t.Cleanup(func() { // after the store has closed its connections
		_ = l.Close()
		f.conns.Wait()
	})
	return f
}

func (f *fake) set(answer func(command []string) string) { f.answer.Store(&answer) }

// to has the fake answer one command.
func (f *fake) to(name, answer string) {
	f.set(func(command []string) string {
		if command[0] == name {
			return answer
		}
		return ""
	})
}

func (f *fake) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	for in := bufio.NewReader(c); ; {
		command, err := readCommand(in)
		if err != nil {
			return
		}
		answer := (*f.answer.Load())(command)
		if answer == "" {
			answer = rightAnswer(command)
		}
		text, close := strings.CutSuffix(answer, closed)
		text, repeat := strings.CutSuffix(text, endless)
		_, err = io.WriteString(c, text)
		for more := strings.Repeat(text[max(0, len(text)-1):], 1<<16); repeat && err == nil; {
			_, err = io.WriteString(c, more)
		}
		if close || err != nil {
			return
		}
	}
}

func rightAnswer(command []string) string {
	switch command[0] {
	case "set":
		return "+OK\r\n"
	case "incrby", "pexpire", "setrange":
		return ":1\r\n"
	case "time":
		now := time.Now()
		return fmt.Sprintf("*2\r\n$10\r\n%d\r\n$1\r\n0\r\n", now.Unix())
	case "ping":
		return "+PONG\r\n"
	}
	return "-ERR unknown command\r\n"
}

func readCommand(in *bufio.Reader) (command []string, err error) {
	number := func() int {
		var line string
		if line, err = in.ReadString('\n'); err != nil {
			return 0
		}
		n, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
		return n
	}
	for range number() {
		text := make([]byte, number()+2)
		if _, failed := io.ReadFull(in, text); failed != nil {
			return nil, failed
		}
		command = append(command, string(text[:len(text)-2]))
	}
	return command, err
}

// allocated calls f and returns how many MiB it has allocated.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) >> 20
}

// wrong is answers that no command has, by name.
var wrong = map[string]string{
	"a huge array":             "*2000000000\r\n",
	"a huge array in an array": "*2\r\n*2000000000\r\n",
	"a huge map":               "%2000000000\r\n",
	"more pairs than numbers":  "%9223372036854775807\r\n",
	"a huge set":               "~2000000000\r\n",
	"a huge push":              ">2000000000\r\n",
	"huge attributes":          "|2000000000\r\n",
	"a huge text":              "$500000000\r\n",
	"a huge verbatim text":     "=500000000\r\n",
	"a huge error":             "!500000000\r\n",
	"a status without end":     "+a" + endless,
	"an error without end":     "-a" + endless,
	"a number without end":     ":1" + endless,
	"a length without end":     "$1" + endless,
	"deep arrays":              strings.Repeat("*1\r\n", 1<<20),
	"deep attributes":          strings.Repeat("|1\r\n", 1<<20),
	"wide and deep":            strings.Repeat("*800000\r\n", 15),
	"a web server's":           "HTTP/1.1 400 Bad Request\r\n",
}

// TestAnswersThatNoCommandHas: such an answer closes the connection, counts as a failure of
// the server and takes little memory; afterwards the store decides as before.
func TestAnswersThatNoCommandHas(t *testing.T) {
	scripted := func() backends.Op {
		op := hit("scripted")
		op.Max = backends.Amount{Whole: 10}
		return op
	}
	for at, op := range map[string]func() backends.Op{
		"hello": func() backends.Op { return hit("a") }, "incrby": func() backends.Op { return hit("a") }, "evalsha": scripted,
	} {
		for name, answer := range wrong {
			t.Run(at+"/"+name, func(t *testing.T) {
				server := newFake(t)
				watch, _ := watched()
				server.to(at, answer) // first, as a new store has its clock measured beside
				s := open(t, redis.Options{URL: server.addr, Watch: watch})
				took := allocated(func() {
					_, err := try(s, 5*time.Second, op())
					if !errors.Is(err, backends.ErrUnavailable) || !strings.Contains(err.Error(), server.addr) || !strings.Contains(err.Error(), "an answer that no command has") {
						t.Errorf("%v, want an error that names the server and the answer", err)
					}
				})
				if took > 100 {
					t.Errorf("the answer took %d MiB", took)
				}
				if watch.Away() == 0 {
					t.Error("the server's first answer was wrong, and its breaker is closed")
				}
				server.set(func([]string) string { return "" })
				soon(t, s, hit("a"))
			})
		}
	}
}

// TestTimeThatNoCommandHas: the measurement of the clock fails, and no more.
func TestTimeThatNoCommandHas(t *testing.T) {
	for name, answer := range wrong {
		t.Run(name, func(t *testing.T) {
			server := newFake(t)
			server.to("time", answer)
			failed := make(chan error, 100)
			took := allocated(func() {
				s := open(t, redis.Options{URL: server.addr, ClockError: func(err error) { failed <- err }})
				must(t, s, hit("a"))
				if err := <-failed; !strings.Contains(err.Error(), "an answer that no command has") {
					t.Error(err)
				}
			})
			if took > 100 {
				t.Errorf("the answer took %d MiB", took)
			}
		})
	}
}

// TestSentinelAnswersThatNoCommandHas: the process goes on, and finds the master when the
// sentinel is right again.
func TestSentinelAnswersThatNoCommandHas(t *testing.T) {
	master := newFake(t)
	host, port, _ := net.SplitHostPort(master.addr)
	right := func(command []string) string {
		switch {
		case command[0] == "sentinel" && command[1] == "get-master-addr-by-name":
			return fmt.Sprintf("*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(host), host, len(port), port)
		case command[0] == "sentinel":
			return "*0\r\n"
		case command[0] == "subscribe":
			return "*3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:1\r\n*3\r\n$9\r\nsubscribe\r\n$20\r\n+replica-reconf-done\r\n:2\r\n"
		}
		return ""
	}
	message := func(payload string) string {
		return fmt.Sprintf("*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$%d\r\n%s\r\n", len(payload), payload)
	}
	type bad struct{ at, answer string }
	all := map[string]bad{
		"no address":        {"get-master-addr-by-name", "*0\r\n"},
		"a host alone":      {"get-master-addr-by-name", "*1\r\n$1\r\na\r\n"},
		"three words":       {"get-master-addr-by-name", "*3\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\n1\r\n"},
		"empty message":     {"subscribe", "*0\r\n"},
		"a number":          {"subscribe", "*1\r\n:1\r\n"},
		"a short message":   {"subscribe", "*2\r\n$7\r\nmessage\r\n$1\r\na\r\n"},
		"no channel":        {"subscribe", "*3\r\n$7\r\nmessage\r\n$-1\r\n$1\r\na\r\n"},
		"no count":          {"subscribe", "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n$1\r\na\r\n"},
		"a name alone":      {"subscribe", right([]string{"subscribe"}) + message("primary")},
		"no port":           {"subscribe", right([]string{"subscribe"}) + message("primary a 1 b")},
		"in the second one": {"subscribe", right([]string{"subscribe"}) + message("other a 1 b 2") + message("primary")},
		"in two parts":      {"subscribe", right([]string{"subscribe"}) + message("primary") + "*3\r\n$7\r\nmess"},
	}
	for name, answer := range wrong {
		for _, at := range []string{"hello", "get-master-addr-by-name", "sentinels", "subscribe"} {
			all[at+"/"+name] = bad{at, answer}
		}
	}
	for name, b := range all {
		t.Run(name, func(t *testing.T) {
			sentinel := newFake(t)
			var came atomic.Int64
			sentinel.set(func(command []string) string {
				if command[0] == b.at || len(command) > 1 && command[1] == b.at {
					came.Add(1)
					return b.answer
				}
				return right(command)
			})
			took := allocated(func() {
				s := open(t, redis.Options{Type: "sentinel", URL: "primary," + sentinel.addr})
				testenv.Eventually(t, 10*time.Second, func() bool {
					_, _ = try(s, time.Second, hit("a"))
					return came.Load() > 0
				}, "the sentinel has given the answer")
				sentinel.set(right)
				soon(t, s, hit("a"))
			})
			if took > 200 {
				t.Errorf("the answers took %d MiB", took)
			}
		})
	}
}

// TestLargeAnswers: the answers of a cluster of 1,000 nodes whose slots are all apart, and of a
// server with many long keys, pass.
func TestLargeAnswers(t *testing.T) {
	server := newFake(t)
	host, port, _ := net.SplitHostPort(server.addr)
	var slots strings.Builder
	slots.WriteString("*16384\r\n")
	for slot := range 16384 {
		fmt.Fprintf(&slots, "*4\r\n:%d\r\n:%d\r\n", slot, slot)
		for node := range 2 {
			at, name := port, strings.Repeat("n", 60)
			if i := 2*(slot%500) + node; i > 0 {
				at = strconv.Itoa(20000 + i)
			}
			fmt.Fprintf(&slots, "*4\r\n$%d\r\n%s\r\n:%s\r\n$40\r\n%040d\r\n*2\r\n$8\r\nhostname\r\n$60\r\n%s\r\n", len(host), host, at, node, name)
		}
	}
	keys := "*2\r\n$1\r\n0\r\n*2000\r\n" + strings.Repeat("$5000\r\n"+strings.Repeat("k", 5000)+"\r\n", 2000)
	server.set(func(command []string) string {
		switch command[0] {
		case "cluster":
			return slots.String()
		case "scan":
			return keys
		}
		return ""
	})
	cluster := openPatiently(t, redis.Options{Type: "cluster", URL: server.addr})
	if _, err := try(cluster, time.Minute, hit("{06S}")); err != nil { // of slot 0
		t.Error(err)
	}
	n := 0
	s := openPatiently(t, redis.Options{URL: server.addr})
	if err := backends.Scan(t.Context(), s, "", func(keys []string) error { n += len(keys); return nil }); err != nil || n != 2000 {
		t.Errorf("%d keys, %v", n, err)
	}
}
