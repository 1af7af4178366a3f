package operate

import (
	"context"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/explain"
	"example.org/rls/pkg/service"
)

// cell is the cell of a limit, and the operation that charges it the hits of a request.
type cell struct {
	*descriptors.Limit
	op           backends.Op
	id           algorithms.Identity
	domain, rule string
	shown        *explain.Limit // in the document
	policy       descriptors.Policy
	watched      bool   // the limit is watched for the key
	replacedBy   string // the rule that replaces the limit in the request, or ""
	shared       bool   // envoyproxy/ratelimit counts in it, too
	// ruled is the limit of the rule that counts in the same cell as a limit that only the
	// request brings along; else nil. It bounds grants, too.
	ruled *descriptors.Limit
	// pool and borrowed, of a limit that borrows, are the cell of its pool and that of what the key
	// has borrowed. Of these two, of is the limit that borrows.
	pool, borrowed, of *cell

	// before is the use that was found, and after that after a change; nil if it is not known.
	before, after *explain.Usage
	reset         time.Duration // until the full quota is back
	// next is how long until the hits of the request would pass this limit if no others came. With
	// never they do not pass however long the caller waits.
	next  time.Duration
	never bool
	err   error // of the store, or of what a change asks
}

// cellsOf returns the cells of all limits of t, also of those that are replaced: each before its pool
// and what its key has borrowed. now is the time of the operations in µs.
func (o *Operator) cellsOf(p *service.Plan, t *service.Target, now int64) (cells []*cell) {
	limits := t.All()
	if len(limits) == 0 {
		return nil
	}
	id, rule := p.Identity(nil, t), service.OverridePath(p.Domain.Name)
	if t.Rule != nil {
		rule = t.Rule.Path
		if t.Rule.Pool != "" {
			id = p.PoolIdentity(t.Rule)
		}
	}
	add := func(of *cell, l *descriptors.Limit, id algorithms.Identity) *cell {
		c := &cell{Limit: l, id: id, domain: p.Domain.Name, rule: rule, of: of, shared: id.ByStart, policy: o.cfg.Policy(l)}
		if of != nil {
			c.policy = of.policy
		}
		l.Plan(&c.op, id, algorithms.Charge{Now: now, Cost: t.Hits, Refund: t.Refund, Patience: l.MaxDelay.Microseconds()})
		cells = append(cells, c)
		return c
	}
	for i := range limits {
		l := &limits[i]
		c := add(nil, l, service.OfLimit(id, l))
		if b := l.Borrow; b != nil {
			c.pool, c.borrowed = add(c, &b.Pool.Limits[0], p.PoolIdentity(b.Pool)), add(c, &b.Cell, p.BorrowIdentity(t, b))
		}
		if t.Limit != nil {
			continue
		}
		c.watched = p.Watched(t, l)
		if by := p.Replacer(l.Name); by != nil {
			c.replacedBy = by.Path
		}
	}
	return cells
}

// ruled is the limit of t's rule that counts in the cell of op, or nil.
func (o *Operator) ruled(p *service.Plan, t *service.Target, op *backends.Op) *descriptors.Limit {
	own := service.Target{Descriptor: &service.Descriptor{Entries: t.Entries}, Rule: t.Rule}
	if t.Rule == nil {
		return nil
	}
	for _, c := range o.cellsOf(p, &own, op.Now) {
		if c.op.Key == op.Key {
			return c.Limit
		}
	}
	return nil
}

// maxBatch bounds the cells of one batch for the store.
const maxBatch = 100

// look fills in before, reset and next of the cells, or err. The operations have no lease and cost
// nothing, so neither leases nor the local cache answer them.
func (o *Operator) look(ctx context.Context, cells []*cell) {
	looks := make([]backends.Op, len(cells))
	for i, c := range cells {
		looks[i] = c.op.Unleased().Probe()
	}
	replies := o.apply(ctx, looks)
	for i, c := range cells {
		r := &replies[i]
		if c.err = r.Err; c.err != nil {
			continue
		}
		is := c.Judge(&c.op, r)
		c.before, c.reset, c.next = o.usage(c.Limit, &c.op, r), is.Reset, is.RetryAfter
		c.never = !is.Allowed && c.op.Unused().Admitted < c.op.Times
	}
	for _, c := range cells {
		if pool, own := c.pool, c.borrowed; pool != nil && pool.err == nil && own.err == nil && !pool.never && !own.never {
			if next := max(pool.next, own.next); c.never || next < c.next {
				c.next, c.never = next, false
			}
		}
	}
}

// state is the state of a cell that was looked at.
func (c *cell) state() *explain.State {
	if c.err != nil {
		return &explain.State{Policy: c.policy.String(), Error: c.err.Error()}
	}
	shown := &explain.Cell{Usage: *c.before, Reset: explain.Duration(c.reset), Never: c.never}
	if reached := c.Reached(c.Capacity()-c.before.Remaining, c.Capacity()); reached != nil {
		shown.Threshold = reached.At.String()
	}
	if !c.never {
		shown.Next = new(explain.Duration(c.next))
	}
	return &explain.State{Cell: shown, Policy: c.policy.String()}
}

// apply has the store apply operations. The error of each is in its reply.
func (o *Operator) apply(ctx context.Context, ops []backends.Op) []backends.Reply {
	b := backends.Batch{Ops: ops, Replies: make([]backends.Reply, len(ops))}
	if len(ops) > 0 {
		_ = o.cfg.Store.Apply(ctx, &b)
	}
	return b.Replies
}

// usage is the use of l's cell in r, a reply for the cell of op.
func (o *Operator) usage(l *descriptors.Limit, op *backends.Op, r *backends.Reply) *explain.Usage {
	value := l.Used(op, r)
	granted := o.grants.left(op, value)
	if l.Overdraft > 0 { // a grant pays the hits in use
		granted = max(0, -value)
	}
	return &explain.Usage{Count: value + granted, Granted: granted, Remaining: l.Judge(op, r).Remaining}
}
