package presence_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/rls/pkg/backends/presence"
)

// watch returns a Watch and the lines that it has logged so far.
func watch() (*presence.Watch, func() []string) {
	var out bytes.Buffer
	w := &presence.Watch{Log: slog.New(slog.NewTextHandler(&out, nil)), Role: "main"}
	return w, func() []string { return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n") }
}

func TestOneLineForEachChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, lines := watch()
		s := w.Server("10.0.0.1:6379")
		s.Answered()
		var calls sync.WaitGroup
		for range 8 {
			calls.Go(func() { s.Failed(errors.New("connection refused")) })
		}
		calls.Wait()
		if w.Away() != 1 {
			t.Errorf("%d servers are away, want 1", w.Away())
		}
		<-time.After(3 * time.Second) // of the bubble's fake clock
		for range 8 {
			calls.Go(s.Answered)
		}
		calls.Wait()
		if w.Away() != 0 {
			t.Errorf("%d servers are away, want none", w.Away())
		}
		got := lines()
		if len(got) != 2 ||
			!strings.Contains(got[0], `level=WARN msg="a server of the store is away" server=10.0.0.1:6379 role=main err="connection refused"`) ||
			!strings.Contains(got[1], `level=INFO msg="a server of the store is back" server=10.0.0.1:6379 role=main away=3s`) {
			t.Errorf("got %q", got)
		}
	})
}

// TestEveryOtherCallFails: a server that fails every other call causes at most
// two lines a second.
func TestEveryOtherCallFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, lines := watch()
		s := w.Server("a:1")
		calls := time.NewTicker(5 * time.Millisecond) // of the bubble's fake clock
		defer calls.Stop()
		for range 1000 {
			<-calls.C
			s.Failed(errors.New("reset"))
			s.Answered()
		}
		if n := len(lines()); n > 10 || n < 4 {
			t.Errorf("%d lines in 5 s", n)
		}
	})
}

func TestLeftWhileAway(t *testing.T) {
	w, lines := watch()
	s := w.Server("a:1")
	s.Failed(errors.New("refused"))
	s.Left()
	if got := lines(); w.Away() != 0 || len(got) != 2 || !strings.Contains(got[1], "has left") {
		t.Errorf("%d away, %q", w.Away(), got)
	}
}

func TestWithoutWatch(t *testing.T) {
	var none *presence.Watch
	s := none.Server("a:1")
	s.Failed(errors.New("refused"))
	s.Answered()
	s.Left()
}
