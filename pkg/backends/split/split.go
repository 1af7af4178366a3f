// Package split applies a batch whose cells live in several places: on two
// stores, or in the slots of a cluster.
//
// It promises that all places are asked at once, and that an all-or-nothing
// batch which is refused in one place is given back in the others: others may
// be refused for a moment, nobody is admitted beyond a limit. That holds also
// when the caller gives up in between. What a place that failed has charged is
// not known and stays charged.
//
// It leaves to the places how a part of a batch is made atomic.
package split

import (
	"context"
	"time"

	"example.org/rls/pkg/backends"
)

// Part is the share of a batch that one place applies.
type Part struct {
	Place int
	Batch backends.Batch
	Err   error // set by the place

	at []int // where each operation stands in the whole batch
}

// Apply divides b by place and applies its parts with apply, which asks all
// places at once and sets Part.Err. An all-or-nothing batch is seen to its end
// also when ctx ends, in at most timeout.
func Apply(ctx context.Context, b *backends.Batch, timeout time.Duration,
	place func(*backends.Op) int, apply func(context.Context, []*Part),
) error {
	parts := divide(b.Ops, place, func(*backends.Op) bool { return true })
	if !b.AllOrNothing || len(parts) == 1 {
		b.Refused = false
		for _, p := range parts {
			p.Batch.AllOrNothing = b.AllOrNothing
		}
		apply(ctx, parts)
		return merge(b, parts)
	}

	whole := &whole{ops: append([]backends.Op(nil), b.Ops...), place: place, apply: apply}
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		whole.run(ctx)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if whole.err != nil {
		return whole.err
	}
	b.Refused = whole.refused
	copy(b.Replies, whole.replies)
	return nil
}

// divide makes the parts of the operations that want accepts.
func divide(ops []backends.Op, place func(*backends.Op) int, want func(*backends.Op) bool) []*Part {
	var parts []*Part
	for i := range ops {
		if !want(&ops[i]) {
			continue
		}
		at := place(&ops[i])
		var part *Part
		for _, p := range parts {
			if p.Place == at {
				part = p
				break
			}
		}
		if part == nil {
			part = &Part{Place: at}
			parts = append(parts, part)
		}
		part.Batch.Ops = append(part.Batch.Ops, ops[i])
		part.at = append(part.at, i)
	}
	for _, p := range parts {
		p.Batch.Replies = make([]backends.Reply, len(p.Batch.Ops))
	}
	return parts
}

// merge collects the parts' replies in b.
func merge(b *backends.Batch, parts []*Part) error {
	for _, p := range parts {
		if p.Err != nil {
			return p.Err
		}
		b.Refused = b.Refused || p.Batch.Refused
		for i, at := range p.at {
			b.Replies[at] = p.Batch.Replies[i]
		}
	}
	return nil
}

// whole is an all-or-nothing batch over several places.
type whole struct {
	ops   []backends.Op
	place func(*backends.Op) int
	apply func(context.Context, []*Part)

	replies []backends.Reply
	refused bool
	err     error
}

// run charges, and then either gives back what was charged or, if all places
// admitted, does the batch's own refunds: those always fit, but how much of
// one was given could not be taken back.
func (w *whole) run(ctx context.Context) {
	w.replies = make([]backends.Reply, len(w.ops))
	charges := divide(w.ops, w.place, func(op *backends.Op) bool { return !op.Refund })
	for _, p := range charges {
		p.Batch.AllOrNothing = true
	}
	if len(charges) > 0 {
		w.apply(ctx, charges)
	}
	sum := backends.Batch{Replies: w.replies}
	w.err = merge(&sum, charges)
	w.refused = sum.Refused
	second := divide(w.ops, w.place, func(op *backends.Op) bool { return op.Refund })
	undo := w.err != nil || w.refused
	if undo {
		second = giveBack(charges, second)
	}
	if len(second) == 0 {
		return
	}
	w.apply(ctx, second)
	for _, p := range second {
		if p.Err != nil {
			if !undo {
				w.err = p.Err
			}
			continue // what could not be given back is over-denied, not wrong
		}
		for i, at := range p.at {
			reply := p.Batch.Replies[i]
			if undo && !w.ops[at].Refund {
				reply.Admitted, reply.RetryAt = w.replies[at].Admitted, w.replies[at].RetryAt
			} else if undo {
				reply.Admitted = w.ops[at].Times
			}
			w.replies[at] = reply
		}
	}
}

// giveBack is what undoes the charged parts, and looks at the cells of refunds
// that are not done.
func giveBack(charges, refunds []*Part) []*Part {
	var undo []*Part
	for _, p := range charges {
		if p.Err != nil || p.Batch.Refused {
			continue
		}
		back := &Part{Place: p.Place, at: p.at}
		back.Batch.Replies = make([]backends.Reply, len(p.at))
		for i := range p.Batch.Ops {
			op := p.Batch.Ops[i]
			if n := p.Batch.Replies[i].Admitted; n > 0 {
				op = op.Inverse()
				op.Times = n
			} else {
				op = op.Look()
			}
			back.Batch.Ops = append(back.Batch.Ops, op)
		}
		undo = append(undo, back)
	}
	for _, p := range refunds {
		for i := range p.Batch.Ops {
			p.Batch.Ops[i] = p.Batch.Ops[i].Look()
		}
		undo = append(undo, p)
	}
	return undo
}
