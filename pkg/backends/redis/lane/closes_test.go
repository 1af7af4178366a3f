package lane

import (
	"fmt"
	"io"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestClosesAreBelieved: two in a row, each server and each command for itself, for ten
// minutes; then one more is enough.
func TestClosesAreBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDialer(0, 0, nil, &Connections{})
		want := func(addr, command string, want bool) {
			t.Helper()
			if got := d.closesAt(addr, command); got != want {
				t.Errorf("%s at %s: %v, want %v", command, addr, got, want)
			}
		}
		at := func(addr, command string, err error) { _ = d.answered(addr, command, err) }
		at("a", "hello", io.EOF)
		want("a", "hello", false)
		at("a", "hello", nil)
		at("a", "hello", io.EOF)
		want("a", "hello", false) // not in a row
		at("a", "hello", fmt.Errorf("read: %w", syscall.ECONNRESET))
		want("a", "hello", true)
		want("a", "time", false)
		want("b", "hello", false)
		<-time.After(askAgain) // of the bubble's fake clock
		want("a", "hello", false)
		at("a", "hello", io.EOF)
		want("a", "hello", true)
		at("b", "", io.EOF)
		want("a", "hello", true)
		at("a", "", io.EOF) // it closes at any command
		want("a", "hello", false)
		at("a", "time", syscall.ETIMEDOUT)
		at("a", "time", syscall.ETIMEDOUT)
		want("a", "time", false)
		for i := range 1000 { // addresses come and go
			at(fmt.Sprint(i), "time", io.EOF)
			<-time.After(time.Minute)
		}
		if len(d.closes) > 21 {
			t.Errorf("%d addresses are remembered", len(d.closes))
		}
	})
}

// TestNamesOfCommands: the store recognizes the commands that go-redis writes.
func TestNamesOfCommands(t *testing.T) {
	for name, args := range map[string]string{
		"hello": "*2\r\n$5\r\nhello\r\n$1\r\n3\r\n", "time": "*1\r\n$4\r\ntime\r\n",
		"setrange":                "*4\r\n$8\r\nsetrange\r\n$1\r\nk\r\n$1\r\n0\r\n$0\r\n\r\n",
		"cluster":                 "*2\r\n$7\r\ncluster\r\n$5\r\nslots\r\n",
		"get-master-addr-by-name": "*3\r\n$8\r\nsentinel\r\n$23\r\nget-master-addr-by-name\r\n$1\r\na\r\n",
		"subscribe":               "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n$1\r\nb\r\n",
	} {
		if got := command([]byte(args)); got != name {
			t.Errorf("%q: got %q", args, got)
		}
	}
	for _, part := range []string{"", "*", "*3\r\n$3\r\n", "*12\r\n$5\r\nhello\r\n", "o\r\n$5\r\nhello", "*3\r\n$8\r\nsentinel\r\n$9\r\nsentinels\r\n$1\r\na\r\n", "*3\r\n$3\r\nset\r\n$5\r\nhello\r\n"} {
		if got := command([]byte(part)); got != "" {
			t.Errorf("%q: got %q", part, got)
		}
	}
}
