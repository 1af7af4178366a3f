package service

import (
	"context"
	"errors"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
)

// Local decides, in this process, operations that the store left undecided and
// whose limit has the policy local. It is safe for concurrent use.
type Local interface {
	// Remember is told each operation of such a limit that the store has decided,
	// also a reset or a grant, and the store's reply.
	Remember(l *algorithms.Limit, op *backends.Op, r *backends.Reply)
	// Decide charges op, or gives it back if it is a refund, and judges it.
	Decide(l *algorithms.Limit, op *backends.Op) algorithms.Decision
}

// minRetryAfter is the least wait after a denial by policy. A breaker asks a
// server that is away again within half a second.
const minRetryAfter = time.Second

// ifUndecided says what the operations beside a charge or refund of l may count
// on if the store leaves it undecided. judge uses it, too, so that both agree. A
// limit of 0 denies its hits whatever the store would say. The decision of a
// local limit comes too late for the others, so they are charged.
func (s *Service) ifUndecided(l *descriptors.Limit, refund bool) backends.Undecided {
	switch {
	case l.Requests == 0 && !refund:
		return backends.Refuses
	case l.OnError == descriptors.PolicyError, l.OnError == descriptors.PolicyLocal && s.cfg.Local == nil:
		return backends.Open
	case l.OnError == descriptors.PolicyDeny && !refund:
		return backends.Refuses
	}
	return backends.Fits
}

// undecided applies the policy of a check whose operation the store left
// undecided with err. A caller that is gone gets no decision and is charged
// nothing. With the policy error the limit stays without a decision, and conclude
// fails the request if the limit could deny it.
func (d *decision) undecided(ctx context.Context, c *check, op *backends.Op, err error) {
	d.partial = true
	d.gone = d.gone || errors.Is(ctx.Err(), context.Canceled)
	is := algorithms.Decision{Allowed: true}
	switch {
	case d.gone || op.IfUndecided == backends.Open:
		if c.outcome.undecided == nil {
			c.outcome.undecided = err
		}
		return
	case op.IfUndecided == backends.Fits && c.limit.OnError == descriptors.PolicyLocal:
		is = d.service.cfg.Local.Decide(c.limit.Limit, op)
	default:
		unused := ofUnused(c.limit.Limit, op)
		is.Allowed, is.Reset = op.IfUndecided == backends.Fits, unused.Reset
		switch {
		case !is.Allowed:
			is.RetryAfter = max(unused.RetryAfter, minRetryAfter)
		case unused.Allowed:
			is.Remaining = unused.Remaining
		}
	}
	c.decide(is, false)
}

// ofUnused is the decision of a limit that nobody has used yet.
func ofUnused(l *algorithms.Limit, op *backends.Op) algorithms.Decision {
	var r backends.Reply
	if op.Kind == backends.List {
		_, r = backends.Log(nil).Step(op)
	} else {
		_, r = backends.Cell{}.Step(op, 0)
	}
	return l.Judge(op, &r)
}

// giveBackLocal gives back the local charges of hits that were not admitted,
// where a store would not have charged them: beside another limit of the
// descriptor that denied, and in a request that is decided as a whole. refused says
// that the request is not admitted.
func (d *decision) giveBackLocal(refused bool) {
	for i := range d.checks {
		c, op := &d.checks[i], &d.batch.Ops[i]
		if c.counted || !c.decided || !c.is.Allowed || op.Refund || c.limit.OnError != descriptors.PolicyLocal {
			continue
		}
		if d.batch.AllOrNothing && refused || op.Group != 0 && !c.outcome.fits() {
			back := op.Inverse()
			_ = d.service.cfg.Local.Decide(c.limit.Limit, &back)
		}
	}
}
