package service

import (
	"context"
	"math"
	"slices"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
)

// loan is a limit that asks its pool: about the pool's cell, and about the cell that counts
// what the key has borrowed. Both are charged, or none.
type loan struct {
	looks   bool // none is charged, because another limit denies: the limit's own verdict is asked for
	ops     [2]backends.Op
	replies [2]backends.Reply
}

// again is a second batch of a request.
type again struct {
	backends.Batch
	into []*backends.Reply // where the replies go
}

// next is a group that differs from that of the last operation.
func (a *again) next() uint8 {
	if n := len(a.Ops); n > 0 {
		return a.Ops[n-1].Group%2 + 1
	}
	return 1
}

func (a *again) add(op backends.Op, group uint8, into *backends.Reply) {
	op.Group = group
	a.Ops, a.Replies, a.into = append(a.Ops, op), append(a.Replies, backends.Reply{}), append(a.into, into)
}

func (a *again) apply(ctx context.Context, store backends.Store) {
	if len(a.Ops) == 0 {
		return
	}
	_ = store.Apply(ctx, &a.Batch) // its error is in the replies
	for i, r := range a.into {
		*r = a.Replies[i]
	}
}

// borrow asks the pools of the limits that have denied, in place of these limits. An
// all-or-nothing batch that was refused is asked again as a whole if the pools can help. Else
// each descriptor is asked again whose limits were not charged because one of them denied.
// Between the two batches other callers may come first.
func (p *Plan) borrow(ctx context.Context) {
	if !slices.ContainsFunc(p.Verdicts, func(v Verdict) bool { return v.asks() }) {
		return
	}
	var enforced, watched again
	enforced.AllOrNothing = p.makeLoans()
	aside := &enforced // for loans that have no part in what is charged
	if enforced.AllOrNothing {
		aside = &watched
	}
	for i := range p.Targets {
		t := &p.Targets[i]
		checks := p.checks(t)
		lent := slices.ContainsFunc(checks, func(v Verdict) bool { return v.lends() })
		own := uint8(0)
		if lent || t.end-t.first > 1 {
			own = enforced.next()
		}
		for j := range checks {
			v := &checks[j]
			if v.lends() {
				p.lend(ctx, &enforced, own, t, v)
				continue
			}
			if !v.Watched && (enforced.AllOrNothing || lent && t.Hits > 0) && !p.batch.Regardless(t.first+j) { // else it is charged
				enforced.add(*v.op, own, v.reply)
			}
			if v.loan != nil {
				p.lend(ctx, aside, aside.next(), t, v)
			}
		}
	}
	enforced.apply(ctx, p.cfg.Store)
	watched.apply(ctx, p.cfg.Store)
	if enforced.AllOrNothing {
		p.batch.Refused = enforced.Refused
	}
}

// asks reports whether the limit of v borrows and has denied, or is full for a check.
func (v *Verdict) asks() bool {
	return v.Limit.Borrow != nil && v.reply.Err == nil && !v.op.Verb.GivesBack() &&
		(v.reply.Admitted < v.op.Times || v.op.ReadOnly() && v.Limit.Judge(v.op, v.reply).Remaining == 0)
}

// lends reports whether the pool is charged in place of the limit of v, which is enforced.
func (v *Verdict) lends() bool { return v.loan != nil && !v.loan.looks && !v.Watched }

// makeLoans makes a loan for each limit that asks its pool. It only looks if the limit would
// not be charged even if the pools helped. whole reports whether the pools can help a batch
// that was refused.
func (p *Plan) makeLoans() (whole bool) {
	var trial backends.Part // the batch as if the pools had helped
	trial.AllOrNothing = p.batch.AllOrNothing
	for j := range p.Verdicts {
		v := &p.Verdicts[j]
		r := *v.reply
		if v.asks() {
			v.loan, r.Admitted = &loan{}, v.op.Times
		}
		if !v.Watched {
			trial.Add(&p.batch, j)
			trial.Replies[len(trial.Replies)-1] = r
		}
	}
	trial.Decide()
	for i := range trial.Ops {
		if l := p.Verdicts[trial.At(i)].loan; l != nil {
			l.looks = !trial.Passes(i)
			whole = whole || p.batch.Refused && !l.looks
		}
	}
	return whole
}

// lend adds the operations of the loan of v, a limit of t. What a limit that is not enforced asks of a pool
// is only a look, so that it takes nothing from others.
func (p *Plan) lend(ctx context.Context, to *again, group uint8, t *Target, v *Verdict) {
	l, b := v.loan, v.Limit.Borrow
	charge := algorithms.Charge{Now: p.now, Cost: t.Hits, AdmittedOnly: true, Patience: patience(ctx)}
	b.Pool.Limits[0].Plan(&l.ops[0], p.PoolIdentity(b.Pool), charge)
	b.Cell.Plan(&l.ops[1], p.BorrowIdentity(t, b), charge)
	for i, op := range l.ops {
		if l.looks || i == 0 && (v.Watched || t.Shadow() && !p.cfg.ShadowMode) {
			op = op.Probe()
		}
		op.Role, op.IfUndecided = v.op.Role, v.op.IfUndecided
		to.add(op, group, &l.replies[i])
	}
}

// PoolIdentity is the part that all keys of a pool share.
func (p *Plan) PoolIdentity(pool *descriptors.Rule) algorithms.Identity {
	return algorithms.Identity{Prefix: p.cfg.KeyPrefix, ID: descriptors.AppendID(nil, p.Domain.Name, pool.PoolEntries(), nil)}
}

// BorrowIdentity is what the keys of b's cells have in common for t.
func (p *Plan) BorrowIdentity(t *Target, b *descriptors.Borrow) algorithms.Identity {
	return algorithms.Identity{Prefix: p.cfg.KeyPrefix, ID: b.AppendID(p.appendID(nil, t))}
}

// settle makes the decision of the pool a part of v, the verdict of the limit that asked
// it with an operation of its own first. The error says why the pool left it undecided.
func (l *loan) settle(v *Verdict) (undecided error) {
	b := v.Limit.Borrow
	limits := [2]*descriptors.Limit{&b.Pool.Limits[0], &b.Cell}
	is := algorithms.Decision{Allowed: true, Remaining: math.MaxInt64, Reset: v.Is.Reset}
	never := false // however long the caller waits
	for i := range limits {
		op, r := &l.ops[i], &l.replies[i]
		if r.Err != nil {
			undecided, never = r.Err, true
			continue
		}
		one := limits[i].Judge(op, r)
		if v.Hits == 0 && one.Remaining == 0 { // a check passes if one hit remains
			full := *r
			full.Admitted, full.Beside = 0, op.Unit
			one = limits[i].Judge(op, &full)
		}
		is.Allowed = is.Allowed && one.Allowed
		is.Remaining, is.RetryAfter = min(is.Remaining, one.Remaining), max(is.RetryAfter, one.RetryAfter)
		never = never || tooMuch(op)
	}
	switch {
	case undecided != nil && is.Allowed && !v.Is.Allowed:
		return undecided
	case undecided == nil:
		v.Pool = &Verdict{Rule: b.Pool, Limit: limits[0], Key: l.ops[0].Key, Entries: v.Entries, Hits: v.Hits, Shadow: v.Shadow, Watched: v.Watched, asker: v.Limit}
		v.Pool.Take(&l.ops[0], &l.replies[0])
		v.Pool.Is.Allowed, v.Pool.Is.RetryAfter = is.Allowed, is.RetryAfter
		if is.Allowed {
			v.Is, v.Counted = is, v.Counted && v.Pool.Counted
			return nil
		}
	}
	if !v.Is.Allowed && !never && (tooMuch(v.op) || is.RetryAfter < v.Is.RetryAfter) {
		v.Is.RetryAfter = is.RetryAfter
	}
	return nil
}

// tooMuch reports whether a charge does not even fit an empty cell.
func tooMuch(op *backends.Op) bool { return op.Unused().Admitted < op.Times }
