package terminal

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
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
	done := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for shown := false; ; shown = true {
			select {
			case <-done:
				if shown {
					_, _ = io.WriteString(w, eraseLine)
				}
				return
			case <-ticker.C:
				width, _ := size()
				_, _ = fmt.Fprint(w, eraseLine, Cut(text(), width-1))
			}
		}
	})
	return sync.OnceFunc(func() {
		close(done)
		writing.Wait()
	})
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
