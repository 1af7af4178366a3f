package combine

import (
	"fmt"

	"example.org/rls/pkg/backends"
)

// group is callers whose operations are one.
type group struct {
	op      backends.Op
	callers []*waiter
}

// merge groups neighbours that ask for the same. Callers who have given up are
// left out: nobody is charged for them.
func merge(waiting []*waiter) []group {
	var groups []group
	for _, w := range waiting {
		if err := w.ctx.Err(); err != nil {
			w.err = fmt.Errorf("%w: waiting for a merged operation: %w", backends.ErrUnavailable, err)
			close(w.done)
			continue
		}
		if n := len(groups); n > 0 && groups[n-1].takes(&w.op) {
			groups[n-1].add(w)
			continue
		}
		groups = append(groups, group{op: w.op, callers: []*waiter{w}})
	}
	return groups
}

// takes reports whether op differs from the group's in nothing but its time.
func (g *group) takes(op *backends.Op) bool {
	a, b := g.op, *op
	if a.Times+b.Times > backends.MaxTimes || a.Times != int64(len(g.callers)) || b.Times != 1 {
		return false
	}
	if a.Kind == backends.Meter && a.Max != backends.NoMax && b.Max != backends.NoMax {
		a.Max.Whole -= a.Now
		b.Max.Whole -= b.Now
	}
	if a.Span != backends.Fixed { // the window begins now
		a.Until -= a.Now
		b.Until -= b.Now
	}
	if a.Kind == backends.List {
		a.Until, b.Until = 0, 0
	}
	a.Times, a.Now, a.WeightNum, a.Soft = b.Times, b.Now, b.WeightNum, b.Soft
	return a == b
}

// add takes in one more caller; the group decides at the latest of its times.
func (g *group) add(w *waiter) {
	times := g.op.Times + 1
	if w.op.Now > g.op.Now {
		g.op = w.op
	}
	g.op.Times = times
	g.callers = append(g.callers, w)
}

// deal gives each caller its part of the reply, in the order in which they
// came: the first ones to be charged are those that were charged.
func (g *group) deal(op *backends.Op, r *backends.Reply, err error) {
	if len(g.callers) == 1 {
		w := g.callers[0]
		w.op, w.reply, w.err = *op, *r, err
		close(w.done)
		return
	}
	value := r.Value
	for i := len(g.callers) - 1; i >= 0; i-- {
		w := g.callers[i]
		soft := w.op.Soft
		w.op, w.reply, w.err = *op, *r, err
		w.op.Soft, w.op.Times, w.reply.Admitted = soft, 1, 0
		if int64(i) < r.Admitted {
			w.reply.Admitted, w.reply.Value = 1, value
			if !op.Refund {
				value = value.Sub(op.By, op.Den)
			}
		}
		close(w.done)
	}
}
