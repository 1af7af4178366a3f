package terminal

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"example.org/rls/internal/pace"
)

const (
	otherScreen = "\x1b[?1049h\x1b[?25l" // a screen of its own, without a cursor
	ownScreen   = "\x1b[?25h\x1b[?1049l"
	eraseScreen = "\x1b[H\x1b[J"
	quits       = "q\x03" // q and Ctrl-C
)

// Redraw fills the terminal of in and out with what text returns for its size, at once and then
// each second, until the person types q or Ctrl-C, in ends, or ctx ends. Then the context of text
// ends, so that the person does not wait for it, and the terminal is as it was before. The reader
// of in goes on until the next key.
func Redraw(ctx context.Context, in, out *os.File, text func(ctx context.Context, width, height int) string) error {
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return fmt.Errorf("the terminal: %w", err)
	}
	_, _ = io.WriteString(out, otherScreen)
	defer func() {
		_, _ = io.WriteString(out, ownScreen)
		_ = term.Restore(int(in.Fd()), before)
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		awaitQuit(in)
	}()
	for range pace.Every(ctx, time.Second) {
		width, height := size(out)
		shown := text(ctx, width, height)
		if ctx.Err() == nil {
			_, _ = io.WriteString(out, eraseScreen+fit(shown, width, height))
		}
	}
	return nil
}

// awaitQuit returns when the person types a key that quits, or in ends.
func awaitQuit(in io.Reader) {
	var typed [64]byte
	for {
		n, err := in.Read(typed[:])
		if err != nil || bytes.ContainsAny(typed[:n], quits) {
			return
		}
	}
}

// fit returns the first lines of text, as many as a screen shows. A line that is longer than the
// screen is wide takes several of the screen's lines.
func fit(text string, width, height int) string {
	var lines []string
	for line := range strings.Lines(text) {
		line = Visible(strings.TrimSuffix(line, "\n"))
		height -= max(1, (utf8.RuneCountInString(line)+width-1)/width)
		if height < 0 {
			break
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\r\n")
}

// Progress shows a line on the terminal w while something takes long: the result of
// text, one second after the call for the first time, and then each second. Stop
// removes the line and returns when nothing more is written. If w is no terminal
// nothing is written, and text is not called. Another goroutine calls text.
func Progress(w io.Writer, text func() string) (stop func()) {
	if !Is(w) {
		return func() {}
	}
	return progress(w, func() (int, int) { return size(w.(*os.File)) }, text)
}

func progress(w io.Writer, size func() (width, height int), text func() string) (stop func()) {
	ctx, done := context.WithCancel(context.Background())
	var writing sync.WaitGroup
	writing.Go(func() {
		shown := 0
		for shown = range pace.Every(ctx, time.Second) {
			if shown > 0 {
				width, _ := size()
				_, _ = fmt.Fprint(w, eraseLine, Cut(text(), width-1))
			}
		}
		if shown > 0 {
			_, _ = io.WriteString(w, eraseLine)
		}
	})
	return func() {
		done()
		writing.Wait()
	}
}

// eraseLine goes to the first column and erases to the end of the line.
const eraseLine = "\r\x1b[K"

// Cut returns the first characters of text, at most maxLength, so that it stays on one line.
func Cut(text string, maxLength int) string {
	if runes := []rune(text); len(runes) > maxLength {
		return string(runes[:max(0, maxLength)])
	}
	return text
}
