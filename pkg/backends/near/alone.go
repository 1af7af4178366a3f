package near

import "example.org/rls/pkg/backends"

// alone is the state of a cell that this process decides while the store does not.
// own less base is the amount that is owed.
type alone struct {
	op   backends.Op   // the last operation that was decided here; without Key if that is longer than maxKey
	base backends.Cell // the last state that the store reported, held hits included; both copies start from it
	// share counts each admitted hit once for every replica, and decides; own counts it
	// once.
	share, own local
}

// local is a copy of a cell, of any kind.
type local struct {
	backends.Cell
	log backends.Log // of a List
}

// step applies op and returns the reply. prev is the count of Op.Prev's cell.
func (c *local) step(op *backends.Op, prev int64) (r backends.Reply) {
	if op.Kind != backends.List {
		c.Cell, r = c.Cell.Step(op, prev)
		return r
	}
	c.log, r = c.log.Step(op)
	c.Cell = backends.Cell{Value: r.Value, Until: r.Until}
	return r
}

// charge raises the cell by op's cost, times times, whatever its value is.
func (c *local) charge(op backends.Op, times int64) {
	op.Max, op.Times, op.ChargeDenied = backends.NoMax, times, false
	c.step(&op, 0)
}

// newAlone returns the state of op's cell that begins as base, with an amount that is
// owed already.
func newAlone(op *backends.Op, base backends.Cell, owed backends.Amount, replicas int64) *alone {
	a := &alone{base: base}
	a.own.Cell, a.share.Cell = base, base
	if op.Kind == backends.List && base.Value.Whole != 0 {
		// The times of its charges are not known: as if all came with the last.
		e := backends.Cost{At: base.Until - op.Window, Hits: base.Value.Whole}
		a.own.log, a.share.log = backends.Log{e}, backends.Log{e}
	}
	a.decided(op)
	if owed != (backends.Amount{}) {
		again := *op
		again.By, again.Refund = owed, false
		a.own.charge(again, 1)
		a.share.charge(again.Alone(replicas), 1)
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
	r := a.share.step(&mine, prev)
	r.Replicas = replicas
	if op.By != (backends.Amount{}) && r.Admitted > 0 {
		a.own.charge(*op, r.Admitted)
	}
	a.decided(op)
	return r
}

// owed is the amount that was admitted here and counts at op.Now: the hits of windows
// that have ended are not in it, nor is the part of a meter that has drained.
func (a *alone) owed(op *backends.Op) backends.Amount {
	look := op.Look()
	base, own := local{Cell: a.base}, a.own
	if op.Kind == backends.List && op.Now >= a.base.Until {
		base.Value = backends.Amount{}
	} else if op.Kind != backends.List {
		base.Value = base.step(&look, 0).Value
	}
	v := own.step(&look, 0).Value
	if v.Less(base.Value) {
		return backends.Amount{}
	}
	return v.Sub(base.Value, op.Den)
}

// owed returns the amount that is owed to e's cell at now, and the operation that charges
// it, whose By is missing. A hit that was admitted here waits for no turn.
func (e *entry) owed(now int64) (op backends.Op, owed backends.Amount) {
	if e.alone == nil || e.alone.op.Key == "" {
		return op, owed
	}
	if op = background(&e.alone.op); op.Kind == backends.Meter && op.Furthest != backends.NoMax {
		op.Max = op.Furthest
	}
	op = op.At(now)
	return op, e.alone.owed(&op)
}

// decideAlone decides the operations of b that the store left undecided and that this
// process may decide (Local), and reports whether there are any. If a group or the
// batch is refused now, the charges of its operations are given back.
func (s *Store) decideAlone(b *backends.Batch) (any bool) {
	charged := make([]int64, len(b.Ops))
	b.Decide()
	for i := range b.Ops {
		charged[i] = b.Charges(i)
	}
	for i := range b.Ops {
		op, r := &b.Ops[i], &b.Replies[i]
		if r.Err != nil && op.IfUndecided == backends.Local {
			s.stand(op, r)
			any, charged[i] = true, r.Admitted
		}
	}
	b.Decide()
	for i := range b.Ops {
		op, r := &b.Ops[i], &b.Replies[i]
		surplus := charged[i] - b.Charges(i)
		switch {
		case !any || surplus <= 0 || op.Refund || op.By == (backends.Amount{}):
		case r.Replicas > 0:
			back := op.Inverse(r.Until)
			back.Times = surplus
			s.stand(&back, &backends.Reply{})
		default:
			s.unwind(op, r, surplus)
		}
	}
	return any
}

// stand decides op on this process's copy of its cell.
func (s *Store) stand(op *backends.Op, r *backends.Reply) {
	stem, _, sh := s.stemOf(op)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e, replicas := s.entryOf(sh, stem, op), s.replicas()
	if e.alone == nil {
		e.alone = newAlone(op, e.known, backends.Amount{}, replicas)
		sh.work(e)
	}
	prev := e.prev
	if p := sh.find(stem, op.Prev); op.Prev != "" && p != nil {
		count := p.known.Value.Whole
		if p.alone != nil {
			count = p.alone.share.Value.Whole
		}
		prev = max(prev, count)
	}
	*r = e.alone.decide(op, prev, replicas)
	s.pay.refused.Store(true)
}

// unwind gives back a charge of the store, because its group or batch is refused.
func (s *Store) unwind(op *backends.Op, r *backends.Reply, times int64) {
	stem, _, sh := s.stemOf(op)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	amount := op.By.Times(times, op.Den)
	s.giveBack(sh, s.entryOf(sh, stem, op), op, amount.Units(op.Unit, op.Den))
	r.Value = r.Value.Sub(amount, op.Den)
}

// giveBack has hits given back that the store has charged and that nobody may use.
func (s *Store) giveBack(sh *shard, e *entry, op *backends.Op, hits int64) {
	if len(op.Key) > maxKey {
		sh.leases.Lost += uint64(hits)
		return
	}
	if e.lease == nil {
		e.lease = &lease{op: *op}
		sh.work(e)
	}
	e.lease.surplus += hits
	s.enqueue(sh, e)
}

// rebase starts the copies anew from the cell as the store reported it at now, if an
// amount is still owed. Otherwise the store decides alone.
func (s *Store) rebase(e *entry, now int64, owed backends.Amount) {
	op := e.alone.op.At(now)
	if e.alone = nil; owed != (backends.Amount{}) {
		e.alone = newAlone(&op, e.known, owed, s.replicas())
	}
}

// replicas is the number of processes that divide a limit.
func (s *Store) replicas() int64 { return int64(min(max(s.opts.Replicas(), 1), maxReplicas)) }
