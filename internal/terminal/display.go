package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// Display is a terminal that one text fills.
type Display struct {
	// Keys are the keys that the person types: a character, or the sequence of a key such as
	// Up. It is closed when no more can come.
	Keys   <-chan string
	Out    io.Writer
	Size   func() (width, height int)
	Colors Colors
}

// Keys without a character, as terminals send them (ECMA-48; VT100 for the cursor).
const (
	Up, Down         = "\x1b[A", "\x1b[B"
	PageUp, PageDown = "\x1b[5~", "\x1b[6~"
	Enter, Escape    = "\r", "\x1b"
	Backspace, CtrlC = "\x7f", "\x03"
)

// Line is a line of the screen. Paint colours it; nil leaves it as it is.
type Line struct {
	Text  string
	Paint func(string) string
}

const (
	otherScreen = "\x1b[?1049h\x1b[?25l" // a screen of its own, without a cursor
	ownScreen   = "\x1b[?25h\x1b[?1049l"
	firstLine   = "\x1b[H"
	eraseBelow  = "\x1b[J"
	eraseRight  = "\x1b[K"
)

// OpenDisplay takes over the terminal of in and out. The function restores it.
func OpenDisplay(in, out *os.File) (*Display, func(), error) {
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, nil, fmt.Errorf("the terminal: %w", err)
	}
	_, _ = io.WriteString(out, otherScreen)
	d := &Display{Keys: keys(in), Out: out, Colors: ColorsFor(out), Size: func() (int, int) { return size(out) }}
	return d, func() {
		_, _ = io.WriteString(out, ownScreen)
		_ = term.Restore(int(in.Fd()), before)
	}, nil
}

// keys sends the keys that the person types. The channel is closed when in ends.
func keys(in io.Reader) <-chan string {
	typed := make(chan string)
	go func() {
		defer close(typed)
		var buffer [64]byte
		rest := 0 // bytes of a character that is not complete
		for {
			n, err := in.Read(buffer[rest:])
			if err != nil {
				return
			}
			text := string(buffer[:rest+n])
			for text != "" && (utf8.FullRuneInString(text) || len(text) == len(buffer)) {
				key := firstKey(text)
				text = text[len(key):]
				typed <- normal(key)
			}
			rest = copy(buffer[:], text)
		}
	}()
	return typed
}

// firstKey is the first key of what was read at once. A terminal sends the sequence of a key
// at once, so an escape at the end is the key itself.
func firstKey(text string) string {
	if len(text) > 2 && (strings.HasPrefix(text, "\x1b[") || strings.HasPrefix(text, "\x1bO")) {
		for i := 2; i < len(text); i++ {
			if text[i] >= '@' && text[i] <= '~' {
				return text[:i+1]
			}
		}
		return text
	}
	_, size := utf8.DecodeRuneInString(text)
	return text[:size]
}

// normal has one form for keys that terminals send in two.
func normal(key string) string {
	switch {
	case key == "\n":
		return Enter
	case key == "\b":
		return Backspace
	case strings.HasPrefix(key, "\x1bO"): // the cursor in application mode
		return "\x1b[" + key[2:]
	}
	return key
}

// Draw writes the whole screen over the last one: the lines, and the line at the foot.
func (d *Display) Draw(lines []Line, foot string) {
	width, height := d.Size()
	lines = lines[:min(len(lines), max(1, height-1))]
	var b strings.Builder
	b.WriteString(firstLine)
	for _, line := range lines {
		text := cut(line.Text, width)
		if line.Paint != nil {
			text = line.Paint(text)
		}
		b.WriteString(text + eraseRight + "\r\n")
	}
	b.WriteString(eraseBelow + d.Colors.Dim(cut(foot, width-1)))
	_, _ = io.WriteString(d.Out, b.String())
}
