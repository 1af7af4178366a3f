package main

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/top"
)

func topRow(value string, denied, hits int64) top.Row {
	return top.Row{Domain: "shop", Rule: "shop.user", Entries: []descriptors.Entry{{Key: "user", Value: value}}, Denied: denied, Hits: hits, Cost: hits, Rate: 0.5, Error: 1}
}

func TestTopSumsProcesses(t *testing.T) {
	sum := summed([]top.Table{
		{By: "denied", Window: "60s", Rows: []top.Row{topRow("ann", 5, 6), topRow("bob", 4, 4)}, Total: top.Total{Hits: 10, Denied: 9, Cost: 10}},
		{By: "denied", Window: "60s", Rows: []top.Row{topRow("bob", 3, 3)}, Total: top.Total{Hits: 3, Denied: 3, Cost: 3}},
	})
	var text strings.Builder
	if err := writeTop(&text, &sum, terminal.Colors{}); err != nil {
		t.Fatal(err)
	}
	want := `last 60s: 13 requests, 12 denied, 13 hits
  DENIED  HITS  COST  RATE/S  ERROR  RULE  KEY
       7     7     7     1.0      2  shop.user  user=bob
       5     6     6     0.5      1  shop.user  user=ann
`
	if text.String() != want || sum.Error != 2 {
		t.Errorf("error %d, got\n%swant\n%s", sum.Error, text.String(), want)
	}
}

func TestTopShowsControlBytesAsText(t *testing.T) {
	var text strings.Builder
	if err := writeTop(&text, &top.Table{Rows: []top.Row{topRow("\x1b[2J\n", 1, 1)}}, terminal.Colors{}); err != nil {
		t.Fatal(err)
	}
	if got := text.String(); !strings.Contains(got, `user=\x1b[2J\n`) || strings.Contains(got, "\x1b") {
		t.Errorf("got %q", got)
	}
}

// pressed runs the screen and returns its last picture before it is closed with q, without
// escape sequences.
func pressed(t *testing.T, typed string, ask topAsk) string {
	t.Helper()
	var out strings.Builder
	s := topScreen{view: &topView{by: "denied", n: 20}, out: &out, size: func() (int, int) { return 60, 10 }}
	keys := make(chan byte)
	go func() {
		for _, key := range []byte(typed) {
			<-time.After(time.Second + time.Millisecond)
			keys <- key
		}
		<-time.After(2 * time.Second)
		close(keys)
	}()
	if err := s.run(t.Context(), keys, ask); err != nil {
		t.Fatal(err)
	}
	pictures := strings.Split(out.String(), firstLine)
	return regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]").ReplaceAllString(pictures[len(pictures)-1], "")
}

func TestTopScreen(t *testing.T) {
	ask := func(_ context.Context, by string) (top.Table, asked, error) {
		rows := []top.Row{topRow("ann", 5, 6), topRow("a very long name that does not fit in sixty columns", 4, 4)}
		return top.Table{By: by, Window: "60s", Rows: rows}, asked{2, 1}, errors.New("10.0.0.2: no answer\nmore")
	}
	for typed, want := range map[string][]string{
		"":                  {"rls top by denied, 1 of 2 processes\r\n10.0.0.2: no answer\r\n", "user=ann\r\n", "user=a very \r\n", "q quit"},
		"h":                 {"rls top by hits"},
		"c":                 {"rls top by cost"},
		"/ann":              {"user=ann", "filter: ann"},
		"/bo\x7f\x7fvery\r": {"very", "filter: very"},
		"/ann\x1b":          {"very", "q quit"},
	} {
		synctest.Test(t, func(t *testing.T) {
			got := pressed(t, typed, ask)
			for _, part := range want {
				if !strings.Contains(got, part) {
					t.Errorf("typed %q: no %q in\n%s", typed, part, got)
				}
			}
			if typed == "/ann" && strings.Contains(got, "very") {
				t.Errorf("the filter shows all:\n%s", got)
			}
		})
	}
}

// A process that does not answer does not hold up the person.
func TestTopQuitsWhileNobodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := topScreen{view: &topView{by: "denied", n: 20}, out: new(strings.Builder), size: func() (int, int) { return 60, 10 }}
		keys := make(chan byte, 1)
		keys <- 'q'
		err := s.run(t.Context(), keys, func(ctx context.Context, _ string) (top.Table, asked, error) {
			<-ctx.Done()
			return top.Table{}, asked{}, ctx.Err()
		})
		if err != nil || time.Since(began) > 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
