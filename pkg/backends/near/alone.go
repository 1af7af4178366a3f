package near

import "example.org/rls/pkg/backends"

// maxKey is the length in bytes above which a cell is not leased, and hits that are owed to
// it are not charged: background work has to keep its key.
const maxKey = 1024

// alone is the state of a cell that this process decides while the store does not.
// own less base is the amount that is owed. It is below 0 if slots were given back
// (backends.Terms.Oldest) that the store still counts.
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
		e := backends.Cost{At: op.Arrived(base.Until), Hits: base.Value.Whole}
		a.own.Log, a.share.Log = backends.Log{e}, backends.Log{e}
	}
	a.decided(op)
	if owed != (backends.Amount{}) {
		again := *op
		again.By, again.Refund = owed, false
		if owed.Whole < 0 {
			again.By, again.Refund = backends.Amount{}.Sub(owed, op.Den), true
		}
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

// until is when both copies and the cell that they began as have ended.
func (a *alone) until() int64 { return max(a.own.Until, a.share.Until, a.base.Until) }

// slots reports whether refunds give slots back, also those that the store counts.
func slots(op *backends.Op) bool { return op.Terms != nil && op.Terms.Oldest }

// decide decides op by the share of one of the replicas. A refund gives back hits that
// were admitted here; the store keeps the others, unless they are slots.
//
// Nobody here knows reservations, so nothing is settled: a call with an ID is a charge of its
// hits, also if the store has a reservation of the ID, and a refund with an ID changes
// nothing. The hits of a reservation that is made here stay charged, and its ID is new to the
// store. So each hit that was reserved or used is charged at least once.
func (a *alone) decide(op *backends.Op, prev, replicas int64) backends.Reply {
	asked := op
	if op.Identified() {
		on, _ := backends.Record{}.Against(op)
		op = &on
	}
	if owed := a.owed(op); op.Refund && !slots(op) && owed.Less(op.By) {
		smaller := *op
		smaller.By = owed
		op = &smaller
	}
	mine := op.Alone(replicas)
	r := a.share.Step(&mine, prev)
	r.Replicas, r.Account = replicas, nil // the store cuts what is above the debt
	if op.Overdraws() {
		a.own.Step(op, prev)
	} else if op.By != (backends.Amount{}) && r.Admitted > 0 {
		charge(&a.own, *op, r.Admitted)
	}
	a.decided(asked)
	return r
}

// owed is the amount that was admitted here and counts at op.Now: the hits of windows
// that have ended are not in it, nor is the part of a meter that has drained.
func (a *alone) owed(op *backends.Op) backends.Amount {
	look := op.Look()
	look.Hold = nil
	base, own := backends.State{Cell: a.base}, a.own
	if op.Kind == backends.List && op.Now >= a.base.Until {
		base.Value = backends.Amount{}
	} else if op.Kind != backends.List {
		base.Value = base.Step(&look, 0).Value
	}
	v := own.Step(&look, 0).Value
	if v.Less(base.Value) && !slots(op) {
		return backends.Amount{}
	}
	return v.Sub(base.Value, op.Den)
}
