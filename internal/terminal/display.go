package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// Display is a terminal that one text fills.
type Display struct {
	Keys   <-chan byte // that the person types; closed when no more can come
	Out    io.Writer
	Size   func() (width, height int)
	Colors Colors
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

// keys sends the bytes that the person types. The channel is closed when in ends.
func keys(in io.Reader) <-chan byte {
	typed := make(chan byte)
	go func() {
		defer close(typed)
		var one [1]byte
		for {
			if _, err := in.Read(one[:]); err != nil {
				return
			}
			typed <- one[0]
		}
	}()
	return typed
}

// Draw writes the whole screen over the last one: lines, of which the first is the title,
// and the line at the foot.
func (d *Display) Draw(text, foot string) {
	width, height := d.Size()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	lines = lines[:min(len(lines), max(1, height-1))]
	var b strings.Builder
	b.WriteString(firstLine)
	for i, line := range lines {
		if line = cut(line, width); i == 0 {
			line = d.Colors.Bold(line)
		}
		b.WriteString(line + eraseRight + "\r\n")
	}
	b.WriteString(eraseBelow + d.Colors.Dim(cut(foot, width-1)))
	_, _ = io.WriteString(d.Out, b.String())
}
