package stack

import (
	"context"
	"fmt"

	"example.org/rls/pkg/backends"
)

// waiter is an operation whose key is busy.
type waiter struct {
	ctx   context.Context
	op    backends.Op
	reply backends.Reply // written before done
	done  chan struct{}  // buffered; receives once when reply is set
}

// end tells the caller that reply is set.
func (w *waiter) end() { w.done <- struct{}{} }

func gaveUp(ctx context.Context) error {
	return fmt.Errorf("wait behind other operations on the key: %w: %w", backends.ErrUnavailable, ctx.Err())
}

// merged is one operation for the equal operations of several callers.
type merged struct {
	op      backends.Op
	callers []*waiter // in their order of arrival
}

// merge makes one operation of neighbours that are equal but for their time. It
// leaves out callers whose context has ended: they are not charged.
func merge(waiting []*waiter) []merged {
	var all []merged
	for _, w := range waiting {
		if w.ctx.Err() != nil {
			w.reply.Err = backends.NotSent(gaveUp(w.ctx))
			w.end()
			continue
		}
		if n := len(all); n > 0 && all[n-1].takes(&w.op) {
			all[n-1].add(w)
			continue
		}
		all = append(all, merged{op: w.op, callers: []*waiter{w}})
	}
	return all
}

// takes reports whether op equals m's operation at op's time. Resets, grants, and operations that
// overdraw, charge a part or have a reservation stay alone.
func (m *merged) takes(op *backends.Op) bool {
	a := m.op
	apart := a.Hold != nil || a.Verb == backends.Fill || a.Verb.Operates() || a.Overdraws()
	if apart || a.Times != int64(len(m.callers)) || op.Times != 1 || a.Times == backends.MaxTimes {
		return false
	}
	switch {
	case a.Kind == backends.List:
		a.Until = op.Until // lists have none
	case a.Kind == backends.Meter || a.Span != backends.Fixed:
		a = a.At(op.Now)
	}
	if a.Limit != op.Limit && *a.Limit == *op.Limit { // of an override, or of rules that were loaded again
		a.Limit = op.Limit
	}
	a.Now, a.Times = op.Now, op.Times
	a.Role, a.IfUndecided = op.Role, op.IfUndecided // do not matter to an operation that is charged alone
	return a == *op
}

// add adds a caller. The operation is decided at the latest Now of its callers,
// which Reply.Now tells each of them.
func (m *merged) add(w *waiter) {
	times := m.op.Times + 1
	if w.op.Now > m.op.Now {
		m.op = w.op
	}
	m.op.Times = times
	m.callers = append(m.callers, w)
}

// answer gives each caller its part of the reply. The first callers fit, as many as the
// store has admitted. Each sees the cell as it was after its own charge.
func (m *merged) answer(r *backends.Reply) {
	value := r.Value
	for i := len(m.callers) - 1; i >= 0; i-- {
		w := m.callers[i]
		w.reply = *r
		if r.Err == nil && len(m.callers) > 1 {
			w.reply.Admitted = min(max(r.Admitted-int64(i), 0), 1)
			if w.reply.Admitted == 1 || m.op.Verb == backends.Count {
				w.reply.Value = value
				if !m.op.Verb.GivesBack() {
					value = value.Sub(m.op.By, m.op.Den)
				}
			}
		}
		w.end()
	}
}
