package terminal

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// openTerminal returns the program's end of a pseudo-terminal.
func openTerminal(t *testing.T) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no pseudo-terminal: %v", err)
	}
	t.Cleanup(func() { _ = master.Close() })
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	end, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = end.Close() })
	return end
}

func TestColors(t *testing.T) {
	screen := openTerminal(t)
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

// Keys are characters and the sequences of keys, however a terminal sends them.
func TestKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, person := io.Pipe()
		typed := keys(in)
		go func() {
			for _, sent := range []string{"a", "\x1b[A", "\x1bOB", "\x1b", "\x1b[6~x", "\n\b", "\xc3", "\xb6"} {
				_, _ = io.WriteString(person, sent)
			}
			_ = person.Close()
		}()
		var got []string
		for key := range typed {
			got = append(got, key)
		}
		if want := []string{"a", Up, Down, Escape, PageDown, "x", Enter, Backspace, "ö"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
