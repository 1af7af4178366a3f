package near

import "example.org/rls/pkg/backends"

// maxKey is the length in bytes above which a cell is not leased, and hits that are owed to
// it are not charged: background work has to keep its key.
const maxKey = 1024

// local is a cell that this process decides while the store does not, in two copies that start
// as the store last reported the cell (entry.known, hits held included). mine less that is the
// amount that is owed. It is below 0 if slots were given back (backends.Limit.Oldest) that the
// store still counts.
type local struct {
	op      backends.Op    // the last operation that was decided here; without Key if that is longer than maxKey
	mine    backends.State // counts each admitted hit once
	divided backends.State // counts it once for every replica, and decides
}

// charge raises the cell by op's cost, times times, whatever its value is.
func charge(c *backends.State, op backends.Op, times int64) {
	op.Max, op.Times = backends.NoMax, times
	if !op.Verb.GivesBack() {
		op.Verb = backends.Charge
	}
	c.Step(&op)
}

// newLocal returns the copies of op's cell, which was reported as known, with an amount that is
// owed already.
func newLocal(op *backends.Op, known backends.Cell, owed backends.Amount, replicas int64) *local {
	l := &local{mine: began(op, known), divided: began(op, known)}
	l.decided(op)
	if owed != (backends.Amount{}) {
		again := of(*op, owed)
		charge(&l.mine, again, 1)
		charge(&l.divided, again.Alone(replicas), 1)
	}
	return l
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
func (l *local) decided(op *backends.Op) {
	if l.op = *op; len(op.Key) > maxKey {
		l.op.Key = ""
	}
}

// decide decides op by the share of one of the replicas. A refund gives back hits that
// were admitted here; the store keeps the others, unless they are slots (backends.Limit.Oldest).
//
// Nobody here knows reservations, so nothing is settled: a call with an ID is a charge of its
// hits, also if the store has a reservation of the ID, and a refund with an ID changes
// nothing. The hits of a reservation that is made here stay charged, and its ID is new to the
// store. So each hit that was reserved or used is charged at least once.
func (e *entry) decide(op *backends.Op, replicas int64) backends.Reply {
	on := *op
	if op.Identified() {
		on, _ = backends.Record{}.Against(op)
	}
	if on.Verb.GivesBack() && !op.Oldest {
		if owed := e.owes(&on); owed.Less(on.By) {
			on.By = owed
		}
	}
	l, divided := e.local, on.Alone(replicas)
	r := l.divided.Step(&divided)
	r.Replicas, r.Account = replicas, nil // the store cuts hits above the debt
	if on.Overdraws() {
		l.mine.Step(&on)
	} else if on.By != (backends.Amount{}) && r.Admitted > 0 {
		charge(&l.mine, on, r.Admitted)
	}
	l.decided(op)
	return r
}

// owes is the amount that was admitted here and counts at op.Now: the hits of windows
// that have ended are not in it, nor is the part of a meter that has drained.
func (e *entry) owes(op *backends.Op) backends.Amount {
	if e.local == nil {
		return backends.Amount{}
	}
	look := op.Look()
	look.Hold = nil
	known, mine := began(op, e.known), e.local.mine
	before, now := known.Step(&look).Value, mine.Step(&look).Value
	if now.Less(before) && !op.Oldest {
		return backends.Amount{}
	}
	return now.Sub(before, op.Den)
}
