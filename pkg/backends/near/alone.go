package near

import "example.org/rls/pkg/backends"

// alone is the state of a cell that this process decides while the store does not.
// own less the cell as the store last reported it is the amount that is owed: it was
// admitted here and is not charged to the store.
type alone struct {
	op backends.Op // the last operation that was decided here; without Key if that is longer than maxKey
	// Both start from the last state that the store reported. share counts each
	// admitted hit once for every replica, and decides; own counts it once.
	share, own local
	base       backends.Cell // that state
	counted    bool          // in Store.debts
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

// value is the cell's value as of op.
func (c *local) value(op *backends.Op) backends.Amount {
	look := op.Look()
	if op.Kind == backends.List {
		return c.step(&look, 0).Value
	}
	_, r := c.Cell.Step(&look, 0)
	return r.Value
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

// decide decides op by the share of one of the replicas.
func (a *alone) decide(op *backends.Op, prev, replicas int64) backends.Reply {
	if op.Refund { // of hits that were admitted here; the store keeps the others
		if owed := a.owed(op); owed.Less(op.By) {
			smaller := *op
			smaller.By = owed
			op = &smaller
		}
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
	k := local{Cell: a.base}
	if op.Kind == backends.List && op.Now >= k.Until {
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

// owes reports whether hits may be owed that can be charged.
func (e *entry) owes() bool { return e.alone != nil && e.alone.op.Key != "" && e.alone.counted }

// decideAlone decides the operations of b that the store left undecided and that this
// process may decide (Local), and reports whether there are any. If a group or the
// batch is refused now, the charges of its operations are given back.
func (s *Store) decideAlone(b *backends.Batch) bool {
	var mine []int
	for i := range b.Ops {
		if b.Replies[i].Err != nil && b.Ops[i].IfUndecided == backends.Local {
			mine = append(mine, i)
		}
	}
	if len(mine) == 0 {
		return false
	}
	charged := make([]int64, len(b.Ops))
	b.Decide()
	for i := range b.Ops {
		charged[i] = b.Charges(i)
	}
	for _, i := range mine {
		s.stand(&b.Ops[i], &b.Replies[i])
		charged[i] = b.Replies[i].Admitted
	}
	b.Decide()
	for i := range b.Ops {
		op, r := &b.Ops[i], &b.Replies[i]
		surplus := charged[i] - b.Charges(i)
		switch {
		case surplus <= 0 || op.Refund || op.By == (backends.Amount{}):
		case r.Replicas > 0:
			back := op.Inverse(r.Until)
			back.Times = surplus
			s.stand(&back, &backends.Reply{})
		default:
			s.unwind(op, r, surplus)
		}
	}
	return true
}

// stand decides op on this process's copy of its cell.
func (s *Store) stand(op *backends.Op, r *backends.Reply) {
	replicas := s.replicas()
	stem, _, sh := s.stemOf(op)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.find(stem, op.Key)
	if e == nil {
		e = s.add(sh, stem, op)
	}
	if e.alone == nil {
		e.alone = newAlone(op, e.base(op), backends.Amount{}, replicas)
	}
	prev := e.prev
	if op.Prev != "" {
		prev = max(prev, sh.find(stem, op.Prev).count())
	}
	*r = e.alone.decide(op, prev, replicas)
	s.pay.refused.Store(true)
	if r.Admitted > 0 && op.By != (backends.Amount{}) {
		s.owe(sh, e)
	}
}

// base is the cell as the store last reported it, less the hits that this process holds.
func (e *entry) base(op *backends.Op) backends.Cell {
	c := e.known
	if e.lease != nil && !e.credit(op, op.Now) {
		c.Value = e.view(op, op.Now)
	}
	return c
}

// count is the count of the cell in the decisions of the window after it; e may be nil.
func (e *entry) count() int64 {
	switch {
	case e == nil:
		return 0
	case e.alone != nil:
		return e.alone.share.Value.Whole
	}
	return e.known.Value.Whole
}

// unwind gives back a charge of the store, because its group or batch is refused.
func (s *Store) unwind(op *backends.Op, r *backends.Reply, times int64) {
	stem, _, sh := s.stemOf(op)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.find(stem, op.Key)
	if e == nil {
		e = s.add(sh, stem, op)
	}
	amount := op.By.Times(times, op.Den)
	s.hold(sh, e, op, amount.Units(op.Unit, op.Den), r)
	r.Value = r.Value.Sub(amount, op.Den)
}

// hold takes hits that the store has charged and that nobody uses into the balance of
// op's cell, and has them given back.
func (s *Store) hold(sh *shard, e *entry, op *backends.Op, hits int64, r *backends.Reply) {
	if len(op.Key) > maxKey {
		s.count.lost.Add(uint64(hits))
		return
	}
	if e.lease == nil {
		e.lease = &lease{op: *op}
	}
	e.lease.hold(portion{hits: hits, top: r.Value, until: r.Until, void: true})
	sh.work(e)
	s.enqueue(sh, e)
}

// rebase starts the copies anew from the cell as the store reported it at now, if an
// amount is still owed. Otherwise the store decides alone.
func (s *Store) rebase(sh *shard, e *entry, now int64, owed backends.Amount) {
	op := e.alone.op.At(now)
	s.endDebt(e)
	if owed != (backends.Amount{}) {
		e.alone = newAlone(&op, e.base(&op), owed, s.replicas())
		s.owe(sh, e)
	}
}

// replicas is the number of processes that divide a limit.
func (s *Store) replicas() int64 { return int64(min(max(s.opts.Replicas(), 1), maxReplicas)) }

// owe notes that e owes hits to the store.
func (s *Store) owe(sh *shard, e *entry) {
	if !e.alone.counted && e.alone.op.Key != "" {
		e.alone.counted = true
		s.debts.Add(1)
		sh.work(e)
	}
}

// endDebt ends the decisions on copies of e's cell.
func (s *Store) endDebt(e *entry) {
	if e.alone != nil && e.alone.counted {
		s.debts.Add(-1)
	}
	e.alone = nil
}
