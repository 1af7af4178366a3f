package service

import (
	"context"
	"fmt"
	"slices"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
)

// Action says what [Service.Inspect] does with the cells of a request's limits: it
// is Trace, Look, Reset or made by Grant. None of them charges a hit.
type Action struct {
	verb verb
	hits int64 // of a grant
}

type verb uint8

const (
	verbTrace verb = iota
	verbLook
	verbReset
	verbGrant
)

var (
	// Trace names the cells and asks no store.
	Trace = Action{}
	// Look reads the cells.
	Look = Action{verb: verbLook}
	// Reset empties the cells.
	Reset = Action{verb: verbReset}
)

// Grant lets that many hits more pass in the running window, or before the bucket is
// full again.
func Grant(hits int64) Action { return Action{verb: verbGrant, hits: hits} }

// Inspection has the limits of a request, the way to them, and the state of their cells.
type Inspection struct {
	Domain      string
	Descriptors []Inspected // one for each descriptor of the request
}

// Inspected is one descriptor of an Inspection.
type Inspected struct {
	Entries []descriptors.Entry
	Hits    int64 // that the descriptor would charge; below 0 it gives them back
	Trace   descriptors.Trace
	// Rule is the path of the rule that limits the descriptor, as metrics name it;
	// domain.override if the request brought a limit along, "" if nothing limits.
	Rule      string
	Override  bool // the request brought the limit along
	Unlimited bool // the rule lets every hit pass
	Shadow    bool // the rule or the service is in shadow mode
	Quota     bool // the descriptor denies only together with the others in quota mode
	Limits    []InspectedLimit
}

// InspectedLimit is one limit of an Inspected.
type InspectedLimit struct {
	*descriptors.Limit
	// ReplacedBy is the path of the rule that replaces the limit in this request, so
	// that it is not decided, and Reset and Grant leave its cell alone; else "".
	ReplacedBy string
	// Key is the key of the limit's cell in the store; of a sliding window, the key of
	// the running window.
	Key string
	// Before is the cell as it was found, and After the cell after Reset or Grant.
	// They are nil if no store was asked or if the store failed, and for Reset and
	// Grant also if the key has occurred before in the same request: no cell is
	// changed twice.
	Before, After *State
	// Policy decides the limit whenever the store cannot.
	Policy descriptors.Policy
	// Err says why the store was not reached, or why the strategy cannot do what the
	// Action asks.
	Err error
}

// State is a cell at one moment.
type State struct {
	// Count is the number of hits in use: the capacity of the limit less Remaining.
	// A fixed window that is charged with denied hits may have more than fit, and a
	// grant makes the count of an unused cell negative.
	Count int64
	// Remaining is the number of hits that would pass now.
	Remaining int64
	// Reset is the time until the full quota is back, or until a fixed window ends.
	Reset time.Duration
}

// Inspect matches r without charging it, and then reads, resets or grants its cells.
// Observers are told nothing.
//
// Its errors are those of Decide for a request that is wrong and while no rules are
// loaded, and InvalidArgument for a grant that is too large for one of the limits:
// the error says how large it may be, and nothing is changed. A domain without rules
// is no error, and a store that fails is an Err of each limit concerned.
func (s *Service) Inspect(ctx context.Context, r *Request, do Action) (Inspection, error) {
	in := Inspection{Domain: r.Domain, Descriptors: make([]Inspected, len(r.Descriptors))}
	if err := s.cfg.Caps.validate(r); err != nil {
		return in, err
	}
	tree := s.tree.Load()
	if tree == nil {
		return in, errNoRules
	}
	p := plan{planner: &s.planner, domain: tree.Domain(r.Domain)}
	for i := range r.Descriptors {
		d, to := &r.Descriptors[i], &in.Descriptors[i]
		to.Entries, to.Hits = slices.Clone(d.Entries), r.signedHits(d)
		if p.domain == nil {
			to.Trace.Why = "no rules for domain " + r.Domain
		}
	}
	if p.domain == nil {
		return in, nil
	}
	if err := p.match(r); err != nil {
		return in, err
	}
	var cells []cell
	for i := range p.targets {
		cells = append(cells, s.inspect(&p, &p.targets[i], &in.Descriptors[i])...)
	}
	if do.verb == verbTrace {
		return in, nil
	}
	s.look(ctx, cells)
	if do.verb == verbLook {
		return in, nil
	}
	return in, s.change(ctx, changeable(cells), do)
}

// cell is a limit of an Inspection and an operation on its cell.
type cell struct {
	limit  *InspectedLimit
	op     backends.Op
	shared bool // envoyproxy/ratelimit counts in it, too
	// ruled is the limit of the rule that counts in the same cell as a limit that the
	// request brought along; else nil.
	ruled *descriptors.Limit
}

// maxSeen bounds the descriptors of the rules in the Trace of an Inspected, and
// maxSeenInAll those in all Traces of an Inspection (see [descriptors.Domain.Explain]).
const (
	maxSeen      = 100
	maxSeenInAll = 4000
)

// inspect fills in `in` except Before and After of its limits, and returns one cell
// for each limit of t, also for limits that are replaced.
func (s *Service) inspect(p *plan, t *target, in *Inspected) []cell {
	in.Trace = p.domain.Explain(in.Entries, min(maxSeen, maxSeenInAll/len(p.targets)))
	in.Override, in.Unlimited = t.overrides != nil, t.unlimited()
	in.Shadow, in.Quota = t.shadow() || p.shadowMode, p.quota(t)
	switch {
	case in.Override:
		in.Rule = OverridePath(p.domain.Name)
	case t.rule != nil:
		in.Rule = t.rule.Path
	}
	limits := t.all()
	if len(limits) == 0 {
		return nil
	}
	in.Limits = make([]InspectedLimit, len(limits))
	cells := make([]cell, len(limits))
	id := p.identity(nil, t)
	now := p.store.Now()
	for i := range limits {
		c, l := &cells[i], &limits[i]
		c.limit, c.shared = &in.Limits[i], id.ByStart
		l.Plan(&c.op, id, algorithms.Charge{Now: now})
		*c.limit = InspectedLimit{Limit: l, Key: c.op.Key, Policy: policy(l, p.local != nil)}
		if s.cfg.StoredKey != nil {
			c.limit.Key = s.cfg.StoredKey(c.op.Key)
		}
		if by := p.replacer(l.Name); by != nil && !in.Override {
			c.limit.ReplacedBy = by.Path
		}
		if in.Override {
			c.ruled = p.ruled(t, &c.op)
		}
	}
	return cells
}

// ruled is the limit of t's rule that counts in the cell of op, or nil.
func (p *plan) ruled(t *target, op *backends.Op) *descriptors.Limit {
	if t.rule == nil {
		return nil
	}
	id := p.identity(nil, &target{Descriptor: t.Descriptor, rule: t.rule})
	for i := range t.rule.Limits {
		var own backends.Op
		if t.rule.Limits[i].Plan(&own, id, algorithms.Charge{Now: op.Now}); own.Key == op.Key {
			return &t.rule.Limits[i]
		}
	}
	return nil
}

// look fills in Before of the cells, or Err. The operations have no lease and cost
// nothing, so neither leases nor the local cache answer them.
func (s *Service) look(ctx context.Context, cells []cell) {
	ops := make([]backends.Op, len(cells))
	for i := range cells {
		ops[i] = cells[i].op.Look()
		ops[i].Lease, ops[i].Stem = nil, 0
	}
	s.apply(ctx, ops, cells, func(c *cell, op *backends.Op, r *backends.Reply) {
		c.limit.Before = stateOf(c.limit.Limit, op, r)
	})
}

// changeable returns the cells that Reset and Grant change: each cell once, and only
// if the limit is decided in the request and the store has returned the cell. Replaced
// limits and repeated cells lose their Before.
func changeable(cells []cell) []cell {
	var changed []cell
	seen := map[string]bool{}
	for _, c := range cells {
		if c.limit.ReplacedBy != "" || seen[c.op.Key] {
			c.limit.Before = nil
			continue
		}
		seen[c.op.Key] = true
		if c.limit.Err == nil {
			changed = append(changed, c)
		}
	}
	return changed
}

// change resets the cells or grants hits to them, and fills in After or Err. If a
// grant is too large for one of the cells, change changes none and returns an error.
func (s *Service) change(ctx context.Context, cells []cell, do Action) error {
	var ops []backends.Op
	var changed []cell
	for _, c := range cells {
		op := c.op.Reset()
		if do.verb == verbGrant {
			if err := c.checkGrant(do.hits); err != nil {
				return invalid("%v", err)
			}
			if counted := min(c.limit.Before.Count, int64(c.limit.Requests)); c.shared && do.hits > counted {
				c.limit.Err = fmt.Errorf("%w: the counter is shared with envoyproxy/ratelimit (CACHE_KEY_FORMAT=ratelimit), which cannot read a count below 0: grant at most the %d hits that were counted", backends.ErrUnsupported, max(0, counted))
				continue
			}
			op = c.grant(do.hits)
		}
		ops, changed = append(ops, op), append(changed, c)
	}
	s.steer(ctx, ops, changed)
	return nil
}

// checkGrant reports whether so many hits may be granted to the cell.
func (c *cell) checkGrant(hits int64) error {
	if c.ruled != nil {
		if err := c.ruled.CheckGrant(hits, max(0, c.ruled.Capacity()-c.limit.Before.Count)); err != nil {
			return err
		}
	}
	return c.limit.CheckGrant(hits, c.limit.Before.Remaining)
}

// grant is the operation that grants hits to the cell.
func (c *cell) grant(hits int64) backends.Op {
	op := c.op
	c.limit.Grant(&op, hits)
	if c.ruled != nil {
		ruled := c.op
		if c.ruled.Grant(&ruled, hits); op.Least.Less(ruled.Least) {
			op.Least = ruled.Least
		}
	}
	return op
}

// steer has the store apply a reset or a grant for each cell, so that every decorator
// forgets what it remembers of the cell. It tells Config.Local, and fills in After or Err.
func (s *Service) steer(ctx context.Context, ops []backends.Op, cells []cell) {
	s.apply(ctx, ops, cells, func(c *cell, op *backends.Op, r *backends.Reply) {
		look := op.Look()
		c.limit.After = stateOf(c.limit.Limit, &look, r)
		if c.limit.Policy == descriptors.PolicyLocal {
			s.local.Remember(c.limit.Limit.Limit, op, r)
		}
	})
}

// apply has the store apply ops, one operation for each cell. It calls done for each
// cell whose operation the store has decided, and sets Err of the others.
func (s *Service) apply(ctx context.Context, ops []backends.Op, cells []cell, done func(*cell, *backends.Op, *backends.Reply)) {
	if len(ops) == 0 {
		return
	}
	b := backends.Batch{Ops: ops, Replies: make([]backends.Reply, len(ops))}
	_ = s.store.Apply(ctx, &b) // its error is the first Err of the replies
	for i := range cells {
		if r := &b.Replies[i]; r.Err != nil {
			cells[i].limit.Err = r.Err
		} else {
			done(&cells[i], &b.Ops[i], r)
		}
	}
}

// stateOf is the state of l's cell after r, the reply to op, which looks at the cell.
func stateOf(l *descriptors.Limit, op *backends.Op, r *backends.Reply) *State {
	is := l.Judge(op, r)
	state := &State{Count: l.Capacity() - is.Remaining, Remaining: is.Remaining, Reset: is.Reset}
	if op.Kind == backends.Counter && op.Prev == "" {
		state.Count = r.Value.Whole
	}
	return state
}
