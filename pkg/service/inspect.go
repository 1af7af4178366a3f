package service

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"example.org/rls/internal/document"

	"google.golang.org/grpc/codes"

	"example.org/rls/internal/spelling"
	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
)

// Action says what [Service.Inspect] does with the cells of a request's limits: it
// is Trace, Explain, Look, Reset or made by Grant. None of them charges a hit.
type Action struct {
	steps bool          // lists the descriptors that were looked at, also for a rule that is found
	drop  bool          // what memory has of the cells
	asks  bool          // the store
	verb  backends.Verb // Charge only looks
	dry   bool          // tells the changes and makes none
	Granting
}

var (
	// Trace tells the way to the limits and names the cells. It asks no store.
	Trace = Action{steps: true}
	// Explain tells the way to the limits and reads the cells.
	Explain = Action{steps: true, asks: true}
	// Look reads the cells.
	Look = Action{asks: true}
	// Reset empties the cells.
	Reset = Action{asks: true, verb: backends.Reset}
	// Forget drops what this process remembers of the cells, which another process has reset
	// or granted hits. It asks no store.
	Forget = Action{drop: true}
)

// Grant lets more hits pass.
func Grant(g Granting) Action { return Action{asks: true, verb: backends.Grant, Granting: g} }

// DryRun is the Reset or the Grant that fills in After, or returns an error, and changes
// nothing.
func (a Action) DryRun() Action { a.dry = true; return a }

// Inspection has the limits of a request, the way to them, and the state of their cells.
type Inspection struct {
	Domain      string
	Descriptors []Inspected // one for each descriptor of the request
}

// Inspected is one descriptor of an Inspection.
type Inspected struct {
	Entries []descriptors.Entry
	Hits    int64 // that the descriptor would charge; below 0 it gives them back
	// Trace has no steps of a rule that was found, unless the Action tells the way to it.
	Trace descriptors.Trace
	// Rule is the path of the rule that limits the descriptor, as metrics name it;
	// domain.override if a request brought the limit along, "" if nothing limits.
	Rule     string
	Override *Override // the limit that stands in place of the rule's; nil if the rule's count
	Plan     string    // of the domain, whose limits count; "" if they are of no plan
	// Row is the place of the row that says the limits of the rule; zero without one.
	Row       document.Position
	Unlimited bool             // the rule lets every hit pass
	Laid      descriptors.Laid // of an unlimited rule
	Shadow    bool             // the rule or the service is in shadow mode
	Quota     bool             // the descriptor denies only together with the others in quota mode
	Limits    []InspectedLimit
}

// Inspect matches r without charging it, and then reads, resets or grants its cells.
// Observers are told nothing.
//
// Its errors are those of Decide for a request that is wrong and while no rules are
// loaded, and InvalidArgument for a grant that is too large for one of its limits, or
// for a limit that the request does not have: the error says how large it may be, or which
// limits there are, and nothing is changed. A domain without rules
// is no error, and a store that fails is an Err of each limit concerned.
func (s *Service) Inspect(ctx context.Context, r *Request, do Action) (Inspection, error) {
	tree := s.tree.Load()
	var pool *descriptors.Rule
	if r.Pool != "" {
		var err error
		if pool, err = poolOf(tree, r); err != nil {
			return Inspection{Domain: r.Domain}, err
		}
		r = &Request{Domain: r.Domain, Hits: r.Hits, Descriptors: []Descriptor{{Entries: pool.PoolEntries()}}}
		do.steps = false
	}
	in := Inspection{Domain: r.Domain, Descriptors: make([]Inspected, len(r.Descriptors))}
	if err := r.validate(); err != nil {
		return in, err
	}
	if tree == nil {
		return in, errNoRules
	}
	p := plan{planner: &s.planner, domain: tree.Domain(r.Domain)}
	for i := range r.Descriptors {
		d, to := &r.Descriptors[i], &in.Descriptors[i]
		to.Entries, to.Hits = slices.Clone(d.Entries), int64(min(r.hits(d), uint64(backends.MaxCost)))
		if d.Refund {
			to.Hits = -to.Hits
		}
		if p.domain == nil {
			to.Trace.Why, to.Trace.Suggestions = "no rules for domain "+descriptors.Printable(r.Domain), tree.Suggest(r.Domain)
		}
	}
	if p.domain == nil {
		return in, nil
	}
	if err := p.match(ctx, r, true); err != nil {
		return in, err
	}
	if pool != nil {
		p.targets[0].rule = pool
	}
	var cells []cell
	for i := range p.targets {
		cells = append(cells, s.inspect(&p, &p.targets[i], &in.Descriptors[i], do.steps)...)
	}
	if do.drop {
		s.forget(cells)
	}
	if !do.asks {
		return in, nil
	}
	s.look(ctx, cells)
	if do.verb == backends.Charge {
		return in, nil
	}
	return in, s.change(ctx, cells, do)
}

// poolOf is the pool that r names.
func poolOf(tree *descriptors.Tree, r *Request) (*descriptors.Rule, error) {
	if tree == nil {
		return nil, errNoRules
	}
	switch {
	case len(r.Descriptors) > 0:
		return nil, invalid("pool and descriptors are both set: want one of them")
	case r.Domain == "":
		return nil, errNoDomain
	}
	var pools map[string]*descriptors.Rule
	if d := tree.Domain(r.Domain); d != nil {
		pools = d.Pools
	}
	switch pool := pools[r.Pool]; {
	case pool != nil:
		return pool, nil
	case len(pools) == 0:
		return nil, errorf(codes.NotFound, "the domain %s has no pools", r.Domain)
	}
	return nil, errorf(codes.NotFound, "the domain %s has no pool %q%s", r.Domain, r.Pool, spelling.Suggest(r.Pool, slices.Sorted(maps.Keys(pools))))
}

const (
	// maxSeen bounds the descriptors of the rules in the Trace of an Inspected, and
	// maxSeenInAll those in all Traces of an Inspection (see [descriptors.Domain.Explain]).
	maxSeen      = 100
	maxSeenInAll = 4000
	// maxLooks bounds the descriptors of the rules that are looked at for the suggestions of
	// an Inspection.
	maxLooks = 200_000
)

// inspect fills in `in` except Before and After of its limits, and returns one cell
// for each limit of t, also for limits that are replaced.
func (s *Service) inspect(p *plan, t *target, in *Inspected, steps bool) []cell {
	in.Trace.Rule = t.rule
	if steps || t.rule == nil {
		in.Trace = p.domain.Explain(in.Entries, min(maxSeen, maxSeenInAll/len(p.targets)))
	}
	in.Override, in.Unlimited = t.Limit, t.unlimited()
	if t.rule != nil && t.rule.Pool == "" {
		in.Row = t.rule.Row(in.Entries)
	}
	in.Shadow, in.Quota = t.shadow() || p.cfg.ShadowMode, p.quota(t)
	switch {
	case in.Override != nil:
		in.Rule = OverridePath(p.domain.Name)
	case t.rule != nil:
		in.Rule, in.Plan, in.Laid = t.rule.Path, t.rule.Plan, t.rule.Laid
	}
	limits := t.all()
	if t.rule == nil && len(limits) == 0 {
		in.Trace.Suggestions = p.domain.Suggest(in.Entries, maxLooks/len(p.targets))
	}
	if len(limits) == 0 {
		return nil
	}
	in.Limits = make([]InspectedLimit, len(limits))
	cells := make([]cell, len(limits))
	id := p.identity(nil, t)
	if t.rule != nil && t.rule.Pool != "" {
		id = p.poolIdentity(t.rule)
	}
	now := p.cfg.Store.Now()
	var lent []cell
	planned := func(c *cell, l *descriptors.Limit, id algorithms.Identity) {
		c.id, c.domain, c.rule = id, p.domain.Name, in.Rule
		l.Plan(&c.op, id, algorithms.Charge{Now: now, Cost: t.hits, Refund: t.Refund, Patience: l.MaxDelay.Microseconds()})
		c.limit.Limit, c.limit.Key = l, s.storedKey(c.op.Key)
		c.limit.Began, c.limit.Ends, _ = l.Period(now)
	}
	borrowed := func(to *InspectedLimit, l *descriptors.Limit, id algorithms.Identity) *InspectedLimit {
		c := cell{limit: &InspectedLimit{Policy: to.Policy}, lentTo: to}
		planned(&c, l, id)
		lent = append(lent, c)
		return c.limit
	}
	for i := range limits {
		c, l := &cells[i], &limits[i]
		own := ofLimit(id, l)
		in.Limits[i] = InspectedLimit{Watched: in.Override == nil && p.watched(t, l), Policy: policy(l, p.cfg.Local)}
		c.limit, c.shared = &in.Limits[i], own.ByStart
		planned(c, l, own)
		if t.rule != nil {
			c.rule = t.rule.Path
		}
		if b := l.Borrow; b != nil {
			c.limit.Pool = borrowed(c.limit, &b.Pool.Limits[0], p.poolIdentity(b.Pool))
			c.limit.Borrowed = borrowed(c.limit, &b.Cell, p.borrowIdentity(t, b))
		}
		if by := p.replacer(l.Name); by != nil && in.Override == nil {
			c.limit.ReplacedBy = by.Path
		}
		if in.Override != nil && in.Override.Seen.IsZero() {
			c.ruled = p.ruled(t, &c.op)
		}
	}
	return append(cells, lent...)
}

// storedKey is the name under which the store keeps a key, for people.
func (s *Service) storedKey(key string) string {
	if s.cfg.StoredKey != nil {
		key = s.cfg.StoredKey(key)
	}
	return descriptors.Printable(key)
}

// change resets the cells or grants hits to them, and fills in After or Err: of each cell
// once, and only if the limit is decided in the request and the store has returned the
// cell. Other limits lose their Before, and so do watched limits, which need no grant. If change
// returns an error, no cell is changed.
func (s *Service) change(ctx context.Context, cells []cell, do Action) error {
	var changed []cell
	var choices []string
	watched, seen := false, map[string]bool{}
	for _, c := range cells {
		chosen := do.Only == "" || c.limit.Is(do.Only)
		watched = watched || chosen && c.limit.Watched
		skip := c.limit.ReplacedBy != "" || seen[c.op.Key] || c.limit.Watched && do.verb == backends.Grant
		if to := c.lentTo; to != nil {
			skip = skip || c.limit == to.Pool || do.verb == backends.Grant || to.ReplacedBy != ""
		}
		if seen[c.op.Key] = true; !skip {
			choices = append(choices, c.limit.Choice())
		}
		if skip || !chosen {
			c.limit.Before, c.limit.Err = nil, nil
			continue
		}
		changed = append(changed, c)
	}
	switch {
	case len(changed) > 0:
	case watched:
		return invalid("the limit is only watched for this key and denies nothing: there is nothing to grant")
	case len(choices) > 0:
		return invalid("the request has no limit %q: want one of %s", do.Only, strings.Join(choices, ", "))
	}
	changed = slices.DeleteFunc(changed, func(c cell) bool { return c.limit.Err != nil })
	if do.verb == backends.Grant {
		if err := checkGrant(changed, do.Hits); err != nil {
			return err
		}
	}
	changed = slices.DeleteFunc(changed, func(c cell) bool {
		if counted := min(c.limit.Before.value(), int64(c.limit.Requests)); do.verb == backends.Grant && c.shared && do.Hits > counted {
			c.limit.Err = fmt.Errorf("%w: the counter is shared with envoyproxy/ratelimit (CACHE_KEY_FORMAT=ratelimit), which cannot read a count below 0: grant at most the %d hits that were counted", backends.ErrUnsupported, max(0, counted))
		} else if do.dry {
			c.limit.After = c.foreseen(do.Hits)
		}
		return do.dry || c.limit.Err != nil
	})
	for i := range changed {
		if c := &changed[i]; do.verb == backends.Reset {
			c.op = c.op.Reset()
		} else {
			c.op, c.granting = c.grant(do.Hits), do.Granting
		}
	}
	s.apply(ctx, changed)
	return nil
}

// Grants asks the store what is left of the grants of this process, and returns those in
// force, the newest first. Its error is Unavailable if the store cannot tell.
func (s *Service) Grants(ctx context.Context) ([]GrantInForce, error) {
	now := s.cfg.Store.Now()
	all := slices.SortedFunc(maps.Values(s.grants.all()), func(a, b grant) int { return b.Time.Compare(a.Time) })
	inForce := []GrantInForce{}
	for some := range slices.Chunk(all, maxBatch) {
		cells := make([]cell, len(some))
		for i := range some {
			g := &some[i]
			cells[i].limit = &InspectedLimit{Limit: g.limit}
			g.limit.Plan(&cells[i].op, g.id, algorithms.Charge{Now: now})
		}
		s.look(ctx, cells)
		for i := range some {
			g, c := &some[i], &cells[i]
			switch {
			case c.limit.Err != nil:
				return nil, errorf(codes.Unavailable, "the store cannot tell the unused hits of a grant to %s: %v", g.Rule, c.limit.Err)
			case g.until > now && c.op.Key == g.key && c.limit.Before.Granted > 0:
				g.Left = c.limit.Before.Granted
				inForce = append(inForce, g.GrantInForce)
			}
		}
	}
	return inForce, nil
}
