package service

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
)

// Call makes a Request one that only looks, or that knows its cost later. It borrows from no
// pool, waits in no queue, and is Unavailable while the store is away, whatever the policies of
// its limits say.
type Call struct {
	Kind CallKind
	// Amount is the cost in hits of each descriptor, of Reserve and Commit.
	Amount uint64
	// ID names the hold that Reserve makes and Commit ends, 16 bytes. It is "" if there is no hold.
	ID string
	// TTL is how long Reserve holds the hits; 0, and more than Config.MaxHold, is MaxHold.
	TTL time.Duration
	// Released is set by a decided Commit whose ID held hits until then.
	Released bool
}

// CallKind is what a Call does.
type CallKind uint8

const (
	// Check decides and charges nothing.
	Check CallKind = iota
	// Report charges, whatever remains.
	Report
	// Reserve holds the hits in all limits of the request or in none; of the rules in quota mode
	// those with room hold them. Nothing is held if Amount is 0. It is Unimplemented if a limit
	// cannot hold hits.
	Reserve
	// Commit ends the hold ID and charges Amount, whatever remains. An ID that holds nothing is
	// charged, too. Where ID was committed before, Commit changes nothing.
	Commit
)

// always reports whether c is answered OK, whatever remains.
func (c *Call) always() bool { return c.Kind == Report || c.Kind == Commit }

// checkHolds returns the error of a Reserve on a limit that cannot hold hits.
func (p *Plan) checkHolds() error {
	for i := range p.Verdicts {
		if v := &p.Verdicts[i]; v.Limit.CheckHold() != nil {
			return Errorf(codes.Unimplemented, "the rule %s cannot hold hits because of its %v", v.Path(p.Domain.Name), v.Limit.CheckHold())
		}
	}
	return nil
}

// charge adds to a charge what c asks.
func (c *Call) charge(to *algorithms.Charge, longest time.Duration) {
	switch c.Kind {
	case Report:
		to.Beyond = true
	case Commit:
		to.Beyond, to.Reservation = true, c.ID
	case Reserve:
		to.Reservation, to.TTL = c.ID, longest.Microseconds()
		if c.TTL > 0 && c.TTL < longest {
			to.TTL = max(c.TTL.Microseconds(), 1)
		}
	}
}

// ask has the store decide the batch, which has an operation for each limit, as one of the call. A
// check is decided by looks that fit where the charges would.
func (p *Plan) ask(ctx context.Context) {
	for i := range p.batch.Ops {
		p.batch.Ops[i].IfUndecided = backends.Open
	}
	p.batch.AllOrNothing = p.batch.AllOrNothing || p.call.Kind == Reserve
	planned := slices.Clone(p.batch.Ops)
	for i := range planned {
		if p.call.Kind == Check {
			p.batch.Ops[i] = planned[i].Unleased().Probe()
		}
	}
	p.apply(ctx)
	copy(p.batch.Ops, planned)
}

// conclude completes the outcome of a call; err is that of its decision.
func (c *Call) conclude(o *Outcome, err error) error {
	o.Delay = 0
	if away := o.plan.batch.Err(); away != nil {
		o.partial, o.Over = true, false
		return Errorf(codes.Unavailable, "rate limit not decided: %v", away)
	}
	for _, r := range o.plan.batch.Replies {
		c.Released = c.Released || r.Account != nil && r.Account.Held != backends.Amount{}
	}
	return err
}
