package split

import (
	"context"
	"fmt"

	"example.org/rls/pkg/backends"
)

// joint is a batch with operations that are charged together or not at all and
// live in several places.
type joint struct {
	*backends.Batch
	places *Places
}

// run charges in a first round. In a second one it gives back what should not
// have been charged, and makes the batch's refunds: how much of a refund its
// cell took cannot be found out, so a refund cannot be undone.
func (j *joint) run(ctx context.Context) error {
	charges := j.charges()
	if len(charges) > 0 {
		j.places.Ask(ctx, charges, func(*Part) {})
	}
	for i := range j.Ops {
		j.Replies[i] = backends.Reply{Admitted: j.Ops[i].Times} // a refund fits
	}
	for _, p := range charges {
		p.Answer(j.Batch)
	}
	second := j.second(charges)
	if len(second) == 0 {
		return j.Err()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), j.places.GiveBack)
		defer cancel()
		j.places.Ask(ctx, second, func(*Part) {})
	}()
	select {
	case <-done:
		for _, p := range second {
			j.finish(p)
		}
	case <-ctx.Done():
		j.leave(ctx.Err())
	}
	return j.Err()
}

// charges are the parts of the first round.
func (j *joint) charges() []*Part {
	parts := j.places.divide(j.Batch, func(op *backends.Op) bool { return !op.Refund })
	for _, p := range parts {
		p.AllOrNothing = j.AllOrNothing
		for i := range p.Ops {
			if p.Ops[i].Role == backends.Quota {
				p.Ops[i].Role = backends.Lenient // a quota in another place may pass
			}
		}
	}
	return parts
}

// second decides the batch by the replies to its charges and makes the parts of
// the second round. In the places that it goes to, it also looks at the other
// cells, so that replies show them after the batch.
func (j *joint) second(charges []*Part) []*Part {
	surplus := make([]int64, len(j.Ops)) // how often an operation has been charged too much
	for _, p := range charges {
		p.Decide()
		for i := range p.Ops {
			surplus[p.At(i)] = p.Charges(i)
		}
	}
	j.Decide()
	for i := range surplus {
		surplus[i] -= j.Charges(i)
	}
	var parts []*Part
	for i := range j.Ops {
		if j.Ops[i].Refund || surplus[i] > 0 {
			_, parts = partAt(parts, j.places.Of(&j.Ops[i]))
		}
	}
	for i := range j.Ops {
		p := find(parts, j.places.Of(&j.Ops[i]))
		if p == nil || j.Replies[i].Err != nil {
			continue
		}
		op := p.Add(j.Batch, i)
		op.Group = 0
		switch {
		case op.Refund && j.Charges(i) > 0:
		case surplus[i] > 0:
			*op = op.Inverse()
			op.Times = surplus[i]
		default:
			*op = op.Look()
		}
	}
	return parts
}

// finish takes the replies of the second round into the batch. A charge that
// could not be given back stays, and so does its first reply.
func (j *joint) finish(second *Part) {
	for i := range second.Ops {
		at, r := second.At(i), second.Replies[i]
		if r.Err != nil && !j.Ops[at].Refund {
			continue
		}
		r.Admitted, r.RetryAt = j.Replies[at].Admitted, j.Replies[at].RetryAt
		j.Replies[at] = r
	}
}

// leave ends the wait for the second round. What the batch came to is known
// without it, but for its refunds; replies show cells as the first round left
// them.
func (j *joint) leave(err error) {
	for i := range j.Ops {
		if j.Ops[i].Refund {
			j.Replies[i] = backends.Reply{Err: fmt.Errorf("refund beside other stores' charges: %w: %w", backends.ErrUnavailable, err)}
		}
	}
}
