// Package topscreen shows the keys that are denied, asked for or charged most, as text and on
// a terminal.
package topscreen

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/admin/client"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/top"
)

// Answer is the table of all processes, and the errors of some.
type Answer struct {
	Table top.Table // its Rows are nil if no process answered
	From  client.Answered
	Err   error
	// Replicas are those that ADMIN_FLEET of the asked process lists, if it was asked for them.
	Replicas []client.Replica
}

// View is the table on a terminal. It shows the rows that the person wants.
type View struct {
	By, Rule string
	N        int // rows that are shown, at most
	Fetch    func(ctx context.Context, by string) Answer

	Answer
	filter string // a part of the rule or of the key
	typing bool   // the person types a filter
}

// Shown is the table with the rows of the view.
func (v *View) Shown() top.Table {
	t := v.Table
	rows := slices.DeleteFunc(slices.Clone(t.Rows), func(r top.Row) bool {
		return v.filter != "" && !strings.Contains(r.Rule+" "+keyOf(&r), v.filter)
	})
	t.Rows = rows[:min(v.N, len(rows))]
	return t
}

// keyOf is the descriptor of a row, as --descriptor takes it unless a value has a
// comma.
func keyOf(r *top.Row) string {
	return terminal.Visible(descriptors.Pairs(r.Entries))
}

// Text writes a table for a person.
func Text(w io.Writer, t *top.Table, colors terminal.Colors) error {
	head := fmt.Sprintf("last %s: %d requests, %d denied, %d hits\n", t.Window, t.Total.Hits, t.Total.Denied, t.Total.Cost)
	if len(t.Rows) == 0 {
		_, err := fmt.Fprintf(w, "%sno key to show by %s\n", head, t.By)
		return err
	}
	var b strings.Builder
	columns := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(columns, "DENIED\tHITS\tCOST\tRATE (%s/s)\tERROR\t  RULE  KEY\n", t.By)
	for i := range t.Rows {
		r := &t.Rows[i]
		_, _ = fmt.Fprintf(columns, "%d\t%d\t%d\t%.1f\t%d\t  %s  %s\n", r.Denied, r.Hits, r.Cost,
			r.Rate, r.Error, cmp.Or(terminal.Visible(r.Rule), "(no rule)"), keyOf(r))
	}
	_ = columns.Flush()
	names, rows, _ := strings.Cut(b.String(), "\n")
	_, err := fmt.Fprintf(w, "%s%s\n%s", head, colors.Bold(names), rows)
	return err
}

// Show draws the table, and asks for a newer one each second, until the person quits,
// no more keys can come, or ctx ends. The person does not wait for an answer. An answer in
// another order than the person wants by now is not taken.
func (v *View) Show(ctx context.Context, d *terminal.Display) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan Answer, 1)
	asked := "" // the order of the question under way
	ask := func() {
		if by := v.By; asked == "" {
			asked = by
			go func() { answers <- v.Fetch(ctx, by) }()
		}
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	ask()
	for {
		d.Draw(v.draw())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			ask()
		case answer := <-answers:
			wanted := asked == v.By
			if asked = ""; !wanted {
				ask()
				continue
			}
			if answer.Table.Rows == nil {
				answer.Table = v.Table
			}
			v.Answer = answer
		case key, open := <-d.Keys:
			if !open || v.press(key) {
				return
			}
			if v.Table.By != v.By {
				ask()
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

// press handles a byte that the person typed, and reports whether the person quits.
func (v *View) press(key byte) (quit bool) {
	switch {
	case key == ctrlC || !v.typing && (key == 'q' || key == 'Q'):
		return true
	case key == escape:
		v.typing, v.filter = false, ""
	case !v.typing:
		switch key {
		case 'd':
			v.By = "denied"
		case 'h':
			v.By = "hits"
		case 'c':
			v.By = "cost"
		case '/':
			v.typing, v.filter = true, ""
		}
	case key == '\r' || key == '\n':
		v.typing = false
	case key == backspace || key == ctrlH:
		_, last := utf8.DecodeLastRuneInString(v.filter)
		v.filter = v.filter[:len(v.filter)-last]
	case key >= ' ':
		v.filter += string([]byte{key}) // a byte of UTF-8
	}
	return false
}

// draw returns the lines and the line at the foot.
func (v *View) draw() (text, foot string) {
	var b strings.Builder
	b.WriteString("rls top by " + v.By)
	if v.Rule != "" {
		b.WriteString(", rule " + v.Rule)
	}
	if v.From.All > 1 {
		fmt.Fprintf(&b, ", %d of %d processes", v.From.OK, v.From.All)
	}
	b.WriteString("\n")
	if v.Err != nil {
		first, _, _ := strings.Cut(v.Err.Error(), "\n")
		b.WriteString(first + "\n")
	}
	if v.Table.Rows != nil {
		shown := v.Shown()
		_ = Text(&b, &shown, terminal.Colors{})
	} else if v.Err == nil {
		b.WriteString("asking…\n")
	}
	foot = "d denied  h hits  c cost  / filter  q quit"
	if v.typing || v.filter != "" {
		foot = "filter: " + terminal.Visible(v.filter)
	}
	return b.String(), foot
}
