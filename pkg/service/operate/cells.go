package operate

import (
	"context"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/service"
)

// cell is the cell of a limit, the operation that charges it the hits of a request, and its change.
type cell struct {
	*descriptors.Limit
	Change
	op      backends.Op
	id      algorithms.Identity
	domain  string
	entries []descriptors.Entry // of the descriptor
	plan    string              // [descriptors.Rule.Plan]
	caller  string              // the name of the caller that the limits count
	shown   *explain.Limit      // in the document
	now     *explain.Cell       // nil if it is not known
	seen    backends.Reply      // to the look at it; like now
	policy  string              // decides the limit whenever the store cannot
	watched bool                // the limit is watched for the key
	// replacedBy is the path of the rule that replaces the limit in the request, or "".
	replacedBy string
	shared     bool // envoyproxy/ratelimit counts in it, too
	// ruled is the limit of the rule that counts in the same cell as a limit that only the
	// request brings along, or that a grant has raised; else nil. It bounds grants, too.
	ruled *descriptors.Limit
	// pool and borrowed, of a limit that borrows, are the cell of its pool and that of what the key
	// has borrowed. Of these two, of is the limit that borrows.
	pool, borrowed, of *cell
}

// cellsOf returns the cells of all limits of t, also of those that are replaced: each before its pool
// and what its key has borrowed. now is the time of the operations in µs.
func (o *Operator) cellsOf(p *service.Plan, t *service.Target, now int64) (cells []*cell) {
	limits := t.All()
	if len(limits) == 0 {
		return nil
	}
	id, rule, plan, caller := p.Identity(nil, t), service.OverridePath(p.Domain.Name), "", p.Caller(t)
	if t.Rule != nil {
		rule, plan = t.Rule.Path, t.Rule.Plan
		if t.Rule.Pool != "" {
			id = p.PoolIdentity(t.Rule)
		}
	}
	add := func(of *cell, l *descriptors.Limit, id algorithms.Identity) *cell {
		c := &cell{
			Limit: l, id: id, domain: p.Domain.Name, entries: t.Entries, plan: plan, caller: caller, of: of, shared: id.ByStart, policy: o.cfg.Policy(l).String(),
		}
		if of != nil {
			c.policy = of.policy
		}
		l.Plan(&c.op, id, algorithms.Charge{Now: now, Cost: t.Hits, Refund: t.Refund, Patience: l.MaxDelay.Microseconds()})
		c.Rule, c.Key = rule, o.storedKey(c.op.Key)
		cells = append(cells, c)
		return c
	}
	for i := range limits {
		l := &limits[i]
		c := add(nil, l, service.OfLimit(id, l))
		c.Entries = o.told(t)
		if b := l.Borrow; b != nil {
			c.pool = add(c, &b.Pool.Limits[0], p.PoolIdentity(b.Pool))
			c.borrowed = add(c, &b.Cell, p.BorrowIdentity(t, b))
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

// told are the entries of t as changes tell them.
func (o *Operator) told(t *service.Target) []descriptors.Entry {
	if t.Rule != nil && t.Rule.Pool != "" || o.cfg.Values != nil || len(descriptors.Pairs(t.Entries)) > maxGrantKey {
		return nil
	}
	return t.Entries
}

// ruled is the limit of t's rule that counts in the cell of op, or nil.
func (o *Operator) ruled(p *service.Plan, t *service.Target, op *backends.Op) *descriptors.Limit {
	own := service.Target{Descriptor: &service.Descriptor{Entries: t.Entries}, Rule: t.Rule.Ungranted()}
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

// look fills in now and Before of the cells, or Err. The operations have no lease and cost nothing, so
// neither leases nor the local cache answer them.
func (o *Operator) look(ctx context.Context, cells []*cell) {
	looks := make([]backends.Op, len(cells))
	for i, c := range cells {
		looks[i] = c.op.Unleased().Probe()
	}
	replies := o.apply(ctx, looks)
	for i, c := range cells {
		r := &replies[i]
		if c.Err = r.Err; c.Err != nil {
			continue
		}
		is := c.Judge(&c.op, r)
		c.seen = *r
		c.Before = usage(c.Limit, &c.op, r, o.grants.last(c.op.Key))
		c.now = &explain.Cell{Usage: *c.Before, Reset: explain.Duration(is.Reset)}
		if c.op.Span == backends.Sliding && c.now.Granted > 0 { // the next window counts what was used before the grant
			c.now.Reset = explain.Duration(time.Duration(c.windowEnds(&c.op, 0)-r.Now)*time.Microsecond + c.Window)
		}
		if c.now.Never = !is.Allowed && c.op.Unused().Admitted < c.op.Times; !c.now.Never {
			c.now.Next = new(explain.Duration(is.RetryAfter))
		}
		if reached := c.Reached(c.Capacity()-is.Remaining, c.Capacity()); reached != nil {
			c.now.Threshold = reached.At.String()
		}
	}
	for _, c := range cells {
		if c.now == nil || c.pool == nil || !c.pool.passes() || !c.borrowed.passes() {
			continue
		}
		if next := max(*c.pool.now.Next, *c.borrowed.now.Next); c.now.Never || next < *c.now.Next {
			c.now.Next, c.now.Never = &next, false
		}
	}
}

// passes reports whether the hits of the request pass c now or later.
func (c *cell) passes() bool { return c.now != nil && !c.now.Never }

// apply has the store apply operations. The error of each is in its reply.
func (o *Operator) apply(ctx context.Context, ops []backends.Op) []backends.Reply {
	b := backends.Batch{Ops: ops, Replies: make([]backends.Reply, len(ops))}
	if len(ops) > 0 {
		_ = o.cfg.Store.Apply(ctx, &b)
	}
	return b.Replies
}

// usage is the use of l's cell in r, a reply for the cell of op, which was granted hits last.
func usage(l *descriptors.Limit, op *backends.Op, r *backends.Reply, last grant) *explain.Usage {
	value := l.Used(op, r)
	granted := last.left(op, value)
	if l.Overdraft > 0 { // a grant pays the hits in use
		granted = max(0, -value)
	}
	return &explain.Usage{Count: value + granted, Granted: granted, Remaining: l.Judge(op, r).Remaining}
}
