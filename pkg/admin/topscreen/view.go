package topscreen

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/admin/client"
	"example.org/rls/pkg/admin/status"
	"example.org/rls/pkg/top"
)

// Answer is the table of all processes, and the errors of some.
type Answer struct {
	Table  top.Table        // its Rows are nil if no process answered
	Status *status.Document // nil if none is known
	// Replicas are those that ADMIN_FLEET of the asked process lists, if it was asked for them.
	Replicas []client.Replica
	From     client.Answered
	Err      error
}

// Source asks processes, and changes their counters.
type Source interface {
	// Top asks for the table in an order.
	Top(ctx context.Context, by string) Answer
	// Explain returns the way of a row's descriptor to its limits, with their counters, as lines.
	Explain(ctx context.Context, row *top.Row) (string, error)
	// Grant and Reset change the counters of a row's descriptor, and return the changes as lines.
	Grant(ctx context.Context, row *top.Row, hits int64) (string, error)
	Reset(ctx context.Context, row *top.Row) (string, error)
}

// View is the table on a terminal, with a cursor on one of its rows.
type View struct {
	By, Rule string // the order, and the rule whose rows are shown
	N        int    // rows that are shown, at most; 0: as many as the screen has
	Source   Source

	Answer
	filter  string // a part of the rule or of the key
	byShare bool   // rows are ordered by the share of denied requests
	paused  bool   // the table stays as it is
	cursor  string // the id of the row under the cursor; "" is the first row
	asking  mode
	typed   string   // in answer to a question
	about   top.Row  // the row that a question or an answer is about
	answer  []string // the lines that stand in place of the table; nil shows the table
	from    int      // the first line of answer that is shown
	done    chan []string
	ctx     context.Context //nolint:containedctx // of Show, for the questions that keys ask
}

// mode is the question that the person answers.
type mode int

const (
	nothing mode = iota
	forFilter
	forHits  // of a grant
	forReset // whether to reset
)

// Show draws the table, and asks for a newer one each second, until the person quits,
// no more keys can come, or ctx ends. The person does not wait for an answer. An answer in
// another order than the person wants by now is not taken.
func (v *View) Show(ctx context.Context, d *terminal.Display) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	v.ctx, v.done = ctx, make(chan []string, 1)
	answers := make(chan Answer, 1)
	asked := "" // the order of the question under way
	ask := func() {
		if by := v.By; asked == "" {
			asked = by
			go func() { answers <- v.Source.Top(ctx, by) }()
		}
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	ask()
	for {
		_, height := d.Size()
		d.Draw(v.draw(height, d.Colors))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if !v.paused {
				ask()
			}
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
		case v.answer = <-v.done:
		case key, open := <-d.Keys:
			if !open || v.press(key, height) {
				return
			}
			if v.Table.By != v.By {
				ask()
			}
		}
	}
}

// rows are the rows that the person wants, at most n.
func (v *View) rows(n int) []top.Row {
	rows := slices.DeleteFunc(slices.Clone(v.Table.Rows), func(r top.Row) bool {
		return v.filter != "" && !strings.Contains(r.Rule+" "+keyOf(&r), v.filter)
	})
	if v.byShare {
		slices.SortStableFunc(rows, func(a, b top.Row) int { return cmp.Compare(share(&b), share(&a)) })
	}
	if v.N > 0 {
		n = min(n, v.N)
	}
	return rows[:min(max(0, n), len(rows))]
}

// at is the place of the cursor in rows.
func (v *View) at(rows []top.Row) int {
	return max(0, slices.IndexFunc(rows, func(r top.Row) bool { return idOf(&r) == v.cursor }))
}

func idOf(r *top.Row) string { return r.Domain + " " + r.Rule + " " + keyOf(r) }

// do asks in the background, and shows what comes in place of the table.
func (v *View) do(ask func(context.Context, *top.Row) (string, error)) {
	row := v.about
	v.answer, v.from = []string{"asking…"}, 0
	go func() {
		text, err := ask(v.ctx, &row)
		if err != nil {
			text = err.Error()
		}
		select {
		case v.done <- strings.Split(strings.TrimSpace(text), "\n"):
		case <-v.ctx.Done():
		}
	}()
}
