package terminal

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"example.org/rls/internal/pace"
)

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
