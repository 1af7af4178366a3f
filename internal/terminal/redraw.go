package terminal

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
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
