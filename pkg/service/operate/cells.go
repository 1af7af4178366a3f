package operate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// InspectedLimit is one limit of an Inspected.
type InspectedLimit struct {
	*descriptors.Limit
	// Watched: the limit is watched for this key, and Grant leaves its cell alone.
	Watched bool
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
	// Next is how long until the hits of the request would pass this limit if no others
	// came; 0 if they pass now, perhaps after a wait in a queue. Never: they do not pass
	// however long the caller waits, because they are more than fit an empty cell. Both
	// belong to Before: they have no meaning without it.
	Next  time.Duration
	Never bool
	// Policy decides the limit whenever the store cannot.
	Policy descriptors.Policy
	// Began and Ends are the running period of a calendar, in its time zone; zero without one.
	Began, Ends time.Time
	// Pool and Borrowed, of a limit that borrows, are its pool and what the key has borrowed.
	// Reset resets Borrowed, too; else they are only looked at.
	Pool, Borrowed *InspectedLimit
	// Err says why the store was not reached, or why the strategy cannot do what the
	// Action asks.
	Err error
}

// State is a cell at one moment.
type State struct {
	// Count is the number of hits in use, at least 0: the capacity of the limit and Granted,
	// less Remaining. It may be more than fit: debt, hits that wait in a queue, denied hits that
	// a fixed window counts, or hits from before a lower limit.
	Count int64 `json:"count"`
	// Granted is the number of hits left of the grants of this process to the cell, which
	// hits use up before the limit. Of the grants of others it has the hits beyond the limit
	// only, and Count is lower by the rest; so of all grants to a limit with an overdraft.
	Granted int64 `json:"granted,omitempty"`
	// Remaining is the number of hits that would pass now.
	Remaining int64 `json:"remaining"`
	// Reset is the time until the full quota is back, or until a fixed window ends.
	Reset time.Duration `json:"-"`
}

// String is the state as the log's text format and the commands have it, without Reset.
func (s State) String() string {
	granted := ""
	if s.Granted > 0 {
		granted = fmt.Sprintf("granted %d, ", s.Granted)
	}
	return fmt.Sprintf("count %d, %sremaining %d", s.Count, granted, s.Remaining)
}

// value is the number of hits in use, less the hits granted.
func (s *State) value() int64 { return s.Count - s.Granted }

// cell is a limit of an Inspection and an operation on its cell.
type cell struct {
	limit    *InspectedLimit
	op       backends.Op // charges the hits of the request, until it is made a reset or a grant
	shared   bool        // envoyproxy/ratelimit counts in it, too
	granting Granting    // unless it has no Hits
	// What a grant is remembered by.
	id           algorithms.Identity
	domain, rule string
	// ruled is the limit of the rule that counts in the same cell as a limit that only the
	// request of the Inspection brings along; else nil. It bounds grants, too.
	ruled *descriptors.Limit
	// lentTo is the limit whose Pool or Borrowed this is, or nil.
	lentTo *InspectedLimit
}

// ruled is the limit of t's rule that counts in the cell of op, or nil.
func ruled(p *service.Plan, t *service.Target, op *backends.Op) *descriptors.Limit {
	if t.Rule == nil {
		return nil
	}
	id := p.Identity(nil, &service.Target{Descriptor: t.Descriptor, Rule: t.Rule})
	for i := range t.Rule.Limits {
		var own backends.Op
		l := &t.Rule.Limits[i]
		if l.Plan(&own, service.OfLimit(id, l), algorithms.Charge{Now: op.Now}); own.Key == op.Key {
			return l
		}
	}
	return nil
}

// maxBatch bounds the cells of one batch for the store.
const maxBatch = 100

// look fills in Before and Next of the cells, or Err. The operations have no lease and cost
// nothing, so neither leases nor the local cache answer them.
func (s *Operator) look(ctx context.Context, cells []cell) {
	looks := slices.Clone(cells)
	for i := range looks {
		looks[i].op = cells[i].op.Unleased().Probe()
	}
	replies := s.apply(ctx, looks)
	for i := range cells {
		if limit, op, r := cells[i].limit, &cells[i].op, &replies[i]; r.Err == nil {
			limit.Before = s.stateOf(limit.Limit, op, r)
			is := limit.Judge(op, r)
			limit.Next = is.RetryAfter
			limit.Never = !is.Allowed && op.Unused().Admitted < op.Times
		}
	}
	for i := range cells {
		l := cells[i].limit
		if pool, own := l.Pool, l.Borrowed; pool != nil && pool.Before != nil && own.Before != nil && !pool.Never && !own.Never {
			if next := max(pool.Next, own.Next); l.Never || next < l.Next {
				l.Next, l.Never = next, false
			}
		}
	}
}

// apply has the store apply the operation of each cell, so that every decorator forgets
// what it remembers of a cell that is changed. It fills in After of a cell that is reset or
// granted hits, or Err, and returns the replies.
func (s *Operator) apply(ctx context.Context, cells []cell) []backends.Reply {
	if len(cells) == 0 {
		return nil
	}
	b := backends.Batch{Ops: make([]backends.Op, len(cells)), Replies: make([]backends.Reply, len(cells))}
	for i := range cells {
		b.Ops[i] = cells[i].op
	}
	_ = s.cfg.Store.Apply(ctx, &b) // its error is the first Err of the replies
	for i := range cells {
		limit, r, look := cells[i].limit, &b.Replies[i], cells[i].op.Look()
		switch limit.Err = r.Err; {
		case r.Err != nil, !b.Ops[i].Verb.Operates():
			continue
		case b.Ops[i].Verb == backends.Reset:
			s.grants.forget(look.Key)
		default:
			s.grants.add(cells[i].granted(&look, r), look.Now)
		}
		limit.After = s.stateOf(limit.Limit, &look, r)
	}
	return b.Replies
}

// granted is the grant of c.granting, after which r is the reply for the cell that op looks at.
func (c *cell) granted(op *backends.Op, r *backends.Reply) grant {
	hits, value, ends := c.limit.Before.Granted+c.granting.Hits, c.limit.Used(op, r), r.Until
	if window := c.limit.Window.Microseconds(); op.Span == backends.Sliding { // the next window still has its count
		ends = (op.Now/window + 1) * window
	}
	if _, end, ok := c.limit.Period(op.Now); ok { // the cell outlives it
		ends = end.UnixMicro()
	}
	return grant{
		GrantInForce: GrantInForce{
			Time: time.Now().UTC(), Who: c.granting.Who, Domain: c.domain, Rule: c.rule, Key: c.limit.Key,
			Hits: hits, Ends: time.UnixMicro(ends).UTC(),
		},
		limit: c.limit.Limit, id: c.id, key: op.Key,
		count: value + hits, until: min(r.Until, ends), credit: op.Kind == backends.Meter && value < 0,
	}
}

// forget drops what this process remembers of cells that it shares with others.
func (s *Operator) forget(cells []cell) {
	memory, has := backends.MemoryOf(s.cfg.Store)
	for i := range cells {
		if has {
			memory.Forget(&cells[i].op)
		}
		s.grants.forget(cells[i].op.Key)
	}
}

// stateOf is the state of l's cell in r, a reply for the cell of op.
func (s *Operator) stateOf(l *descriptors.Limit, op *backends.Op, r *backends.Reply) *State {
	is, value := l.Judge(op, r), l.Used(op, r)
	granted := s.grants.left(op, value)
	if l.Overdraft > 0 { // a grant pays the hits in use
		granted = max(0, -value)
	}
	return &State{Count: value + granted, Granted: granted, Remaining: is.Remaining, Reset: is.Reset}
}

// checkGrant reports whether so many hits may be granted to each of the cells. Its error is
// that of the cell to which fewest may be.
func checkGrant(cells []cell, hits int64) error {
	var wrong error
	fewest := hits
	for i := range cells {
		c := &cells[i]
		check := func(l *descriptors.Limit, remaining int64) {
			err := l.CheckGrant(hits, remaining)
			if largest := l.LargestGrant(remaining); err != nil && (wrong == nil || largest < fewest) {
				if fewest = largest; len(cells) > 1 {
					err = fmt.Errorf("the limit %s: %w; \"only\" names one limit for the grant", c.limit.Choice(), err)
				}
				wrong = service.Wrong("%v", err)
			}
		}
		check(c.limit.Limit, c.limit.Before.Remaining)
		if c.ruled != nil {
			check(c.ruled, max(0, c.ruled.Capacity()-c.limit.Before.value()))
		}
	}
	return wrong
}

// foreseen is the cell after a reset, or after a grant of more than 0 hits.
func (c *cell) foreseen(hits int64) *State {
	capacity, was := c.limit.Capacity(), c.limit.Before
	if hits == 0 {
		return &State{Remaining: capacity}
	}
	if c.limit.Overdraft > 0 {
		value := was.value() - hits
		return &State{Count: max(0, value), Granted: max(0, -value), Remaining: max(0, capacity-value)}
	}
	granted, remaining := was.Granted+hits, was.Remaining+hits
	if c.op.Kind == backends.Meter && remaining == capacity {
		granted = 0 // a bucket that is full has no grant
	}
	return &State{Count: capacity + granted - remaining, Granted: granted, Remaining: remaining}
}

// grant is the operation that grants hits to the cell.
func (c *cell) grant(hits int64) backends.Op {
	op := c.op
	c.limit.Grant(&op, hits)
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
