package topscreen

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/admin/client"
	"example.org/rls/pkg/admin/status"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/explain"
	"example.org/rls/pkg/top"
)

func topRow(value string, denied, hits int64) top.Row {
	return top.Row{Domain: "shop", Rule: "shop.user", Entries: []descriptors.Entry{{Key: "user", Value: value}}, Denied: denied, Hits: hits, Cost: hits, Rate: 0.5, Error: 1, Limit: "ten", Remaining: new(int64(7))}
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

// The buckets of Envoys have columns if there are any.
func TestBuckets(t *testing.T) {
	row := topRow("ann", 0, 1)
	row.Buckets, row.Assigned = 3, 12.5
	var text strings.Builder
	if err := Text(&text, &top.Table{Rows: []top.Row{row, topRow("bob", 1, 1)}}, terminal.Colors{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"REMAINING  BUCKETS  ASSIGNED/s  LIMIT", "7        3        12.5  ten", "7        0         0.0  ten"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}

// replicas is a Source with one answer. It remembers what it was asked to change.
type replicas struct {
	Answer
	changed []string
}

func (r *replicas) Top(_ context.Context, by string) Answer {
	answer := r.Answer
	answer.Table.By = by
	return answer
}

func (r *replicas) Explain(_ context.Context, row *top.Row) (string, error) {
	return "explained " + keyOf(row) + "\nline 2\nline 3\n", nil
}

func (r *replicas) Grant(_ context.Context, row *top.Row, hits int64) (string, error) {
	r.changed = append(r.changed, fmt.Sprintf("grant %d %s", hits, keyOf(row)))
	return "granted", nil
}

func (r *replicas) Reset(_ context.Context, row *top.Row) (string, error) {
	r.changed = append(r.changed, "reset "+keyOf(row))
	return "", errors.New("the role of this token is read")
}

// pressed shows the view on a screen while a person types keys, one a second, and returns the
// last picture before the screen is closed, without escape sequences.
func pressed(t *testing.T, keys []string, width, height int, view *View) string {
	t.Helper()
	var out strings.Builder
	typed := make(chan string)
	go func() {
		for _, key := range keys {
			<-time.After(time.Second + time.Millisecond)
			typed <- key
		}
		<-time.After(2 * time.Second)
		close(typed)
	}()
	d := terminal.Display{Keys: typed, Out: &out, Size: func() (int, int) { return width, height }}
	view.Show(t.Context(), &d)
	pictures := strings.Split(out.String(), "\x1b[H")
	return regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]").ReplaceAllString(pictures[len(pictures)-1], "")
}

func TestScreen(t *testing.T) {
	rows := []top.Row{topRow("ann", 5, 10), topRow("bob", 4, 4), topRow("eve", 3, 30)}
	state := &status.Document{Health: status.Health{State: "critical"}, Traffic: status.Traffic{Counts: status.Counts[float64]{Requests: 12.5, Denied: 3}}, Store: status.Store{Backend: "redis", State: "away"}}
	state.Latency.P99 = explain.Duration(310 * time.Microsecond)
	for name, test := range map[string]struct {
		keys            []string
		want, not, made []string
	}{
		"first picture": {want: []string{
			"rls top by denied, 1 of 2 processes\r\n10.0.0.2: no answer\r\n", "12.5 requests/s, 3 denied/s", "p99 310µs, store redis away, policies decide",
			"DENIED  SHARE  HITS", "REMAINING  LIMIT  RULE  KEY", ">        5   50 %", "7  ten  shop.user  user=ann\r\n", "q quit",
		}},
		"other orders":     {keys: []string{"h"}, want: []string{"rls top by hits"}},
		"by cost":          {keys: []string{"c"}, want: []string{"rls top by cost"}},
		"by share":         {keys: []string{"s"}, want: []string{"by share of denied requests"}},
		"cursor":           {keys: []string{"j", terminal.Down, terminal.Down, terminal.Up, terminal.Enter}, want: []string{"explained user=bob\r\n", "line 3", "any other key"}},
		"cursor stays":     {keys: []string{"s", terminal.Enter}, want: []string{"explained user=bob"}}, // bob's share is the highest
		"back":             {keys: []string{terminal.Enter, "x"}, want: []string{"user=ann"}, not: []string{"explained"}},
		"filter":           {keys: []string{"f", "e", "v"}, want: []string{"user=eve", "filter: ev"}, not: []string{"user=ann"}},
		"filter corrected": {keys: []string{"/", "x", terminal.Backspace, "b", "ö", terminal.Backspace, terminal.Enter}, want: []string{"user=bob", "filter: b"}, not: []string{"eve"}},
		"filter ended":     {keys: []string{"/", "b", "o", terminal.Escape}, want: []string{"user=eve", "q quit"}},
		"grant":            {keys: []string{"j", "g", "2", "5", terminal.Enter}, want: []string{"granted"}, made: []string{"grant 25 user=bob"}},
		"grant of nothing": {keys: []string{"g", "x", terminal.Enter}, want: []string{"nothing is granted: want a whole number"}},
		"no grant":         {keys: []string{"g", "5", terminal.Escape}, want: []string{"user=ann", "q quit"}},
		"question":         {keys: []string{"r"}, want: []string{"reset the counters of user=ann? y and Enter"}},
		"reset":            {keys: []string{"r", "y", terminal.Enter}, want: []string{"the role of this token is read"}, made: []string{"reset user=ann"}},
		"no reset":         {keys: []string{"r", "n", terminal.Enter}, want: []string{"user=ann", "q quit"}},
		"help":             {keys: []string{"?"}, want: []string{"Enter      explain the row"}},
		"paused":           {keys: []string{"p"}, want: []string{", paused"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := &replicas{Answer: Answer{Table: top.Table{Window: "60s", Rows: rows}, Status: state, From: client.Answered{All: 2, OK: 1}, Err: errors.New("10.0.0.2: no answer\nmore")}}
				got := pressed(t, test.keys, 100, 14, &View{By: "denied", Source: source})
				for _, part := range test.want {
					if !strings.Contains(got, part) {
						t.Errorf("no %q in\n%s", part, got)
					}
				}
				for _, part := range test.not {
					if strings.Contains(got, part) {
						t.Errorf("%q in\n%s", part, got)
					}
				}
				if !slices.Equal(source.changed, test.made) {
					t.Errorf("changed %q, want %q", source.changed, test.made)
				}
			})
		})
	}
}

// The table has as many rows as the screen, or as many as the person wants.
func TestRowsOfAScreen(t *testing.T) {
	var rows []top.Row
	for i := range 100 {
		rows = append(rows, topRow(fmt.Sprint("u", i), 1, 1))
	}
	for _, test := range []struct{ n, height, want int }{{0, 24, 21}, {0, 60, 57}, {5, 60, 5}, {0, 2, 0}} {
		synctest.Test(t, func(t *testing.T) {
			source := &replicas{Answer: Answer{Table: top.Table{Rows: rows}}}
			got := strings.Count(pressed(t, nil, 100, test.height, &View{By: "denied", N: test.n, Source: source}), "user=u")
			if got != test.want {
				t.Errorf("%d rows in a screen of %d lines, want %d", got, test.height, test.want)
			}
		})
	}
}

func TestStat(t *testing.T) {
	s := &status.Document{Now: time.Date(2026, 1, 31, 3, 12, 7, 0, time.Local), Traffic: status.Traffic{Counts: status.Counts[float64]{Requests: 1234.5, Denied: 2}}, Store: status.Store{State: "ok"}}
	s.Latency.P50, s.Latency.P99 = explain.Duration(310*time.Microsecond), explain.Duration(2*time.Millisecond)
	var line strings.Builder
	if err := Stat(&line, s); err != nil {
		t.Fatal(err)
	}
	if want := StatHead + "03:12:07        1234           2           0    0.31ms    2.00ms  ok\n"; StatHead+line.String() != want {
		t.Errorf("got\n%swant\n%s", StatHead+line.String(), want)
	}
}

// silent does not answer.
type silent struct{ replicas }

func (*silent) Top(ctx context.Context, _ string) Answer {
	<-ctx.Done()
	return Answer{Err: ctx.Err()}
}

// A process that does not answer does not hold up the person.
func TestTopQuitsWhileNobodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		keys := make(chan string, 1)
		keys <- "q"
		d := terminal.Display{Keys: keys, Out: new(strings.Builder), Size: func() (int, int) { return 80, 10 }}
		view := View{By: "denied", Source: new(silent)}
		view.Show(t.Context(), &d)
		if time.Since(began) > 0 {
			t.Errorf("after %v", time.Since(began))
		}
	})
}
