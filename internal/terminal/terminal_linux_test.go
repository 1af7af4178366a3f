package terminal

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"example.org/rls/internal/testenv"
)

func TestColors(t *testing.T) {
	_, screen := testenv.Terminal(t)
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	const red = "\x1b[31mno\x1b[0m"
	for _, test := range []struct {
		name, noColor, term string
		w                   *os.File
		want                string
	}{
		{"a terminal", "", "xterm", screen, red},
		{"NO_COLOR", "1", "xterm", screen, "no"},
		{"a terminal without colours", "", "dumb", screen, "no"},
		{"a file", "", "xterm", file, "no"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("NO_COLOR", test.noColor)
			t.Setenv("TERM", test.term)
			if got := ColorsFor(test.w).Red("no"); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	if got := ColorsFor(&strings.Builder{}).Red("no"); got != "no" {
		t.Errorf("in memory: got %q", got)
	}
}

// The line appears after a second, is cut to the width of the terminal, and goes.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var screen strings.Builder
		begun := time.Now()
		stop := progress(&screen, func() (int, int) { return 6, 1 }, func() string {
			return fmt.Sprintf("%.0fs, and so on", time.Since(begun).Seconds())
		})
		<-time.After(2500 * time.Millisecond)
		stop()
		stop()
		if want := "\r\x1b[K1s, a\r\x1b[K2s, a\r\x1b[K"; screen.String() != want {
			t.Errorf("got %q, want %q", screen.String(), want)
		}
	})
}

func TestProgressOfShortWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var screen strings.Builder
		stop := progress(&screen, func() (int, int) { return 80, 24 }, func() string { return "busy" })
		<-time.After(900 * time.Millisecond)
		stop()
		if screen.Len() > 0 {
			t.Errorf("shown: %q", screen.String())
		}
	})
}

// A file gets no progress, and text is not called.
func TestProgressInFile(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	synctest.Test(t, func(t *testing.T) {
		stop := Progress(file, func() string { t.Error("text was called"); return "" })
		<-time.After(2 * time.Second)
		stop()
	})
}

// person is the other end of a terminal.
type person struct {
	t      *testing.T
	master *os.File
	shown  chan string
	seen   string
}

func (p *person) read() {
	defer close(p.shown)
	var buffer [4096]byte
	for {
		n, err := p.master.Read(buffer[:])
		if err != nil {
			return
		}
		p.shown <- string(buffer[:n])
	}
}

func (p *person) sees(want string) {
	p.t.Helper()
	for late := time.After(20 * time.Second); !strings.Contains(p.seen, want); {
		select {
		case more := <-p.shown:
			p.seen += more
		case <-late:
			p.t.Fatalf("no %q in %q", want, p.seen)
		}
	}
}

func (p *person) types(key string) {
	p.t.Helper()
	if _, err := p.master.WriteString(key); err != nil {
		p.t.Fatal(err)
	}
}

func (p *person) resizes(width, height uint16) {
	p.t.Helper()
	if err := unix.IoctlSetWinsize(int(p.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height}); err != nil {
		p.t.Fatal(err)
	}
}

// redrawn runs Redraw on a terminal until the test is done with it. The error comes from the channel.
func redrawn(t *testing.T, text func(ctx context.Context, width, height int) string) (*person, *os.File, <-chan error) {
	master, end := testenv.Terminal(t)
	p := &person{t: t, master: master, shown: make(chan string, 1000)}
	p.resizes(20, 5)
	go p.read()
	ended := make(chan error, 1)
	go func() { ended <- Redraw(t.Context(), end, end, text) }()
	return p, end, ended
}

// The text is drawn anew each second, in the size that the terminal has by then, until q. Other
// keys do nothing, and the terminal is as it was before.
func TestRedraw(t *testing.T) {
	var drawn atomic.Int64
	p, end, ended := redrawn(t, func(_ context.Context, width, height int) string {
		return fmt.Sprintf("%dx%d number %d\n", width, height, drawn.Add(1))
	})
	p.sees("\x1b[H\x1b[J20x5 number 1")
	p.types("\x1b[Ax\r")
	p.sees("\x1b[H\x1b[J20x5 number 2")
	raw := lineMode(t, end)
	p.resizes(30, 6)
	p.sees("\x1b[H\x1b[J30x6 number ")
	p.types("q")
	if err := <-ended; err != nil {
		t.Error(err)
	}
	p.sees(ownScreen)
	if raw || !lineMode(t, end) {
		t.Error("want keys at once while it is drawn, and lines afterwards")
	}
}

// lineMode reports whether the terminal gives lines to the program, and not each key.
func lineMode(t *testing.T, end *os.File) bool {
	t.Helper()
	mode, err := unix.IoctlGetTermios(int(end.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return mode.Lflag&unix.ICANON != 0
}

// A person who quits does not wait for the text, and does not see it.
func TestRedrawEndsWhileTheTextIsAwaited(t *testing.T) {
	for _, key := range []string{"q", "\x03"} {
		asked := make(chan struct{})
		p, _, ended := redrawn(t, func(ctx context.Context, _, _ int) string {
			close(asked)
			<-ctx.Done()
			return "late\n"
		})
		<-asked
		p.types(key)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		p.sees(ownScreen)
		if strings.Contains(p.seen, "late") {
			t.Errorf("%q: shown: %q", key, p.seen)
		}
	}
}

func TestRedrawEndsWithItsInput(t *testing.T) {
	in, w := io.Pipe()
	_ = w.Close()
	awaitQuit(in)
}

// The screen has the first lines. One that is too long goes on in the next line and takes its place.
func TestFit(t *testing.T) {
	for _, test := range []struct {
		text   string
		height int
		want   string
	}{
		{"", 3, ""},
		{"a\nb\nc\nd\n", 3, "a\r\nb\r\nc"},
		{"12345678\nb\nc\n", 3, "12345678\r\nb\r\nc"},
		{"123456789\nb\nc\n", 3, "123456789\r\nb"},
		{"öööööööö\n\nc", 3, "öööööööö\r\n\r\nc"},
		{"a\n123456789\n", 2, "a"},
		{"\x1b[2J\n", 2, `\x1b[2J`},
	} {
		if got := fit(test.text, 8, test.height); got != test.want {
			t.Errorf("%q on %d lines: got %q, want %q", test.text, test.height, got, test.want)
		}
	}
}

// TestWord: a real shell reads each word as the text.
func TestWord(t *testing.T) {
	for _, text := range []string{"", "a", "plan=free,user=ann", "-n", "it's", "$HOME `id` \"x\" \\", "two  words\n", "*", "~", `[{"key":"a","value":"'"}]`} {
		got, err := exec.Command("sh", "-c", "printf %s "+Word(text)).Output()
		if err != nil || string(got) != text {
			t.Errorf("%q as %s: the shell reads %q, %v", text, Word(text), got, err)
		}
	}
}
