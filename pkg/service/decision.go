package service

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
)

// decision is the state of one request while it is decided: the request, the
// limits that apply, the store's replies, and the outcome of each descriptor.
type decision struct {
	service *Service
	request *Request

	outcomes []outcome // one for each descriptor of the request
	checks   []check   // one for each operation of the batch
	batch    backends.Batch

	over   bool          // the request is denied
	spared bool          // shadow mode of the service turned a denial into an OK
	delay  time.Duration // until the turn of the request in a queue

	// For observers.
	start   time.Duration // since the service's epoch
	unknown bool          // no rules have the request's domain
	gone    bool          // the caller gave up before the store had decided
	partial bool          // the store left an operation undecided, whatever its policy decided then
	seen    Observation
}

// decisions holds decisions for reuse. A store does not touch a batch after
// Apply has returned, so a decision is free when its request is answered.
var decisions = sync.Pool{New: func() any { return new(decision) }}

// release empties d, keeps the memory of its slices, and returns d to the pool.
func (d *decision) release() {
	if cap(d.outcomes) > mostKept || cap(d.checks) > mostKept {
		return
	}
	*d = decision{
		outcomes: emptied(d.outcomes),
		checks:   emptied(d.checks),
		batch:    backends.Batch{Ops: emptied(d.batch.Ops), Replies: emptied(d.batch.Replies)},
		seen:     Observation{Verdicts: emptied(d.seen.Verdicts)},
	}
	decisions.Put(d)
}

// mostKept is the number of descriptors, limits, or entries of a descriptor whose
// memory is kept for other requests.
const mostKept = 64

// emptied zeroes the elements of s, so that they hold on to no memory, and
// returns s with length 0.
func emptied[T any](s []T) []T {
	clear(s)
	return s[:0]
}

// resized returns n zero elements. It uses the memory of s, whose elements must
// be zero, if they have room in it.
func resized[T any](s []T, n int) []T {
	if n <= cap(s) {
		return s[:n]
	}
	return make([]T, n)
}

// outcome is the result of one descriptor of the request.
type outcome struct {
	asked     *descriptor
	rule      *descriptors.Rule // the rule that matched; nil if none did
	overrides []descriptors.Limit

	first, end int // the descriptor's checks are decision.checks[first:end]

	// shows is the limit that the status reports: the denying limit with the
	// longest wait, or the limit with the least remaining if none denied. It is
	// nil if no limit was decided.
	shows     *descriptors.Limit
	is        algorithms.Decision // of shows
	counted   bool                // the store decided shows, not its policy
	denied    bool                // one of the limits denied
	undecided error               // why one of the limits has no decision; nil if all have one
}

// limits returns the override of the descriptor, or else the limits of its rule,
// also the limits that another rule of the request replaces.
func (o *outcome) limits() []descriptors.Limit {
	if o.overrides != nil || o.rule == nil {
		return o.overrides
	}
	return o.rule.Limits
}

// An override belongs to the request and not to the rule whose limits it takes the
// place of, so the rule's unlimited, shadow mode and quota mode do not apply to it.

func (o *outcome) unlimited() bool { return o.overrides == nil && o.rule != nil && o.rule.Unlimited }
func (o *outcome) shadow() bool    { return o.overrides == nil && o.rule != nil && o.rule.Shadow }

// open reports that nobody knows whether the descriptor passes: no limit of it
// denied, and at least one has no decision.
func (o *outcome) open() bool { return o.undecided != nil && !o.denied }

// passed reports that every limit of the descriptor allowed it, or that its
// rule is not enforced.
func (o *outcome) passed() bool { return o.shadow() || o.fits() }

// fits reports that every limit of the descriptor allowed it.
func (o *outcome) fits() bool { return !o.denied && o.undecided == nil }

// remaining is the number of hits that still fit the limit that o shows. It is 0
// after a denial that is enforced.
func (o *outcome) remaining() int64 {
	if o.denied && !o.shadow() {
		return 0
	}
	return max(o.is.Remaining, 0)
}

// resetSeconds is the wait after a denial until the same cost would pass, and
// otherwise the time until the full quota is back. It is in whole seconds,
// rounded up because Envoy truncates, and at least 1.
func (o *outcome) resetSeconds() int64 {
	wait := o.is.Reset
	if o.denied {
		wait = o.is.RetryAfter
	}
	return max(1, int64((wait+time.Second-1)/time.Second))
}

// check is one limit of one descriptor. A check and its operation in the batch
// have the same index.
type check struct {
	outcome *outcome
	limit   *descriptors.Limit
	decided bool                // by the store or by the limit's policy
	counted bool                // by the store
	is      algorithms.Decision // if decided
}

// denies reports that the limit denied.
func (c *check) denies() bool { return c.decided && !c.is.Allowed }

// decide fills in d.over and the outcomes. Its errors are those of
// [Service.Decide].
func (d *decision) decide(ctx context.Context) error {
	if err := d.service.cfg.Caps.check(d.request); err != nil {
		return err
	}
	tree := d.service.tree.Load()
	if tree == nil {
		return status.Error(codes.Unavailable, "no rate limit configuration loaded")
	}
	d.outcomes = resized(d.outcomes, len(d.request.descriptors))
	domain := tree.Domain(d.request.domain)
	if domain == nil { // then overrides do not count, as in envoyproxy/ratelimit
		d.unknown = true
		return nil
	}
	if err := d.match(domain); err != nil {
		return err
	}
	d.plan(ctx, domain)
	if len(d.batch.Ops) > 0 {
		// Apply returns the first error of the replies; judge reads all of them.
		_ = d.service.cfg.Store.Apply(ctx, &d.batch)
		d.judge(ctx)
	}
	if d.gone {
		return status.FromContextError(ctx.Err()).Err()
	}
	err := d.conclude()
	if d.partial && d.service.cfg.Local != nil {
		d.giveBackLocal(d.over || err != nil)
	}
	return err
}
