// Package split applies a batch whose cells live in several places: on two
// stores, or in the slots of a cluster.
//
// It promises that all places are asked at once and that the reply of each
// operation says whether its place has decided it. A group or an all-or-nothing
// batch whose operations live in several places is charged everywhere at once;
// if it turns out to be refused, or one place does not answer, what the others
// have charged is given back, also when the caller has gone. Meanwhile others
// may be refused; nobody is admitted beyond a limit. Whether a place that did
// not answer has charged is not known, and is not given back.
//
// It leaves to the places how their part of a batch is made atomic.
package split

import (
	"context"
	"time"

	"example.org/rls/pkg/backends"
)

// Part is the share of a batch that one place applies.
type Part struct {
	Place int
	backends.Part
}

// Apply divides b by place and applies its parts with apply, which asks all
// places at once, returns when ctx ends at the latest and fills in the replies
// of each part, Err included. Apply implements backends.Store's Apply.
//
// What has to be given back is given back within timeout, whatever becomes of
// ctx. A goroutine does so, at most one for each call of Apply. It goes to
// places that have just answered, so goroutines do not pile up behind a place
// that is frozen.
func Apply(ctx context.Context, b *backends.Batch, timeout time.Duration,
	place func(*backends.Op) int, apply func(context.Context, []*Part),
) error {
	b.Refused = false
	if one, at := onePlace(b, place); one {
		whole := &Part{Place: at, Part: backends.Part{Batch: *b}}
		apply(ctx, []*Part{whole})
		b.Refused = whole.Refused
		return b.Err()
	}
	if b.AllOrNothing || groupsApart(b.Ops, place) {
		return (&joint{b, place, apply}).run(ctx, timeout)
	}
	parts := divide(b, place, func(*backends.Op) bool { return true })
	apply(ctx, parts)
	for _, p := range parts {
		p.Answer(b)
	}
	return b.Err()
}

// onePlace reports whether all operations of b live in one place, and in which.
func onePlace(b *backends.Batch, place func(*backends.Op) int) (bool, int) {
	if len(b.Ops) == 0 {
		return false, 0
	}
	first := place(&b.Ops[0])
	for i := range b.Ops[1:] {
		if place(&b.Ops[1+i]) != first {
			return false, 0
		}
	}
	return true, first
}

// groupsApart reports whether some group's operations live in several places.
func groupsApart(ops []backends.Op, place func(*backends.Op) int) bool {
	for i := 1; i < len(ops); i++ {
		if ops[i].Group > 0 && ops[i].Group == ops[i-1].Group && place(&ops[i]) != place(&ops[i-1]) {
			return true
		}
	}
	return false
}

// divide makes the parts of the operations that want accepts.
func divide(b *backends.Batch, place func(*backends.Op) int, want func(*backends.Op) bool) []*Part {
	var parts []*Part
	for i := range b.Ops {
		if want(&b.Ops[i]) {
			var p *Part
			p, parts = partAt(parts, place(&b.Ops[i]))
			p.Add(b, i)
		}
	}
	return parts
}

// partAt is the part of that place, and parts with it.
func partAt(parts []*Part, place int) (*Part, []*Part) {
	if p := find(parts, place); p != nil {
		return p, parts
	}
	p := &Part{Place: place}
	return p, append(parts, p)
}

// find is the part of that place, or nil.
func find(parts []*Part, place int) *Part {
	for _, p := range parts {
		if p.Place == place {
			return p
		}
	}
	return nil
}
