package service

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
)

// decision is one request on its way: which limits apply, what the store said,
// and the outcome per descriptor.
type decision struct {
	service *Service
	request *pb.RateLimitRequest

	outcomes []outcome
	checks   []check
	batch    backends.Batch
	delay    time.Duration

	// For observers, when there are any.
	start   time.Duration // since the service's epoch
	unknown bool          // nobody has rules for the domain
	spared  bool          // shadow mode turned a denial into an OK
	failed  Result        // why the store did not decide
	entries []descriptors.Entry
	seen    Observation
}

// decisions are kept for reuse: no store touches a batch after it has answered.
var decisions = sync.Pool{New: func() any { return new(decision) }}

func newDecision(s *Service, req *pb.RateLimitRequest) *decision {
	d := decisions.Get().(*decision)
	d.service, d.request = s, req
	return d
}

// release forgets the request and what it came to.
func (d *decision) release() {
	const most = 64 // descriptors whose room is worth keeping
	if cap(d.outcomes) > most || cap(d.checks) > most {
		return
	}
	clear(d.outcomes)
	clear(d.checks)
	clear(d.batch.Ops)
	clear(d.batch.Replies)
	clear(d.entries)
	clear(d.seen.Verdicts)
	d.service, d.request, d.delay = nil, nil, 0
	d.unknown, d.spared, d.failed, d.seen.Domain = false, false, 0, ""
	d.outcomes, d.checks, d.entries = d.outcomes[:0], d.checks[:0], d.entries[:0]
	d.batch.Ops, d.batch.Replies = d.batch.Ops[:0], d.batch.Replies[:0]
	decisions.Put(d)
}

// outcome is what one descriptor of the request came to.
type outcome struct {
	rule      *descriptors.Rule // nil: none matched, or an override
	overrides []descriptors.Limit
	// shows is the limit that the status reports: the denying one with the
	// longest wait, else the one with the least remaining; nil when none
	// applied.
	shows  *descriptors.Limit
	is     algorithms.Decision // of shows
	denied bool                // one of its limits denied
}

func (o *outcome) limits() []descriptors.Limit {
	if o.overrides != nil || o.rule == nil {
		return o.overrides
	}
	return o.rule.Limits
}

func (o *outcome) unlimited() bool { return o.overrides == nil && o.rule != nil && o.rule.Unlimited }
func (o *outcome) shadow() bool    { return o.overrides == nil && o.rule != nil && o.rule.Shadow }
func (o *outcome) quota() bool     { return o.overrides == nil && o.rule != nil && o.rule.Quota }

// check is one limit of one descriptor; it goes with the operation of the same
// index.
type check struct {
	descriptor int // of the request
	outcome    *outcome
	limit      *descriptors.Limit
	is         algorithms.Decision
}

// decide matches, plans, applies and judges.
func (d *decision) decide(ctx context.Context, domain *descriptors.Domain) error {
	if err := d.match(domain); err != nil {
		return err
	}
	d.plan(domain, patience(ctx))
	if len(d.batch.Ops) == 0 {
		return nil
	}
	if err := d.service.cfg.Store.Apply(ctx, &d.batch); err != nil {
		if d.failed = NoStore; errors.Is(ctx.Err(), context.Canceled) {
			d.failed = CallGone
		}
		return storeError(ctx, err)
	}
	if domain.Charge == descriptors.ChargeDenying {
		d.chargeDenials(ctx)
	}
	d.judge()
	return nil
}

// storeError is what a caller is told when the store did not decide.
func storeError(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return status.FromContextError(ctx.Err()).Err()
	}
	return status.Errorf(codes.Unavailable, "rate limit not decided: %v", err)
}

// match finds what applies to each descriptor.
func (d *decision) match(domain *descriptors.Domain) error {
	var room [8]descriptors.Entry
	for i, desc := range d.request.Descriptors {
		o := &d.outcomes[i]
		entries := appendEntries(room[:0], desc)
		if len(entries) > 0 {
			o.rule = domain.Match(entries)
		}
		if desc.GetLimit() != nil {
			l, err := override(i, desc.Limit, o.rule)
			if err != nil {
				return err
			}
			o.overrides = []descriptors.Limit{l}
		}
	}
	return nil
}

// replaced reports whether another limit of the request replaces the one of
// that name. A replaced limit replaces all the same, and so do limits that are
// unlimited or in shadow mode; overrides neither replace nor are replaced.
func (d *decision) replaced(name string) bool {
	if name == "" {
		return false
	}
	for i := range d.outcomes {
		o := &d.outcomes[i]
		if o.overrides != nil || o.rule == nil {
			continue
		}
		if slices.Contains(o.rule.Replaces, name) {
			return true
		}
		for j := range o.rule.Limits {
			if slices.Contains(o.rule.Limits[j].Replaces, name) {
				return true
			}
		}
	}
	return false
}

// plan makes the batch that charges every limit that applies.
func (d *decision) plan(domain *descriptors.Domain, patience int64) {
	admitted := domain.Charge != descriptors.ChargeAlways
	now := d.service.cfg.Store.Now()
	d.batch.AllOrNothing = admitted

	var room [8]descriptors.Entry
	var idRoom [160]byte
	for i, desc := range d.request.Descriptors {
		o := &d.outcomes[i]
		limits := o.limits()
		if len(limits) == 0 {
			continue
		}
		var shared []string
		if o.overrides == nil {
			shared = o.rule.Shared
		}
		id := algorithms.Identity{Prefix: d.service.cfg.KeyPrefix}
		if entries := appendEntries(room[:0], desc); d.service.cfg.RatelimitKeys && known(limits) {
			id.ID = descriptors.AppendRatelimitID(idRoom[:0], domain.Name, entries, shared)
			id.ByStart = true
		} else {
			id.ID = descriptors.AppendID(idRoom[:0], domain.Name, entries, shared)
		}
		charge := algorithms.Charge{
			Now: now, Cost: hits(d.request, desc), Refund: desc.GetIsNegativeHits(),
			AdmittedOnly: admitted, Patience: patience,
		}
		for j := range limits {
			l := &limits[j]
			if o.overrides == nil && d.replaced(l.Name) {
				continue
			}
			d.checks = append(d.checks, check{descriptor: i, outcome: o, limit: l})
			d.batch.Ops = append(d.batch.Ops, backends.Op{})
			op := &d.batch.Ops[len(d.batch.Ops)-1]
			l.Plan(op, id, charge)
			// With ChargeDenying what is not enforced spares the others, too,
			// as it does in envoyproxy/ratelimit.
			op.Soft = domain.Charge == descriptors.ChargeAdmitted &&
				(d.service.cfg.ShadowMode || o.shadow() || d.service.cfg.QuotaMode || o.quota())
		}
	}
	d.batch.Replies = sized(d.batch.Replies, len(d.batch.Ops))
}

// known reports whether envoyproxy/ratelimit has such limits, too: one for a
// rule, in a fixed window of one unit.
func known(limits []descriptors.Limit) bool {
	return len(limits) == 1 && limits[0].Clocked() && limits[0].Multiplier <= 1
}

// judge turns the store's replies into outcomes. Nobody waits for a limit that
// is not enforced.
func (d *decision) judge() {
	for i := range d.checks {
		c := &d.checks[i]
		c.is = c.limit.Judge(&d.batch.Ops[i], &d.batch.Replies[i])
		if !d.service.cfg.ShadowMode && !c.outcome.shadow() {
			d.delay = max(d.delay, c.is.Delay)
		}
		c.outcome.add(c.limit, c.is)
	}
}

// add takes in the decision of one more of the descriptor's limits.
func (o *outcome) add(l *descriptors.Limit, is algorithms.Decision) {
	var shows bool
	switch {
	case o.shows == nil:
		shows = true
	case is.Allowed != o.is.Allowed:
		shows = !is.Allowed
	case is.Allowed:
		shows = is.Remaining < o.is.Remaining
	default:
		shows = is.RetryAfter > o.is.RetryAfter
	}
	if shows {
		o.shows, o.is = l, is
	}
	o.denied = o.denied || !is.Allowed
}

// sized is a slice of n zeroes, in room, which has nothing else, if it fits.
func sized[T any](room []T, n int) []T {
	if n <= cap(room) {
		return room[:n]
	}
	return make([]T, n)
}
