package split

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.org/rls/pkg/backends"
)

// joint is a batch with operations that are charged together or not at all, and
// whose cells live in several places.
type joint struct {
	*backends.Batch
	places *Places
}

// run makes the charges in a first round. In a second round it gives back the
// charges of a refused group or batch, and then makes the batch's refunds. Refunds come
// last because they cannot be undone: a reply does not tell how much of a refund its
// cell took.
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
		j.settle(second)
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
	parts := j.places.divide(j.Batch, func(op *backends.Op) bool { return !op.Verb.GivesBack() })
	for _, p := range parts {
		p.AllOrNothing = j.AllOrNothing
		for i := range p.Ops {
			if p.Ops[i].Role == backends.Quota {
				p.Ops[i].Role = backends.Lenient // a Quota descriptor in another place may pass
			}
		}
	}
	return parts
}

// second decides the batch by the replies to its charges and makes the parts of the second
// round. Of a refund that is refused they only read the cell.
func (j *joint) second(charges []*Part) (parts []*Part) {
	charged := make([]int64, len(j.Ops))
	for _, p := range charges {
		p.Decide()
		for i := range p.Ops {
			charged[p.At(i)] = p.Charges(i)
		}
	}
	j.Decide()
	for _, refunds := range []bool{false, true} { // a refund finds no charge that is given back
		for i := range j.Ops {
			if op := &j.Ops[i]; op.Verb.GivesBack() == refunds && (refunds || charged[i] != j.Charges(i)) {
				var p *Part
				p, parts = partAt(parts, j.places.Of(op))
				j.add(p, i, charged[i])
			}
		}
	}
	return parts
}

// add adds to the second round that operation i was charged so often.
func (j *joint) add(p *Part, i int, charged int64) {
	op, keep := p.Add(j.Batch, i), j.Charges(i)
	switch {
	case !op.Verb.GivesBack():
		*op = op.Inverse(j.Replies[i].Until)
		op.Times = charged - keep
	case keep == 0 && !op.Identified(): // a reservation is cancelled in any case
		*op = op.Look()
	}
	op.Group = 0
}

// settle applies the parts of a second round within j.places.GiveBack, whatever becomes of
// the caller.
func (j *joint) settle(parts []*Part) {
	ctx, cancel := context.WithTimeout(context.Background(), j.places.GiveBack)
	defer cancel()
	j.send(ctx, parts, time.Millisecond)
}

// send applies parts. Operations that were not sent, because their server has no room for
// them or is away, are sent anew after a pause, which doubles up to 50 ms, until ctx ends.
func (j *joint) send(ctx context.Context, parts []*Part, pause time.Duration) {
	j.places.Ask(ctx, parts, func(*Part) {})
	var unsent, of []*Part
	for _, p := range parts {
		rest := &Part{Place: p.Place}
		for i := range p.Ops {
			if errors.Is(p.Replies[i].Err, backends.ErrNotSent) {
				rest.Add(&p.Batch, i)
			}
		}
		if len(rest.Ops) > 0 {
			unsent, of = append(unsent, rest), append(of, p)
		}
	}
	if len(unsent) == 0 {
		return
	}
	select {
	case <-time.After(pause):
	case <-ctx.Done():
		return
	}
	j.send(ctx, unsent, min(2*pause, 50*time.Millisecond))
	for i, p := range unsent {
		p.Answer(&of[i].Batch)
	}
}

// finish takes the replies of the second round into the batch. A charge that
// could not be given back stays, and so does its first reply.
func (j *joint) finish(second *Part) {
	for i := range second.Ops {
		at, r := second.At(i), second.Replies[i]
		if r.Err != nil && !j.Ops[at].Verb.GivesBack() {
			continue
		}
		if !j.Ops[at].Verb.GivesBack() {
			r.Account = nil // it is of the give-back
		}
		j.Settle(at, r)
	}
}

// leave ends the wait for the second round. The first round has decided, so only refunds
// become errors. The other replies show cells as the first round left them.
func (j *joint) leave(err error) {
	for i := range j.Ops {
		if j.Ops[i].Verb.GivesBack() {
			j.Replies[i] = backends.Reply{Err: fmt.Errorf("refund beside other stores' charges: %w: %w", backends.ErrUnavailable, err)}
		}
	}
}
