package operate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/service"
)

// Action says what [Operator.Change] does with the cells of a request's limits: it is Reset, or made
// by Grant.
type Action struct {
	verb backends.Verb
	dry  bool
	Granting
}

// Reset empties the cells.
var Reset = Action{verb: backends.Reset}

// Granting is a grant.
type Granting struct {
	Hits int64 // to let pass in the running window, or before the bucket is full again
	// Only chooses the limits that it is for, as [descriptors.Limit.Is]; "" is each limit of the request.
	Only string
	Who  string // makes the grant, as [Operator.Grants] tells
	// For or Until, one of them, makes it a grant until a time: Hits more pass in each window, or Rate
	// takes the place of the limit.
	For    time.Duration
	Until  time.Time
	Rate   *descriptors.Rate
	Reason string
}

// Grant lets more hits pass.
func Grant(g Granting) Action { return Action{verb: backends.Grant, Granting: g} }

// DryRun is the Action that tells its changes, or returns an error, and makes none.
func (a Action) DryRun() Action { a.dry = true; return a }

// Change is the change of one cell, or the reason why it was not changed.
type Change struct {
	// Rule is the rule that the request matches, also where the request brought a limit
	// along. Without a matching rule it is domain.override.
	Rule string `json:"rule"`
	// Entries are those of the descriptor; nil of a pool, with CACHE_KEY_HASH and above maxGrantKey bytes.
	Entries []descriptors.Entry `json:"-"`

	Key    string         `json:"key"`
	Before *explain.Usage `json:"before,omitempty"`
	After  *explain.Usage `json:"after,omitempty"`
	// Until is when the grant ends or, after a reset, the window that has begun.
	Until time.Time `json:"until,omitzero"`
	// Lasts is the time until Until, on the store's clock.
	Lasts time.Duration `json:"-"`
	// Grant is the grant until a time that was made or revoked, or would be in a dry run, without an ID.
	Grant *descriptors.Grant `json:"grant,omitempty"`
	// Note is a sentence about the counter of a grant until a time; "" if it stays the same.
	Note string `json:"note,omitempty"`
	// Error says why the cell was not changed, and Err is that error.
	Error string `json:"error,omitempty"`
	Err   error  `json:"-"`
}

// Change resets the cells of the request's limits or grants hits to them: each cell once, and only if
// its limit is decided in the request. Watched limits need no grant. A reset empties what the key has
// borrowed, too. The document has no states.
//
// Its errors are those of [Operator.Inspect], and InvalidArgument for a grant that is too large for one
// of its limits, or for a limit that the request does not have: the error says how large it may be, or
// which limits there are. With an error no cell is changed. A store that fails is an Err of each change
// concerned.
func (o *Operator) Change(ctx context.Context, q *Question, do Action) (explain.Document, []Change, error) {
	if do.For != 0 || !do.Until.IsZero() {
		return o.grantUntil(ctx, q, do)
	}
	doc, cells, err := o.find(ctx, q, View{})
	if err != nil {
		return doc, nil, err
	}
	o.look(ctx, cells)
	chosen, err := choose(cells, do)
	if err == nil && do.verb == backends.Grant {
		err = checkGrant(slices.DeleteFunc(slices.Clone(chosen), func(c *cell) bool { return c.Err != nil }), do.Hits)
	}
	if err != nil {
		return doc, nil, err
	}
	o.change(ctx, chosen, do)
	changes := make([]Change, len(chosen))
	for i, c := range chosen {
		if changes[i] = c.Change; c.Err != nil {
			changes[i].Error = c.Err.Error()
		}
	}
	return doc, changes, nil
}

// choose returns the cells that are changed, each once. Its error says that there are none.
func choose(cells []*cell, do Action) (chosen []*cell, err error) {
	var choices []string
	grants, watched, seen := do.verb == backends.Grant, false, map[string]bool{}
	for _, c := range cells {
		wanted := do.Only == "" || c.Is(do.Only)
		watched = watched || wanted && c.watched
		skip := c.replacedBy != "" || seen[c.op.Key] || c.watched && grants
		if of := c.of; of != nil {
			skip = skip || c == of.pool || grants || of.replacedBy != ""
		}
		if seen[c.op.Key] = true; skip {
			continue
		}
		choices = append(choices, c.Choice())
		if wanted {
			chosen = append(chosen, c)
		}
	}
	switch {
	case len(chosen) > 0:
	case watched:
		return nil, service.Wrong("the limit is only watched for this key and denies nothing: there is nothing to grant")
	case len(choices) > 0:
		return nil, service.Wrong("the request has no limit %q: want one of %s", do.Only, strings.Join(choices, ", "))
	}
	return chosen, nil
}

// change fills in after of the cells, or err.
func (o *Operator) change(ctx context.Context, cells []*cell, do Action) {
	var changed []*cell
	for _, c := range cells {
		switch {
		case c.Err != nil:
			continue
		case c.shared && do.verb == backends.Grant && do.Hits > c.counted():
			c.Err = fmt.Errorf("%w: the counter is shared with envoyproxy/ratelimit (CACHE_KEY_FORMAT=ratelimit), which cannot read a count below 0: grant at most the %d hits that were counted", backends.ErrUnsupported, max(0, c.counted()))
			continue
		case do.verb == backends.Reset:
			c.op = c.op.Reset()
		default:
			c.op = c.grant(do.Hits)
		}
		changed = append(changed, c)
	}
	o.write(ctx, changed, do)
}

// write has the store apply the operation of each cell, a reset or a grant, so that every decorator
// forgets what it remembers of the cell. It fills in after or err. A dry run foresees them.
func (o *Operator) write(ctx context.Context, cells []*cell, do Action) {
	ops := make([]backends.Op, len(cells))
	for i, c := range cells {
		ops[i] = c.op
	}
	replies := make([]backends.Reply, len(cells))
	if !do.dry {
		replies = o.apply(ctx, ops)
	}
	for i, c := range cells {
		r, look, last := &replies[i], c.op.Look(), grant{}
		if do.dry {
			*r = c.foresee(&look)
		}
		if c.Err = r.Err; c.Err != nil {
			continue
		}
		ends := c.resetEnds()
		if c.op.Verb == backends.Grant {
			last = c.granted(&look, r, do.Granting)
			ends = last.Ends.UnixMicro()
		}
		switch {
		case do.dry:
		case c.op.Verb == backends.Grant:
			o.grants.add(last, look.Now)
		default:
			o.grants.forget(look.Key)
		}
		c.After = usage(c.Limit, &look, r, last)
		c.Until, c.Lasts = time.UnixMicro(ends).UTC(), time.Duration(ends-look.Now)*time.Microsecond
	}
}

// foresee is the reply that the store would give to c.op, a reset or a grant; look is the look at its cell.
// A List has its hits in one charge.
func (c *cell) foresee(look *backends.Op) backends.Reply {
	s := backends.State{Cell: backends.Cell{}.Reported(look, &c.seen)}
	if used := c.seen.Value.Whole; look.Kind == backends.List && used != 0 {
		s.Log = backends.Log{{At: look.Now, Hits: used, Number: look.Now}}
	}
	return s.Step(&c.op)
}

// granted is what a grant is remembered by, after which r is the reply for the cell that op looks at.
func (c *cell) granted(op *backends.Op, r *backends.Reply, given Granting) grant {
	hits, value, ends := c.Before.Granted+given.Hits, c.Used(op, r), c.windowEnds(op, r.Until)
	return grant{
		GrantInForce: GrantInForce{
			Time: time.Now().UTC(), Who: given.Who, Domain: c.domain, Rule: c.Rule, Entries: c.Entries, Key: c.Key,
			Hits: hits, Ends: time.UnixMicro(ends).UTC(),
		},
		limit: c.Limit, id: c.id, key: op.Key,
		count: value + hits, until: min(r.Until, ends), credit: op.Kind == backends.Meter && value < 0,
	}
}

// windowEnds is when the window of op, whose cell ends at until, ends.
func (c *cell) windowEnds(op *backends.Op, until int64) int64 {
	if window := c.Window.Microseconds(); op.Span == backends.Sliding { // the next window still has its count
		until = (op.Now/window + 1) * window
	}
	if _, end, ok := c.Period(op.Now); ok { // the cell outlives it
		until = end.UnixMicro()
	}
	return until
}

// resetEnds is when the window ends that a reset begins at the time of c.op. A bucket has its hits back by
// then.
func (c *cell) resetEnds() int64 {
	until := c.op.Now + c.Window.Microseconds()
	if c.op.Kind == backends.Counter && c.op.Span == backends.Fixed {
		until = c.seen.Until
	}
	return c.windowEnds(&c.op, until)
}

// Forget drops this process's memory of the cells of the request's limits, after another process has
// reset them or granted them hits, and has the grants until a time looked at again. It asks no store. It returns the errors of [Operator.Inspect].
func (o *Operator) Forget(ctx context.Context, q *Question) error {
	if o.keeper != nil {
		o.keeper.Hurry()
	}
	_, cells, err := o.find(ctx, q, View{})
	o.forget(cells)
	return err
}

// forget drops what this process remembers of cells that it shares with others.
func (o *Operator) forget(cells []*cell) {
	memory, has := backends.MemoryOf(o.cfg.Store)
	for _, c := range cells {
		if has {
			memory.Forget(&c.op)
		}
		o.grants.forget(c.op.Key)
	}
}

// checkGrant reports whether so many hits may be granted to each of the cells. Its error is
// that of the cell to which fewest may be.
func checkGrant(cells []*cell, hits int64) error {
	var wrong error
	fewest := hits
	for _, c := range cells {
		check := func(l *descriptors.Limit, remaining int64) {
			err := l.CheckGrant(hits, remaining)
			if largest := l.LargestGrant(remaining); err != nil && (wrong == nil || largest < fewest) {
				if fewest = largest; len(cells) > 1 {
					err = fmt.Errorf("the limit %s: %w; \"only\" names one limit for the grant", c.Choice(), err)
				}
				wrong = service.Wrong("%v", err)
			}
		}
		check(c.Limit, c.Before.Remaining)
		if c.ruled != nil {
			check(c.ruled, max(0, c.ruled.Capacity()-c.value()))
		}
	}
	return wrong
}

// value is the number of hits in use, less the hits granted.
func (c *cell) value() int64 { return c.Before.Count - c.Before.Granted }

// counted is the number of hits that were counted and fit the limit.
func (c *cell) counted() int64 { return min(c.value(), int64(c.Requests)) }

// grant is the operation that grants hits to the cell.
func (c *cell) grant(hits int64) backends.Op {
	op := c.op
	c.Limit.Grant(&op, hits)
	if c.ruled != nil {
		ruled := c.op
		if c.ruled.Grant(&ruled, hits); op.Least.Less(ruled.Least) {
			limit := *op.Limit
			limit.Least = ruled.Least
			op.Limit = &limit
		}
	}
	return op
}
