package service

import (
	"context"
	"math"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
)

// Evaluation is a decision in plain types. It has everything that a reply shows,
// before durations are rounded to seconds.
type Evaluation struct {
	Over     bool
	Delay    time.Duration // the time until the turn of a request that passes, in a queue
	Statuses []Status      // one for each descriptor of the request
	// Headline is the index of the status that headers describe: of a request that
	// is denied the denying one with the longest wait, else the one with the least
	// remaining. It is -1 if no status has an enforced limit.
	Headline int
}

// Status is the outcome of one descriptor.
type Status struct {
	// Rule is the rule that matched, nil if none did. With Override its limits
	// were not asked, because the request brought one.
	Rule     *descriptors.Rule
	Override bool
	// Unlimited: the rule has no limits, and Remaining is the largest number.
	Unlimited bool
	// Limit is the limit that the status is about: the denying one with the longest
	// wait, else the one with the least remaining; nil if no limit was decided.
	Limit *descriptors.Limit
	// Denied is false for a rule in shadow mode. ShadowDenied: a limit of such a
	// rule would have denied.
	Denied, ShadowDenied bool
	// Remaining is the number of hits that the status shows: 0 after a denial that
	// is enforced, where Is may have hits that fit a smaller cost.
	Remaining uint32
	// Is is the decision of Limit.
	Is algorithms.Decision
	// Policy is the failure policy that decided Limit in the store's place; "" if
	// the store decided.
	Policy string
	// Undecided says why a limit was decided neither by the store nor by its
	// policy, and no other limit of the descriptor denied.
	Undecided error
}

// Evaluate decides like [Service.Decide] and returns the same errors. It neither
// writes a reply nor waits in a queue.
func (s *Service) Evaluate(ctx context.Context, r *Request) (Evaluation, error) {
	d := s.begin(r)
	defer d.release()
	err := d.decide(ctx)
	if d.observed() {
		d.tell(err)
	}
	if err != nil {
		return Evaluation{}, err
	}
	return d.evaluation(), nil
}

func (d *decision) evaluation() Evaluation {
	e := Evaluation{Over: d.over, Headline: -1, Statuses: make([]Status, len(d.outcomes))}
	if !d.over {
		e.Delay = d.delay
	}
	headline := d.headline()
	for i := range d.outcomes {
		o := &d.outcomes[i]
		e.Statuses[i] = o.status()
		if o == headline {
			e.Headline = i
		}
	}
	return e
}

func (o *outcome) status() Status {
	s := Status{
		Rule: o.rule, Override: o.overrides != nil, Unlimited: o.unlimited(), Limit: o.shows, Is: o.is,
		Denied: o.denied && !o.shadow(), ShadowDenied: o.denied && o.shadow(),
	}
	switch {
	case s.Unlimited:
		s.Remaining = math.MaxUint32
	case o.shows != nil:
		s.Remaining = uint32(min(o.remaining(), math.MaxUint32))
	}
	if o.shows != nil && !o.counted {
		s.Policy = o.shows.OnError.String()
	}
	if o.open() {
		s.Undecided = o.undecided
	}
	return s
}
