package near

import "example.org/rls/pkg/backends"

// maxKey is the length in bytes above which a cell is not leased, and hits that are owed to
// it are not charged: background work has to keep its key.
const maxKey = 1024

// alone is the state of a cell that this process decides while the store does not.
// own less base is the amount that is owed.
type alone struct {
	op   backends.Op   // the last operation that was decided here; without Key if that is longer than maxKey
	base backends.Cell // the last state that the store reported, held hits included; both copies start from it
	// share counts each admitted hit once for every replica, and decides; own counts it
	// once.
	share, own backends.State
}

// charge raises the cell by op's cost, times times, whatever its value is.
func charge(c *backends.State, op backends.Op, times int64) {
	op.Max, op.Times, op.ChargeDenied = backends.NoMax, times, false
	c.Step(&op, 0)
}

// newAlone returns the state of op's cell that begins as base, with an amount that is
// owed already.
func newAlone(op *backends.Op, base backends.Cell, owed backends.Amount, replicas int64) *alone {
	a := &alone{base: base}
	a.own.Cell, a.share.Cell = base, base
	if op.Kind == backends.List && base.Value.Whole != 0 {
		// The times of its charges are not known: as if all came with the last.
		e := backends.Cost{At: base.Until - op.Window, Hits: base.Value.Whole}
		a.own.Log, a.share.Log = backends.Log{e}, backends.Log{e}
	}
	a.decided(op)
	if owed != (backends.Amount{}) {
		again := *op
		again.By, again.Refund = owed, false
		charge(&a.own, again, 1)
		charge(&a.share, again.Alone(replicas), 1)
	}
	return a
}

// decided keeps op as the last operation.
func (a *alone) decided(op *backends.Op) {
	if a.op = *op; len(op.Key) > maxKey {
		a.op.Key, a.op.Prev = "", ""
	}
}

// until is when both copies have ended.
func (a *alone) until() int64 { return max(a.own.Until, a.share.Until) }

// decide decides op by the share of one of the replicas. A refund gives back hits that
// were admitted here; the store keeps the others.
func (a *alone) decide(op *backends.Op, prev, replicas int64) backends.Reply {
	if owed := a.owed(op); op.Refund && owed.Less(op.By) {
		smaller := *op
		smaller.By = owed
		op = &smaller
	}
	mine := op.Alone(replicas)
	r := a.share.Step(&mine, prev)
	r.Replicas = replicas
	if op.By != (backends.Amount{}) && r.Admitted > 0 {
		charge(&a.own, *op, r.Admitted)
	}
	a.decided(op)
	return r
}

// owed is the amount that was admitted here and counts at op.Now: the hits of windows
// that have ended are not in it, nor is the part of a meter that has drained.
func (a *alone) owed(op *backends.Op) backends.Amount {
	look := op.Look()
	base, own := backends.State{Cell: a.base}, a.own
	if op.Kind == backends.List && op.Now >= a.base.Until {
		base.Value = backends.Amount{}
	} else if op.Kind != backends.List {
		base.Value = base.Step(&look, 0).Value
	}
	v := own.Step(&look, 0).Value
	if v.Less(base.Value) {
		return backends.Amount{}
	}
	return v.Sub(base.Value, op.Den)
}
