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
	// failed are the operations for which a look has found no room, or for others beside them.
	failed []bool
}

// run makes the charges, after it has looked whether they fit. In a second round it gives back
// the charges of a refused group or batch, and then makes the batch's refunds. Refunds come
// last because they cannot be undone: a reply does not tell how much of a refund its
// cell took.
func (j *joint) run(ctx context.Context) error {
	for i := range j.Ops {
		j.Replies[i] = backends.Reply{Admitted: 1} // a refund fits
	}
	if j.places.Looks {
		j.look(ctx)
	}
	charges := j.charges()
	if len(charges) > 0 {
		j.places.Ask(ctx, charges, func(*Part) {})
	}
	second := j.second(charges)
	if len(second) == 0 {
		return j.Err()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.Background(), j.places.GiveBack) // whatever becomes of the caller
		defer cancel()
		j.send(ctx, second, time.Millisecond)
	}()
	if err := backends.Wait(ctx, done); err != nil {
		j.leave(err)
		return j.Err()
	}
	for _, p := range second {
		j.finish(p)
	}
	return j.Err()
}

// look asks whether the operations fit that are decided with others, and charges nothing.
func (j *joint) look(ctx context.Context) {
	looks := j.places.divide(j.Batch, func(i int) bool {
		return (j.AllOrNothing || j.Ops[i].Group > 0) && !j.Ops[i].Verb.GivesBack()
	})
	if len(looks) == 0 {
		return
	}
	for _, p := range looks {
		p.Look, p.AllOrNothing = true, j.AllOrNothing
	}
	j.places.Ask(ctx, looks, func(*Part) {})
	for _, p := range looks {
		p.Answer(j.Batch)
	}
	j.Decide()
	for i := range j.failed {
		if j.failed[i] = !j.Passes(i); j.failed[i] && j.Replies[i].HoldState() == backends.Held {
			j.Replies[i].Account = nil // it is not made
		}
	}
}

// charged reports whether operation i may be charged.
func (j *joint) charged(i int) bool {
	return !j.Ops[i].Verb.GivesBack() && j.Replies[i].Err == nil && (!j.failed[i] || j.Regardless(i))
}

// isBeside reports whether operation i has failed, and another one on its cell is charged.
func (j *joint) isBeside(i int) bool {
	for k := range j.Ops {
		if j.failed[i] && j.Replies[i].Err == nil && j.Ops[k].Key == j.Ops[i].Key && j.charged(k) {
			return !j.Ops[i].Verb.GivesBack()
		}
	}
	return false
}

// charges are the parts of the operations that may be charged. Those that have failed read the
// cell again if others change it, so that their replies tell of these.
func (j *joint) charges() []*Part {
	parts := j.places.divide(j.Batch, func(i int) bool { return j.charged(i) || j.isBeside(i) })
	for _, p := range parts {
		p.AllOrNothing = j.AllOrNothing
		for i := range p.Ops {
			if p.Ops[i].Role == backends.Quota {
				p.Ops[i].Role = backends.Lenient // a Quota descriptor in another place may pass
			}
			if !j.charged(p.At(i)) {
				p.Ops[i] = p.Ops[i].Look()
			}
			if j.failed[p.At(i)] {
				p.Ops[i].Group = 0
			}
		}
	}
	return parts
}

// second decides the batch by the replies to its charges and makes the parts of the second
// round. Of a refund that is refused they only read the cell.
func (j *joint) second(charges []*Part) (parts []*Part) {
	charged := make([]bool, len(j.Ops))
	for _, p := range charges {
		p.Decide()
		for i := range p.Ops {
			if looks := j.failed[p.At(i)] && p.Ops[i].By == (backends.Amount{}); !looks {
				charged[p.At(i)] = p.Charged(i)
			}
			j.take(p.At(i), &p.Ops[i], p.Replies[i])
		}
	}
	j.Decide()
	for _, refunds := range []bool{false, true} { // a refund finds no charge that is given back
		for i := range j.Ops {
			if op := &j.Ops[i]; op.Verb.GivesBack() == refunds && (refunds || charged[i] && !j.Charged(i)) {
				var p *Part
				p, parts = partAt(parts, j.places.Of(op))
				j.add(p, i)
			}
		}
	}
	return parts
}

// take takes the reply to op, the charge of operation i. One that fails does so whatever its cell
// has room for by now, because the operations beside it were not charged.
func (j *joint) take(i int, op *backends.Op, r backends.Reply) {
	switch {
	case !j.failed[i] || op.Identified():
		j.Replies[i] = r
	case r.Err == nil:
		j.Settle(i, r)
	}
}

// add adds to the second round the operation that gives back the charge of operation i, or operation i
// itself if that is a refund.
func (j *joint) add(p *Part, i int) {
	op := p.Add(j.Batch, i)
	switch {
	case !op.Verb.GivesBack():
		*op = op.Inverse(j.Replies[i].Until)
	case !j.Charged(i) && !op.Identified(): // a reservation is cancelled in any case
		*op = op.Look()
	}
	op.Group = 0
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
	if len(unsent) == 0 || backends.Pause(ctx, pause) != nil {
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
		if !j.Ops[at].Verb.GivesBack() {
			r.Account = nil // it is of the give-back
			if r.Err != nil {
				continue
			}
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
