package service

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
)

// judge turns the store's replies into outcomes. Nobody waits in the queue of a
// limit that is not enforced.
func (d *decision) judge(ctx context.Context) {
	for i := range d.checks {
		c, op, r := &d.checks[i], &d.batch.Ops[i], &d.batch.Replies[i]
		if r.Err != nil {
			d.undecided(ctx, c, op, r.Err)
		} else {
			c.decide(c.limit.Judge(op, r), true)
			if c.limit.OnError == descriptors.PolicyLocal && d.service.cfg.Local != nil {
				d.service.cfg.Local.Remember(c.limit.Limit, op, r)
			}
		}
		if !d.service.cfg.ShadowMode && !c.outcome.shadow() {
			d.delay = max(d.delay, c.is.Delay)
		}
	}
}

// decide adds a decision of the limit to the outcome of its descriptor. counted
// says that the store made it, and not the limit's policy.
func (c *check) decide(is algorithms.Decision, counted bool) {
	c.decided, c.counted, c.is = true, counted, is
	c.outcome.add(c.limit, is, counted)
}

// add takes in the decision of one of the descriptor's limits.
func (o *outcome) add(l *descriptors.Limit, is algorithms.Decision, counted bool) {
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
		o.shows, o.is, o.counted = l, is, counted
	}
	o.denied = o.denied || !is.Allowed
}

// tally counts the descriptors of a request by their outcomes.
type tally struct {
	denied, passed, open int
	err                  error // of the last descriptor that is open
}

func (t *tally) add(o *outcome) {
	switch {
	case o.shadow():
		t.passed++
	case o.denied:
		t.denied++
	case o.undecided != nil:
		t.open++
		t.err = o.undecided
	default:
		t.passed++
	}
}

// conclude decides the request by its outcomes. One enforced descriptor that
// denies is enough, and so are all descriptors in quota mode together. Else the
// request fails with Unavailable if it could be denied by descriptors that are
// open.
func (d *decision) conclude() error {
	var single, quota tally
	for i := range d.outcomes {
		o := &d.outcomes[i]
		switch {
		case d.quota(o):
			quota.add(o)
		case !o.unlimited():
			single.add(o)
		}
	}
	denied := single.denied > 0 || quota.denied > 0 && quota.passed+quota.open == 0
	if d.service.cfg.ShadowMode {
		d.spared = denied
		return nil
	}
	d.over = denied
	switch {
	case denied:
		return nil
	case single.open > 0:
		return notDecided(single.err)
	case quota.open > 0 && quota.passed == 0:
		return notDecided(quota.err)
	}
	return nil
}

// notDecided is the error of a request that neither the store nor policies decided.
func notDecided(err error) error {
	return status.Errorf(codes.Unavailable, "rate limit not decided: %v", err)
}

// headline is the outcome that headers, body and metadata describe. Of a request
// that is denied it is the denying outcome with the longest wait, else the
// outcome with the least remaining; the first on a tie. An outcome does not show
// if its rule is in shadow mode or if it is open. headline is nil if no outcome
// shows.
func (d *decision) headline() *outcome {
	var best *outcome
	for i := range d.outcomes {
		o := &d.outcomes[i]
		if o.shows == nil || o.open() || o.shadow() || d.service.cfg.ShadowMode && o.denied {
			continue
		}
		switch {
		case best == nil:
			best = o
		case d.over && (o.denied || best.denied):
			if o.denied && (!best.denied || o.is.RetryAfter > best.is.RetryAfter) {
				best = o
			}
		case o.remaining() < best.remaining():
			best = o
		}
	}
	return best
}
