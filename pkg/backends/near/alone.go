package near

import "example.org/rls/pkg/backends"

// maxKey is the length in bytes above which a cell is not leased, and hits that are owed to
// it are not charged: background work has to keep its key.
const maxKey = 1024

// alone is the state of a cell that this process decides while the store does not.
// own less base is the amount that is owed. It is below 0 if slots were given back
// (backends.Limit.Oldest) that the store still counts.
type alone struct {
	op   backends.Op   // the last operation that was decided here; without Key if that is longer than maxKey
	base backends.Cell // the last state that the store reported, held hits included; both copies start from it
	// share counts each admitted hit once for every replica, and decides; own counts it
	// once.
	share, own backends.State
}

// charge raises the cell by op's cost, times times, whatever its value is.
func charge(c *backends.State, op backends.Op, times int64) {
	op.Max, op.Times = backends.NoMax, times
	if !op.Verb.GivesBack() {
		op.Verb = backends.Charge
	}
	c.Step(&op)
}

// newAlone returns the state of op's cell that begins as base, with an amount that is
// owed already.
func newAlone(op *backends.Op, base backends.Cell, owed backends.Amount, replicas int64) *alone {
	a := &alone{base: base, own: began(op, base), share: began(op, base)}
	a.decided(op)
	if owed != (backends.Amount{}) {
		again := of(*op, owed)
		charge(&a.own, again, 1)
		charge(&a.share, again.Alone(replicas), 1)
	}
	return a
}

// began is op's cell as it was reported. The times of the charges of a List are not known: as
// if all came with the last.
func began(op *backends.Op, c backends.Cell) backends.State {
	s := backends.State{Cell: c}
	if op.Kind == backends.List && c.Value.Whole != 0 {
		s.Log = backends.Log{{At: op.Arrived(c.Until), Hits: c.Value.Whole}}
	}
	return s
}

// of is op with an amount, which is given back if it is below 0.
func of(op backends.Op, amount backends.Amount) backends.Op {
	if op.By, op.Verb = amount, backends.Charge; amount.Whole < 0 {
		op.By, op.Verb = backends.Amount{}.Sub(amount, op.Den), backends.Refund
	}
	return op
}

// decided keeps op as the last operation.
func (a *alone) decided(op *backends.Op) {
	if a.op = *op; len(op.Key) > maxKey {
		a.op.Key = ""
	}
}

// slots reports whether refunds give slots back, also those that the store counts.
func slots(op *backends.Op) bool { return op.Oldest }

// decide decides op by the share of one of the replicas. A refund gives back hits that
// were admitted here; the store keeps the others, unless they are slots.
//
// Nobody here knows reservations, so nothing is settled: a call with an ID is a charge of its
// hits, also if the store has a reservation of the ID, and a refund with an ID changes
// nothing. The hits of a reservation that is made here stay charged, and its ID is new to the
// store. So each hit that was reserved or used is charged at least once.
func (a *alone) decide(op *backends.Op, replicas int64) backends.Reply {
	on := *op
	if op.Identified() {
		on, _ = backends.Record{}.Against(op)
	}
	if on.Verb.GivesBack() && !slots(op) {
		if owed := a.owed(&on); owed.Less(on.By) {
			on.By = owed
		}
	}
	mine := on.Alone(replicas)
	r := a.share.Step(&mine)
	r.Replicas, r.Account = replicas, nil // the store cuts what is above the debt
	if on.Overdraws() {
		a.own.Step(&on)
	} else if on.By != (backends.Amount{}) && r.Admitted > 0 {
		charge(&a.own, on, r.Admitted)
	}
	a.decided(op)
	return r
}

// owed is the amount that was admitted here and counts at op.Now: the hits of windows
// that have ended are not in it, nor is the part of a meter that has drained. a may be nil.
func (a *alone) owed(op *backends.Op) backends.Amount {
	if a == nil {
		return backends.Amount{}
	}
	look := op.Look()
	look.Hold = nil
	base, own := began(op, a.base), a.own
	before, now := base.Step(&look).Value, own.Step(&look).Value
	if now.Less(before) && !slots(op) {
		return backends.Amount{}
	}
	return now.Sub(before, op.Den)
}
