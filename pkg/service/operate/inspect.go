package operate

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"example.org/rls/internal/spelling"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/service"
)

// View says what [Operator.Inspect] tells.
type View struct {
	path  bool // the descriptors that were looked at
	cells bool // asks the store
	plain bool // looks at limits as the rules have them, without grants until a time
}

var (
	// Trace tells the way to the limits and names the cells. It asks no store.
	Trace = View{path: true}
	// Explain tells the way to the limits and reads the cells.
	Explain = View{path: true, cells: true}
	// Look reads the cells.
	Look = View{cells: true}
)

// Inspect matches the request of q without charging it, and tells its limits and their cells.
//
// Its errors are those of Decide for a request that is wrong and while no rules are loaded, and
// NotFound for a pool that does not exist. A domain without rules is no error, and a store that
// fails is an Error of each limit concerned.
func (o *Operator) Inspect(ctx context.Context, q *Question, view View) (explain.Document, error) {
	doc, cells, err := o.find(ctx, q, view)
	if err == nil && view.cells {
		o.look(ctx, cells)
		for _, c := range cells {
			c.shown.State = &explain.State{Cell: c.now, Policy: c.policy}
			if c.Err != nil {
				c.shown.Error = c.Err.Error()
			}
		}
	}
	return doc, err
}

// find makes the document without the states of cells, and a cell for each of its limits.
func (o *Operator) find(ctx context.Context, q *Question, view View) (doc explain.Document, cells []*cell, err error) {
	tree, r := o.Tree(), &q.Request
	doc.Domain = q.Domain
	var pool *descriptors.Rule
	if q.Pool != "" {
		if pool, err = poolOf(tree, q); err != nil {
			return doc, nil, err
		}
		r = &service.Request{Domain: r.Domain, Hits: r.Hits}
		r.Descriptors = []service.Descriptor{{Entries: pool.PoolEntries()}}
	}
	if err = r.Validate(); err == nil && tree == nil {
		err = service.ErrNoRules
	}
	if err != nil {
		return doc, nil, err
	}
	p := o.Plan(tree.Domain(r.Domain))
	if p.Domain != nil {
		err = p.Match(ctx, r, true)
	}
	if err != nil {
		return doc, nil, err
	}
	for i := range r.Descriptors {
		from := &r.Descriptors[i]
		d := explain.Descriptor{Entries: append([]descriptors.Entry{}, from.Entries...), Limits: []explain.Limit{}}
		if d.Hits = int64(min(r.Cost(from), uint64(backends.MaxCost))); from.Refund {
			d.Hits = -d.Hits
		}
		if view.path {
			d.Path = []descriptors.Step{}
		}
		if p.Domain == nil {
			d.Why, d.Suggestions = "no rules for domain "+descriptors.Printable(r.Domain), tree.Suggest(r.Domain)
		} else {
			t := &p.Targets[i]
			if pool != nil {
				t.Rule, view.path = pool, false
			}
			cells = append(cells, o.describe(p, t, &d, q.Seen[i], view)...)
		}
		doc.Descriptors = append(doc.Descriptors, d)
	}
	return doc, cells, nil
}

// poolOf is the pool that q names.
func poolOf(tree *descriptors.Tree, q *Question) (*descriptors.Rule, error) {
	if tree == nil {
		return nil, service.ErrNoRules
	}
	switch {
	case len(q.Descriptors) > 0:
		return nil, service.Wrong("pool and descriptors are both set: want one of them")
	case q.Domain == "":
		return nil, q.Validate()
	}
	var pools map[string]*descriptors.Rule
	if d := tree.Domain(q.Domain); d != nil {
		pools = d.Pools
	}
	switch pool := pools[q.Pool]; {
	case pool != nil:
		return pool, nil
	case len(pools) == 0:
		return nil, service.Errorf(codes.NotFound, "the domain %s has no pools", q.Domain)
	}
	return nil, service.Errorf(codes.NotFound, "the domain %s has no pool %q%s", q.Domain, q.Pool, spelling.Suggest(q.Pool, slices.Sorted(maps.Keys(pools))))
}

const (
	// maxSeen bounds the descriptors of the rules in the Path of a descriptor, and
	// maxSeenInAll bounds them in all Paths of a document (see [descriptors.Domain.Explain]).
	maxSeen      = 100
	maxSeenInAll = 4000
	// maxLooks bounds the descriptors of the rules that are looked at for the suggestions of
	// a document.
	maxLooks = 200_000
)

// describe fills in d, which is about t, except the states of cells, and returns the cells of t. An earlier
// request brought the limit of t at a time, or this request does.
func (o *Operator) describe(p *service.Plan, t *service.Target, d *explain.Descriptor, at time.Time, v View) []*cell {
	if v.plain {
		t.Rule = t.Rule.Ungranted()
	}
	if l := t.Limit; l != nil {
		d.Override = &explain.Override{Rate: *l, Seen: at}
		if l.Multiplier == 1 {
			d.Override.Multiplier = 0
		}
	}
	if t.Rule == nil || v.path {
		trace := p.Domain.Explain(d.Entries, min(maxSeen, maxSeenInAll/len(p.Targets)))
		if d.Override == nil {
			d.Why = trace.Why
		}
		if v.path {
			d.Path = append(d.Path, trace.Path...)
		}
	}
	plan, laid := "", descriptors.Laid(nil)
	switch {
	case d.Override != nil:
		d.Rule = service.OverridePath(p.Domain.Name)
	case t.Rule != nil:
		d.Rule, plan, laid = t.Rule.Path, t.Rule.Plan, t.Rule.Laid
	case len(t.All()) == 0:
		d.Suggestions = p.Domain.Suggest(d.Entries, maxLooks/len(p.Targets))
	}
	if t.Rule != nil && t.Rule.Pool == "" {
		if row := t.Rule.Row(d.Entries); row.Line > 0 {
			d.Row = row.String()
		}
	}
	d.Shadow, d.Quota = t.Shadow() || o.cfg.ShadowMode, p.Quota(t)
	if t.Unlimited() {
		d.Limits = append(d.Limits, explain.Limit{Rule: d.Rule, Unlimited: true, Plan: plan, Overlay: laid})
	}
	cells := o.cellsOf(p, t, o.cfg.Store.Now())
	d.Limits = slices.Grow(d.Limits, len(cells)) // cells point at its elements
	for _, c := range cells {
		if c.of != nil {
			continue
		}
		l := o.limitOf(d.Rule, c)
		if l.Plan = plan; d.Override != nil {
			l.Overlay = maps.Clone(l.Overlay)
			for _, brought := range []string{"requests_per_unit", "unit", "unit_multiplier", "name", "replaces", "shadow_mode", "rollout"} {
				delete(l.Overlay, brought)
			}
		}
		d.Limits = append(d.Limits, *l)
		c.shown = &d.Limits[len(d.Limits)-1]
		if d.Override != nil && d.Override.Seen.IsZero() || c.Raise != nil {
			c.ruled = o.ruled(p, t, &c.op)
		}
	}
	return cells
}

// limitOf shows the limit of c, without the state of its cell, and the pools that it borrows from.
func (o *Operator) limitOf(rule string, c *cell) *explain.Limit {
	l := &explain.Limit{Rule: rule, Overlay: c.Laid, Terms: explain.TermsOf(c.Limit)}
	if c.Raise != nil {
		l.Grant = &explain.Grant{Grant: c.Raise.Grant, Of: explain.TermsOf(c.Raise.Of).Words}
	}
	l.Key, l.ReplacedBy, c.shown = c.Key, c.replacedBy, l
	if began, ends, ok := c.Period(c.op.Now); ok {
		l.Period = &explain.Period{Timezone: ends.Location().String(), Began: began, Ends: ends}
	}
	if c.Tried() {
		how := "enforced"
		if c.watched {
			how = "watched"
		}
		l.Enforced, l.Shadow = new(!c.watched), c.Limit.Shadow
		if !c.Limit.Shadow {
			l.Rollout = c.Limit.Rollout().String()
			l.Words += ": " + how + " for this key"
		}
	}
	if b := c.Borrow; b != nil {
		l.Pool, l.Borrowed = o.limitOf(b.Pool.Path, c.pool), o.limitOf(b.Pool.Path, c.borrowed)
		l.MaxBorrow = b.Most.String()
	}
	return l
}
