package standin

import (
	"strings"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
)

// cell is the state of one limit for one caller, of any kind.
type cell struct {
	backends.Cell
	log backends.Log // of a List
}

// step applies op and returns the reply. prev is the count of Op.Prev's cell.
func (c *cell) step(op *backends.Op, prev int64) (r backends.Reply) {
	if op.Kind != backends.List {
		c.Cell, r = c.Cell.Step(op, prev)
		return r
	}
	c.log, r = c.log.Step(op)
	c.Cell = backends.Cell{Value: r.Value, Until: r.Until}
	return r
}

// charge raises the cell by op's cost, times times, whatever its value is.
func (c *cell) charge(op backends.Op, times int64) {
	op.Max, op.Times, op.ChargeDenied = backends.NoMax, times, false
	c.step(&op, 0)
}

// value is the cell's value as of op.
func (c *cell) value(op *backends.Op) backends.Amount {
	look := op.Look()
	if op.Kind == backends.List {
		return c.step(&look, 0).Value
	}
	_, r := c.Cell.Step(&look, 0)
	return r.Value
}

// alone is the state of a cell whose limit this process decides while the store
// does not.
type alone struct {
	limit     *algorithms.Limit
	key, prev string // of the cell in the store; "" if key is longer than longestKey
	at        int64  // when the limit was last decided here, µs
	// Both begin as the store's cell was known. share counts each hit that was
	// admitted here once for every replica, and decides; own counts it once.
	share, own cell
}

// newAlone returns the state of op's cell that begins as known, with hits that
// were admitted here and are not charged to the store yet.
func newAlone(l *algorithms.Limit, op *backends.Op, known backends.Cell, uncharged backends.Amount, replicas int) *alone {
	a := &alone{limit: l, at: op.Now}
	if len(op.Key) <= longestKey {
		a.key, a.prev = strings.Clone(op.Key), strings.Clone(op.Prev)
	}
	a.own.Cell, a.share.Cell = known, known
	if op.Kind == backends.List && known.Value.Whole != 0 {
		// The times of its charges are not known: as if all came with the last.
		e := backends.Entry{At: known.Until - op.Window, Cost: known.Value.Whole}
		a.own.log, a.share.log = backends.Log{e}, backends.Log{e}
	}
	if uncharged != (backends.Amount{}) {
		again := *op
		again.By, again.Refund = uncharged, false
		a.own.charge(again, 1)
		s := l.Share(replicas)
		a.share.charge(s.Plan(&again), 1)
	}
	return a
}

// uncharged is the amount that was admitted here and counts at op.Now: the
// hits of windows that have ended are not in it, nor is the part of a meter that
// has drained.
func (a *alone) uncharged(op *backends.Op, known backends.Cell) backends.Amount {
	k := cell{Cell: known}
	if op.Kind == backends.List && op.Now >= known.Until {
		k.Cell = backends.Cell{}
	} else if op.Kind != backends.List {
		k.Value = k.value(op)
	}
	own := a.own.value(op)
	if own.Less(k.Value) {
		return backends.Amount{}
	}
	return own.Sub(k.Value, op.Den)
}

// decide decides op, which a.limit planned, by the share of one of the replicas.
// It reports whether op has charged something.
func (a *alone) decide(op *backends.Op, known backends.Cell, prev int64, replicas int) (algorithms.Decision, bool) {
	if op.Refund { // of hits that were admitted here; the store keeps the others
		if u := a.uncharged(op, known); u.Less(op.By) {
			smaller := *op
			smaller.By = u
			op = &smaller
		}
	}
	s := a.limit.Share(replicas)
	mine := s.Plan(op)
	r := a.share.step(&mine, prev)
	charged := op.By != (backends.Amount{}) && r.Admitted > 0
	if charged {
		a.own.charge(*op, r.Admitted)
	}
	a.at = op.Now
	return s.Judge(&mine, &r), charged
}
