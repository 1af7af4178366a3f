package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/grants"
)

var errNoKeeper = service.Errorf(codes.Unimplemented, "the store keeps no grants until a time: memory and Redis do; without one a grant ends with the window")

// grantUntil makes a grant until a time, in place of one for the same counter. Before is the counter of the
// limit that the rules have, and After that of the raised limit.
func (o *Operator) grantUntil(ctx context.Context, q *Question, do Action) (doc explain.Document, _ []Change, err error) {
	if o.keeper == nil {
		return doc, nil, errNoKeeper
	}
	if q.Pool != "" {
		return doc, nil, service.Wrong("a grant until a time is for a limit of descriptors, and not for the pool %s: "+
			"one without a time lasts until its window ends", descriptors.Printable(q.Pool))
	}
	for i := range q.Descriptors {
		if l := q.Descriptors[i].Limit; l != nil {
			return doc, nil, service.Wrong("requests of descriptors[%d] bring a limit of %s, and a grant until a time raises limits of rules only: "+
				"one without a time lasts until the window ends", i, l)
		}
	}
	now := o.cfg.Store.Now()
	until, err := do.end(now)
	if err != nil {
		return doc, nil, err
	}
	doc, cells, err := o.find(ctx, q, View{plain: true})
	if err != nil {
		return doc, nil, err
	}
	c, err := chooseOne(cells, do)
	if c == nil {
		return doc, nil, err
	}
	g := &descriptors.Grant{
		Time: time.UnixMicro(now).UTC(), Until: until, Who: do.Who, Reason: do.Reason, Domain: c.domain, Rule: c.Rule,
		Caller: c.caller, Counter: c.Counter(), Hits: do.Hits, Rate: do.Rate,
	}
	raised, err := c.Granted(g)
	if err != nil {
		return doc, nil, service.Wrong("the limit %s: %v", c.Choice(), err)
	}
	after := *c
	after.Limit, after.Change = &raised, Change{Rule: c.Rule}
	raised.Plan(&after.op, service.OfLimit(c.id, &raised), algorithms.Charge{Now: now})
	after.Key = o.storedKey(after.op.Key)
	o.look(ctx, []*cell{c, &after})
	change := Change{Rule: c.Rule, Entries: c.Entries, Key: after.Key, Before: c.Before, After: after.Before, Until: until, Grant: g, Err: cmp.Or(c.Err, after.Err)}
	if after.op.Key != c.op.Key {
		change.Note = "The grant begins with an empty counter of its own, and when it ends the old counter counts on."
	}
	if change.Err != nil {
		change.Error = change.Err.Error()
		return doc, []Change{change}, nil
	}
	if !do.dry {
		if err = o.keeper.Add(ctx, g); err != nil {
			return doc, nil, wrongGrant(err)
		}
	}
	return doc, []Change{change}, nil
}

// chooseOne returns the cell that an action chooses, which may be only one; nil if it chooses none.
func chooseOne(cells []*cell, do Action) (*cell, error) {
	chosen, err := choose(cells, do)
	switch {
	case err != nil || len(chosen) == 0:
		return nil, err
	case len(chosen) == 1:
		return chosen[0], nil
	}
	var choices []string
	for _, c := range chosen {
		choices = append(choices, c.Choice())
	}
	return nil, service.Wrong("a grant until a time is for one limit of one descriptor: \"only\" names it, one of %s", strings.Join(choices, ", "))
}

// wrongGrant is an error of the keeper with a code.
func wrongGrant(err error) error {
	if errors.Is(err, grants.ErrFull) || errors.Is(err, grants.ErrTooLong) {
		return service.Errorf(codes.ResourceExhausted, "%v", err)
	}
	return service.Errorf(codes.Unavailable, "the store cannot keep the grant: %v", err)
}

// end is when a grant until a time ends that is made at now, in µs.
func (g *Granting) end(now int64) (time.Time, error) {
	at := time.UnixMicro(now).UTC()
	until := g.Until.UTC()
	if g.For != 0 {
		until = at.Add(g.For)
	}
	until = until.Truncate(time.Microsecond)
	switch left := until.Sub(at); {
	case left <= 0:
		return until, service.Wrong("the grant would end at %s, which is past: it is %s now", until.Format(time.RFC3339), at.Format(time.RFC3339))
	case left > grants.Longest:
		return until, service.Wrong("the grant would end at %s: want at most 31 days from now", until.Format(time.RFC3339))
	}
	return until, nil
}

// Revoke ends the grant until a time with an ID; a dry run tells which one it is. Its errors are NotFound,
// Unimplemented for a store that keeps none, and Unavailable.
func (o *Operator) Revoke(ctx context.Context, id string) (Change, error) {
	if o.keeper == nil {
		return Change{}, errNoKeeper
	}
	g, err := o.keeper.Revoke(ctx, id)
	switch {
	case err != nil:
		return Change{}, service.Errorf(codes.Unavailable, "the store cannot end the grant: %v", err)
	case g == nil:
		return Change{}, service.Errorf(codes.NotFound, "no grant until a time has the ID %.40q: rls grants lists those in force", id)
	}
	change := Change{Rule: g.Rule, Until: g.Until, Grant: g}
	if c, _ := o.raisedBy(g); c != nil {
		change.Entries, change.Key = c.Entries, o.storedKey(c.op.Key)
	}
	return change, nil
}

// untilTimes are the grants until a time that are in force. Its error is Unavailable if the store has not
// told them since the start.
func (o *Operator) untilTimes(ctx context.Context) ([]GrantInForce, error) {
	all := []GrantInForce{}
	if o.keeper == nil {
		return all, nil
	}
	if !o.keeper.Known() {
		if err := o.keeper.Look(ctx); err != nil {
			return nil, service.Errorf(codes.Unavailable, "the store has not told the grants until a time since the start: %v", err)
		}
	}
	for _, g := range o.keeper.All() {
		in := GrantInForce{ID: g.ID, Time: g.Time, Who: g.Who, Domain: g.Domain, Rule: g.Rule, Hits: g.Hits, Limit: g.Rate, Ends: g.Until, Until: g.Until}
		if c, err := o.raisedBy(g); err != nil {
			in.Error, in.Key = err.Error(), descriptors.Printable(g.Caller)
		} else {
			in.Entries, in.Key = c.Entries, o.storedKey(c.op.Key)
		}
		all = append(all, in)
	}
	return all, nil
}

// GrantsChanged drops what this process remembers of the counters of grants that came or went.
func (o *Operator) GrantsChanged(changed []*descriptors.Grant) {
	memory, has := backends.MemoryOf(o.cfg.Store)
	if !has {
		return
	}
	for _, g := range changed {
		c, _ := o.raisedBy(g)
		if c == nil {
			continue
		}
		memory.Forget(&c.op)
		c.Raise.Of.Plan(&c.op, service.OfLimit(c.id, c.Raise.Of), algorithms.Charge{Now: c.op.Now})
		memory.Forget(&c.op)
	}
}

// raisedBy is the cell of the limit that g raises. Its error says why g raises none.
func (o *Operator) raisedBy(g *descriptors.Grant) (*cell, error) {
	id, now := o.Plan(nil), o.cfg.Store.Now()
	domain := o.Tree().Domain(g.Domain)
	_, entries, ok := descriptors.ParseID(g.Caller)
	if domain == nil || !ok {
		return nil, errors.New("no such limit: the domain has no rules")
	}
	id.Domain = domain
	rule := domain.MatchNamed(entries)
	if rule == nil { // the entries have hashes in place of values
		_, rule, _ = ruleAt(o.Tree(), g.Domain, g.Rule)
	}
	if rule == nil {
		return nil, fmt.Errorf("no such limit: the domain has no rule %s", g.Rule)
	}
	of := service.Target{Descriptor: &service.Descriptor{Entries: entries}, Rule: rule}
	for _, c := range o.cellsOf(id, &of, now) {
		if c.of != nil || c.Counter() != g.Counter {
			continue
		}
		raised, err := c.Granted(g)
		if err != nil {
			return nil, fmt.Errorf("it does not act: %w", err)
		}
		c.Limit = &raised
		if o.cfg.Values != nil {
			c.id.ID = []byte(g.Caller)
		}
		raised.Plan(&c.op, service.OfLimit(c.id, &raised), algorithms.Charge{Now: now})
		return c, nil
	}
	return nil, fmt.Errorf("no such limit: the rule %s has none with the counter of the grant", rule.Path)
}
