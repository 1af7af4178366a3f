package topscreen

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/admin/status"
)

// draw returns the lines of a screen, and the line at its foot.
func (v *View) draw(height int, colors terminal.Colors) (lines []terminal.Line, foot string) {
	lines = v.head(colors)
	switch {
	case v.answer != nil:
		for _, text := range v.answer[v.from:] {
			lines = append(lines, terminal.Line{Text: terminal.Visible(text)})
		}
	case v.Table.Rows != nil:
		lines = append(lines, v.body(height, colors)...)
	case v.Err == nil:
		lines = append(lines, terminal.Line{Text: "asking…"})
	}
	return lines, v.foot()
}

// head is the title, the state of the processes, and the first of their errors.
func (v *View) head(colors terminal.Colors) []terminal.Line {
	title := "rls top by " + v.By
	if v.byShare {
		title = "rls top by share of denied requests"
	}
	if v.Rule != "" {
		title += ", rule " + v.Rule
	}
	if v.From.All > 1 {
		title += fmt.Sprintf(", %d of %d processes", v.From.OK, v.From.All)
	}
	if v.paused {
		title += ", paused"
	}
	lines := []terminal.Line{{Text: title, Paint: colors.Bold}}
	if v.Err != nil {
		first, _, _ := strings.Cut(v.Err.Error(), "\n")
		lines = append(lines, terminal.Line{Text: terminal.Visible(first), Paint: colors.Red})
	}
	if s := v.Status; s != nil {
		paint := map[string]func(string) string{"warning": colors.Yellow, "critical": colors.Red}[s.Health.State]
		lines = append(lines, terminal.Line{Text: stateLine(s), Paint: paint})
	}
	return lines
}

// stateLine is the state of the processes on one line.
func stateLine(s *status.Document) string {
	store := fmt.Sprintf("store %s %s", s.Store.Backend, s.Store.State)
	if s.Store.State == "away" {
		store += ", policies decide"
	}
	return fmt.Sprintf("%.4g requests/s, %.4g denied/s, %.4g errors/s, p50 %v, p99 %v, %s", s.Traffic.Requests, s.Traffic.Denied, s.Traffic.Errors,
		time.Duration(s.Latency.P50), time.Duration(s.Latency.P99), store)
}

// room is the number of rows that a screen has below the head and the names of the columns.
func (v *View) room(height int) int { return height - len(v.head(terminal.Colors{})) - 2 }

func (v *View) body(height int, colors terminal.Colors) (lines []terminal.Line) {
	shown := v.Table
	if shown.Rows = v.rows(v.room(height)); len(shown.Rows) == 0 {
		return []terminal.Line{{Text: "no key to show by " + shown.By}}
	}
	at := v.at(shown.Rows)
	for i, text := range table(&shown) {
		paint, mark := colors.Bold, "  "
		if i > 0 {
			switch denied := share(&shown.Rows[i-1]); {
			case i-1 == at:
				paint, mark = colors.Reverse, "> "
			case denied >= 0.5:
				paint = colors.Red
			case denied > 0:
				paint = colors.Yellow
			default:
				paint = nil
			}
		}
		lines = append(lines, terminal.Line{Text: mark + text, Paint: paint})
	}
	return lines
}

func (v *View) foot() string {
	switch {
	case v.asking == forHits:
		return fmt.Sprintf("hits to grant to %s: %s", keyOf(&v.about), terminal.Visible(v.typed))
	case v.asking == forReset:
		return fmt.Sprintf("reset the counters of %s? y and Enter: %s", keyOf(&v.about), terminal.Visible(v.typed))
	case v.asking == forFilter || v.filter != "" && v.answer == nil:
		return "filter: " + terminal.Visible(v.filter)
	case v.answer != nil:
		return "↑ ↓ scroll  any other key: back"
	}
	return "Enter explain  g grant  r reset  d h c s order  f filter  p pause  ? help  q quit"
}

// StatHead names the columns of [Stat].
const StatHead = "    TIME  REQUESTS/S    DENIED/S    ERRORS/S       P50       P99  STORE\n"

// Stat writes the state of the processes as one line.
func Stat(w io.Writer, s *status.Document) error {
	ms := func(d time.Duration) string { return fmt.Sprintf("%.2fms", math.Round(d.Seconds()*1e5)/100) }
	_, err := fmt.Fprintf(w, "%s  %10.4g  %10.4g  %10.4g  %8s  %8s  %s\n", s.Now.Local().Format(time.TimeOnly),
		s.Traffic.Requests, s.Traffic.Denied, s.Traffic.Errors, ms(time.Duration(s.Latency.P50)), ms(time.Duration(s.Latency.P99)), s.Store.State)
	return err
}
