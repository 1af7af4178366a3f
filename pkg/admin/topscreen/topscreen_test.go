package topscreen

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/admin/client"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/top"
)

func topRow(value string, denied, hits int64) top.Row {
	return top.Row{Domain: "shop", Rule: "shop.user", Entries: []descriptors.Entry{{Key: "user", Value: value}}, Denied: denied, Hits: hits, Cost: hits, Rate: 0.5, Error: 1}
}

func TestTopShowsControlBytesAsText(t *testing.T) {
	var text strings.Builder
	if err := Text(&text, &top.Table{Rows: []top.Row{topRow("\x1b[2J\n", 1, 1)}}, terminal.Colors{}); err != nil {
		t.Fatal(err)
	}
	if got := text.String(); !strings.Contains(got, `user=\x1b[2J\n`) || strings.Contains(got, "\x1b") {
		t.Errorf("got %q", got)
	}
}

// answered is a view of an answer that every question gets.
func answered(answer Answer) *View {
	return &View{By: "denied", N: 20, Fetch: func(_ context.Context, by string) Answer {
		answer.Table.By = by
		return answer
	}}
}

// pressed shows the view and returns its last picture before it is closed, without escape
// sequences.
func pressed(t *testing.T, typed string, view *View) string {
	t.Helper()
	var out strings.Builder
	keys := make(chan byte)
	go func() {
		for _, key := range []byte(typed) {
			<-time.After(time.Second + time.Millisecond)
			keys <- key
		}
		<-time.After(2 * time.Second)
		close(keys)
	}()
	d := terminal.Display{Keys: keys, Out: &out, Size: func() (int, int) { return 69, 10 }}
	view.Show(t.Context(), &d)
	pictures := strings.Split(out.String(), "\x1b[H")
	return regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]").ReplaceAllString(pictures[len(pictures)-1], "")
}

func TestTopScreen(t *testing.T) {
	rows := []top.Row{topRow("ann", 5, 6), topRow("a very long name that does not fit in the columns", 4, 4)}
	answer := Answer{Table: top.Table{Window: "60s", Rows: rows}, From: client.Answered{All: 2, OK: 1}, Err: errors.New("10.0.0.2: no answer\nmore")}
	for typed, want := range map[string][]string{
		"":                  {"rls top by denied, 1 of 2 processes\r\n10.0.0.2: no answer\r\n", "user=ann\r\n", "user=a very \r\n", "q quit"},
		"h":                 {"rls top by hits"},
		"c":                 {"rls top by cost"},
		"/ann":              {"user=ann", "filter: ann"},
		"/bo\x7f\x7fvery\r": {"very", "filter: very"},
		"/ann\x1b":          {"very", "q quit"},
	} {
		synctest.Test(t, func(t *testing.T) {
			got := pressed(t, typed, answered(answer))
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
		keys := make(chan byte, 1)
		keys <- 'q'
		d := terminal.Display{Keys: keys, Out: new(strings.Builder), Size: func() (int, int) { return 80, 10 }}
		view := View{By: "denied", N: 20, Fetch: func(ctx context.Context, _ string) Answer {
			<-ctx.Done()
			return Answer{Err: ctx.Err()}
		}}
		view.Show(t.Context(), &d)
		if time.Since(began) > 0 {
			t.Errorf("after %v", time.Since(began))
		}
	})
}
