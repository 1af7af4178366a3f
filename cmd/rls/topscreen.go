package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/explain"
	"example.org/rls/pkg/top"
)

// topAsk asks for a table in an order.
type topAsk func(ctx context.Context, by string) (top.Table, asked, error)

// showTop draws the table on a terminal until the person quits or ctx ends. It leaves
// the terminal as it was.
func showTop(ctx context.Context, in, out *os.File, view *topView, ask topAsk) error {
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return fmt.Errorf("the terminal: %w", err)
	}
	defer func() { _ = term.Restore(int(in.Fd()), before) }()
	_, _ = io.WriteString(out, otherScreen)
	defer func() { _, _ = io.WriteString(out, ownScreen) }()
	s := topScreen{view: view, out: out, colors: terminal.ColorsFor(out), size: func() (int, int) {
		width, height, err := term.GetSize(int(out.Fd()))
		if err != nil || width < 1 || height < 1 {
			return 80, 24
		}
		return width, height
	}}
	return s.run(ctx, keys(in), ask)
}

const (
	otherScreen = "\x1b[?1049h\x1b[?25l" // a screen of its own, without a cursor
	ownScreen   = "\x1b[?25h\x1b[?1049l"
	firstLine   = "\x1b[H"
	eraseBelow  = "\x1b[J"
	eraseRight  = "\x1b[K"
)

// keys sends what the person types. The channel is closed when in ends.
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

// topScreen is the table on a terminal.
type topScreen struct {
	view   *topView
	out    io.Writer
	colors terminal.Colors
	size   func() (width, height int)

	table  top.Table
	from   asked
	err    error
	typing bool // the person types a filter
}

type topAnswer struct {
	by    string
	table top.Table
	from  asked
	err   error
}

// run draws the table until the person quits, typed is closed, or ctx ends. The person
// does not wait for a process that does not answer.
func (s *topScreen) run(ctx context.Context, typed <-chan byte, ask topAsk) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan topAnswer, 1)
	asking := false
	next := func() {
		if asking {
			return
		}
		asking = true
		by := s.view.by
		go func() {
			table, from, err := ask(ctx, by)
			answers <- topAnswer{by, table, from, err}
		}()
	}
	tick := time.NewTicker(redraw)
	defer tick.Stop()
	next()
	for {
		s.draw()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			next()
		case a := <-answers:
			asking = false
			if a.by != s.view.by { // the person has chosen another order meanwhile
				next()
				continue
			}
			s.from, s.err = a.from, a.err
			if a.table.Rows != nil {
				s.table = a.table
			}
		case key, open := <-typed:
			if !open || s.press(key) {
				return nil
			}
			if s.table.By != s.view.by {
				next()
			}
		}
	}
}

const (
	ctrlC     = 3
	escape    = 27
	backspace = 127
	ctrlH     = 8
)

// press handles a key, and reports whether it quits.
func (s *topScreen) press(key byte) (quit bool) {
	v := s.view
	if s.typing {
		switch {
		case key == ctrlC:
			return true
		case key == escape:
			s.typing, v.filter = false, ""
		case key == '\r' || key == '\n':
			s.typing = false
		case key == backspace || key == ctrlH:
			_, last := utf8.DecodeLastRuneInString(v.filter)
			v.filter = v.filter[:len(v.filter)-last]
		case key >= ' ':
			v.filter += string([]byte{key}) // a byte of UTF-8
		}
		return false
	}
	switch key {
	case 'q', 'Q', ctrlC:
		return true
	case 'd':
		v.by = "denied"
	case 'h':
		v.by = "hits"
	case 'c':
		v.by = "cost"
	case '/':
		s.typing, v.filter = true, ""
	case escape:
		v.filter = ""
	}
	return false
}

// draw writes the whole screen over the last one.
func (s *topScreen) draw() {
	width, height := s.size()
	var b strings.Builder
	title := fmt.Sprintf("rls top by %s", s.view.by)
	if s.view.rule != "" {
		title += ", rule " + s.view.rule
	}
	if s.from.all > 1 {
		title += fmt.Sprintf(", %d of %d processes", s.from.answered, s.from.all)
	}
	b.WriteString(title + "\n")
	if s.err != nil {
		first, _, _ := strings.Cut(s.err.Error(), "\n")
		b.WriteString(first + "\n")
	}
	if s.table.Rows != nil {
		shown := s.table
		shown.Rows = s.view.rows(&s.table)
		_ = writeTop(&b, &shown, terminal.Colors{})
	} else if s.err == nil {
		b.WriteString("asking…\n")
	}
	foot := "d denied  h hits  c cost  / filter  q quit"
	if s.typing || s.view.filter != "" {
		foot = "filter: " + explain.Visible(s.view.filter)
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	lines = lines[:min(len(lines), max(1, height-1))]
	var screen strings.Builder
	screen.WriteString(firstLine)
	for i, line := range lines {
		if line = narrow(line, width); i == 0 {
			line = s.colors.Bold(line)
		}
		screen.WriteString(line + eraseRight + "\r\n")
	}
	screen.WriteString(eraseBelow + s.colors.Dim(narrow(foot, width-1)))
	_, _ = io.WriteString(s.out, screen.String())
}

// narrow is the part of a line that fits the width.
func narrow(line string, width int) string {
	if runes := []rune(line); len(runes) > width {
		return string(runes[:max(0, width)])
	}
	return line
}
