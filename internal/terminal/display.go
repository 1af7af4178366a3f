package terminal

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// Screen is text that fills a terminal and changes. One goroutine calls its methods.
type Screen interface {
	// Ask returns a function that asks for newer content, which may take long and runs in a
	// goroutine of its own. The function that it returns takes the answer in, and reports
	// whether the answer was still wanted; if not, the screen asks anew at once.
	Ask() func(context.Context) (take func() (wanted bool))
	// Press handles a byte that the person typed. It reports whether to ask at once, and
	// whether the person quits.
	Press(key byte) (ask, quit bool)
	// Draw returns the lines, of which the first is the title, and the line at the foot.
	Draw() (text, foot string)
}

// Display is a terminal on which a [Screen] is drawn.
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

// Show draws the screen, and asks for newer content each second, until the person quits,
// Keys is closed, or ctx ends. The person does not wait for an answer.
func (d *Display) Show(ctx context.Context, s Screen) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan func() bool, 1)
	asking := false
	ask := func() {
		if asking {
			return
		}
		asking = true
		question := s.Ask()
		go func() { answers <- question(ctx) }()
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	ask()
	for {
		d.draw(s.Draw())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			ask()
		case take := <-answers:
			asking = false
			if !take() {
				ask()
			}
		case key, open := <-d.Keys:
			if !open {
				return
			}
			now, quit := s.Press(key)
			if quit {
				return
			}
			if now {
				ask()
			}
		}
	}
}

// draw writes the whole screen over the last one.
func (d *Display) draw(text, foot string) {
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
