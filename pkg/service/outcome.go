package service

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
)

// Outcome is the answer to a request in plain types: everything that a reply shows,
// before durations are rounded to seconds. It refers to the request's entries, and is
// valid until they change.
type Outcome struct {
	Over bool
	// Beyond: the request was not decided, because it is beyond the caps ([Request.Beyond]).
	Beyond bool
	// Delay is how long the answer is held: until the turn of a request in a queue, or the
	// delay of a threshold, the longer of both.
	Delay    time.Duration
	At       int64    // the time of the decisions, in µs since the epoch on the store's clock
	Statuses []Status // one for each of the request's Descriptors
	// Headline is the index of the status that headers describe: the denying status
	// with the longest wait if the request is denied, else the status with the least
	// remaining; the first on a tie. It is -1 if no status has an enforced limit.
	Headline int
	// Verdicts has one element for each limit that no other rule of the request
	// replaces, in the order of the descriptors.
	Verdicts []Verdict
	// Reached: one of Verdicts has a Reached. Headers are those that thresholds add to the
	// request that goes upstream, ResponseHeaders those that they add to the response.
	Reached                  bool
	Headers, ResponseHeaders []descriptors.Header

	plan    Plan
	partial bool // the store left an operation undecided; a policy may have decided it
	gone    bool // the caller gave up before the store had decided
	seen    Observation
	charged []Verdict // Verdicts without refunds, if there are refunds
}

// Status is the outcome of one descriptor.
type Status struct {
	// Rule is the rule that matched, nil if none did. With Override its limits
	// were not asked, because the request brought one.
	Rule     *descriptors.Rule
	Override bool
	// Unlimited: the rule has no limits, and Remaining is math.MaxUint32.
	Unlimited bool
	// Shadow: the rule is in shadow mode.
	Shadow bool
	// Shown is the verdict that the status shows: the denying one with the longest
	// wait, else the one with the least remaining; nil if no limit was decided.
	Shown *Verdict
	// Denied is false for a rule in shadow mode. ShadowDenied: a limit of such a
	// rule would have denied.
	Denied, ShadowDenied bool
	// WatchedDenied: a limit that is watched would have denied. No other field tells of such
	// limits.
	WatchedDenied bool
	// Remaining is the number of hits that still fit the limit of Shown. It is 0 after a denial
	// that is enforced, where Shown.Is may have hits that fit a smaller cost.
	Remaining int64
	// Borrowed: the pool of one of the limits has the hits, or has room for a check.
	Borrowed bool
	// Reservation is what became of the first reservation that the descriptor names: "held",
	// "settled", "unchanged", or "" if there is none.
	Reservation string
	// Undecided says why a limit was decided neither by the store nor by its
	// policy, and no other limit of the descriptor denied.
	Undecided error
}

// Passed reports that every limit of the descriptor allowed it, or that its rule is
// not enforced.
func (s *Status) Passed() bool { return s.Shadow || !s.Denied && s.Undecided == nil }

// outcomes holds outcomes for reuse. Their batches may be reused, too: a store does
// not touch a batch after Apply has returned.
var outcomes = sync.Pool{New: func() any { return new(Outcome) }}

// Release gives the memory of o to later requests. The caller must not use o
// afterwards. Without Release the garbage collector takes the memory.
func (o *Outcome) Release() {
	p := &o.plan
	if cap(o.Statuses) > maxKept || cap(p.Verdicts) > maxKept {
		return
	}
	statuses, charged := emptied(o.Statuses), emptied(o.charged)
	targets, verdicts := emptied(p.Targets), emptied(p.Verdicts)
	ops, replies := emptied(p.batch.Ops), emptied(p.batch.Replies)
	*o = Outcome{} // a literal with fields is made on the stack and then copied
	o.Statuses, o.charged = statuses, charged
	p.Targets, p.Verdicts, p.batch.Ops, p.batch.Replies = targets, verdicts, ops, replies
	outcomes.Put(o)
}

// maxKept is the largest number of descriptors or limits whose memory is kept for
// other requests.
const maxKept = 64

// emptied zeroes the elements of s, so that they hold on to no memory, and
// returns s with length 0.
func emptied[T any](s []T) []T {
	clear(s)
	return s[:0]
}

// judge turns the store's replies into verdicts and statuses. Nobody waits in the
// queue of a limit that is not enforced.
func (o *Outcome) judge(ctx context.Context) {
	p := &o.plan
	o.At = p.now
	o.Verdicts = p.Verdicts
	for i := range p.Targets {
		t, s := &p.Targets[i], &o.Statuses[i]
		s.Rule, s.Override, s.Unlimited, s.Shadow = t.Rule, t.overrides != nil, t.Unlimited(), t.Shadow()
		checks := p.checks(t)
		for j := range checks {
			v := &checks[j]
			undecided := o.decided(v)
			switch {
			case undecided != nil && !o.decideByPolicy(ctx, v):
				if s.Undecided == nil && !s.Denied && !s.ShadowDenied && !v.Watched {
					s.Undecided = undecided
				}
			case v.Watched:
				s.WatchedDenied = s.WatchedDenied || !v.Is.Allowed
			default:
				s.add(v, p.batch.Refused)
				if !p.cfg.ShadowMode && !s.Shadow {
					o.Delay = max(o.Delay, v.Is.Delay)
				}
			}
		}
		s.Borrowed = s.Borrowed && !s.Denied
		if s.Unlimited {
			s.Remaining = math.MaxUint32
		} else if s.Shown != nil && !s.Denied {
			s.Remaining = s.Shown.Is.Remaining
		}
	}
}

// decided takes in what the operation of v did. The error says why the store, or the pool that v has
// asked, left it undecided.
func (o *Outcome) decided(v *Verdict) (undecided error) {
	p := &o.plan
	if undecided = v.reply.Err; undecided != nil {
		return undecided
	}
	v.Take(v.op, v.reply)
	if p.call != nil && p.call.Kind == Check && v.Is.Allowed {
		v.Hits = 0 // they are not charged
	}
	if v.Account != nil {
		o.seen.Accounts = append(o.seen.Accounts, v)
	}
	if v.loan != nil {
		undecided = v.loan.settle(v)
	}
	o.partial = o.partial || !v.Counted
	return undecided
}

// Borrowed reports whether one of Statuses is Borrowed.
func (o *Outcome) Borrowed() bool {
	return slices.ContainsFunc(o.Statuses, func(s Status) bool { return s.Borrowed })
}

// Reservation is that of the first of Statuses that has any.
func (o *Outcome) Reservation() string {
	for i := range o.Statuses {
		if r := o.Statuses[i].Reservation; r != "" {
			return r
		}
	}
	return ""
}

// Take fills in the decision of the store, or of this process in its place
// (Config.Local).
func (v *Verdict) Take(op *backends.Op, r *backends.Reply) {
	v.Decided, v.Counted, v.Recalled = true, r.Replicas == 0, r.Recalled
	v.Is = v.Limit.Judge(op, r)
	if r.Account != nil {
		v.Account = v.Limit.Account(op, r, v.Hits)
		if v.Account.Reservation != "" {
			v.Hits = uint64(v.Account.Charged) // hits that were reserved before are counted already
		}
	}
	if !v.Counted {
		return
	}
	capacity := v.Limit.Capacity()
	v.After = capacity - v.Is.Remaining
	// A denied cost can leave a fixed window below its limit: the cost did not fit
	// beside the cost of an earlier descriptor, which was then not charged because
	// the batch was refused. In that case no hit is beyond the limit.
	if op.Verb == backends.Count && (v.Is.Allowed || r.Value.Whole > capacity) {
		v.All, v.After = true, r.Value.Whole
	}
}

// decideByPolicy has the policy of the limit decide v, which the store left
// undecided. It returns false if there is no decision: with the policy error, and
// after the caller has given up, so that it is charged nothing.
func (o *Outcome) decideByPolicy(ctx context.Context, v *Verdict) bool {
	o.partial, v.Decided, v.Counted = true, false, false
	o.gone = o.gone || errors.Is(ctx.Err(), context.Canceled)
	if o.gone || v.op.IfUndecided == backends.Open {
		return false
	}
	v.Decided, v.Is = true, byPolicy(v.Limit, v.op)
	return true
}

// add takes in the decision of one of the descriptor's limits. refused: the store has charged nothing
// of the request.
func (s *Status) add(v *Verdict, refused bool) {
	if s.Shown == nil || v.GoesBefore(s.Shown) {
		s.Shown = v
	}
	if !v.Is.Allowed {
		s.Denied, s.ShadowDenied, s.Undecided = !s.Shadow, s.Shadow, nil
	}
	if v.Account != nil {
		s.Reservation = cmp.Or(s.Reservation, v.Account.Reservation)
	}
	s.Borrowed = s.Borrowed || v.Borrowed() && !v.Shadow && !refused
}

// GoesBefore reports whether a status shows v and not o, another limit of its descriptor.
func (v *Verdict) GoesBefore(o *Verdict) bool {
	switch {
	case v.Is.Allowed != o.Is.Allowed:
		return !v.Is.Allowed
	case v.Is.Allowed:
		return v.Is.Remaining < o.Is.Remaining
	}
	return v.Is.RetryAfter > o.Is.RetryAfter
}

// conclude decides the request by its statuses. One enforced descriptor that denies
// is enough, and so are all descriptors in quota mode together. Otherwise the request
// fails if descriptors that are undecided could deny it.
func (o *Outcome) conclude() error {
	var denied, quotaDenied, quotaPassed bool
	var undecided, quotaUndecided error
	for i := range o.Statuses {
		s, quota := &o.Statuses[i], o.plan.Quota(&o.plan.Targets[i])
		switch {
		case s.Passed():
			quotaPassed = quotaPassed || quota
		case s.Denied && quota:
			quotaDenied = true
		case s.Denied:
			denied = true
		case quota:
			quotaUndecided = s.Undecided
		default:
			undecided = s.Undecided
		}
	}
	denied = denied || quotaDenied && !quotaPassed && quotaUndecided == nil
	if undecided == nil && !quotaPassed {
		undecided = quotaUndecided
	}
	switch {
	case o.plan.cfg.ShadowMode:
		o.seen.Spared = denied
	case denied:
		o.Over, o.Delay = true, 0
	case undecided != nil:
		return Errorf(codes.Unavailable, "rate limit not decided: %v", undecided)
	}
	o.Headline = o.headline()
	return nil
}

// headline is Headline. A status does not count if its rule is in shadow mode or if
// it is undecided.
func (o *Outcome) headline() int {
	best := -1
	for i := range o.Statuses {
		s := &o.Statuses[i]
		if s.Shown == nil || s.Undecided != nil || s.Shadow || o.plan.cfg.ShadowMode && s.Denied {
			continue
		}
		if best < 0 || o.before(s, &o.Statuses[best]) {
			best = i
		}
	}
	return best
}

// before reports whether headers describe s and not t.
func (o *Outcome) before(s, t *Status) bool {
	if o.Over && (s.Denied || t.Denied) {
		return s.Denied && (!t.Denied || s.Shown.Is.RetryAfter > t.Shown.Is.RetryAfter)
	}
	return s.Remaining < t.Remaining
}

// result is how the request ended; err is the error of its decision.
func (o *Outcome) result(err error) Result {
	switch {
	case o.gone:
		return CallGone
	case err != nil && o.partial:
		return NoStore
	case errors.Is(err, ErrNoRules):
		return NoRules
	case err != nil:
		return Invalid
	case o.Over:
		return Limited
	}
	return Passed
}

// charges returns Verdicts without the verdicts of refunds.
func (o *Outcome) charges() []Verdict {
	if !o.plan.refunds {
		return o.Verdicts
	}
	for i := range o.Verdicts {
		if !o.Verdicts[i].op.Verb.GivesBack() {
			o.charged = append(o.charged, o.Verdicts[i])
		}
	}
	return o.charged
}
