// Package split applies a batch whose cells live in several places: on two
// stores, or in the slots of a cluster.
//
// It promises that all places are asked at once and that the reply of each
// operation says whether its place has decided it. A group or an all-or-nothing
// batch whose cells live in several places is charged in all of them at once. If
// the group or batch is refused, or if a place does not answer whose operations
// could refuse it, the charges of the other places are given back, even if the
// caller has gone. A place that does not answer in time for the caller may charge or not, so
// nothing is given back there. Meanwhile other callers, and later descriptors of the batch, may
// be refused; no caller is admitted beyond a limit.
//
// It leaves to the places how their part of a batch is made atomic.
package split

import (
	"context"
	"sync"
	"time"

	"example.org/rls/pkg/backends"
)

// Part is the share of a batch that one place applies.
type Part struct {
	Place int
	backends.Part
}

// Places is where the cells of a store live.
type Places struct {
	// Of is the place of an operation's cells.
	Of func(*backends.Op) int
	// Ask applies the parts of a batch and leaves their operations as they are.
	// It asks all places at once, returns when ctx ends at the latest, fills in
	// the replies of each part, Err included, and calls answered once for each
	// part: as soon as the part's place has answered or failed, and before it
	// returns. It marks errors with backends.ErrNotSent.
	Ask func(ctx context.Context, parts []*Part, answered func(*Part))
	// GiveBack is the longest time in which charges are given back, whatever
	// becomes of the caller's context. A give-back that is not sent, because its server is
	// crowded or away, is tried again within this time.
	GiveBack time.Duration
}

// AtOnce calls ask for all parts side by side, for one of them on the caller's
// goroutine, and returns when all calls have ended.
func AtOnce(parts []*Part, ask func(*Part)) {
	var others sync.WaitGroup
	for _, p := range parts[1:] {
		others.Go(func() { ask(p) })
	}
	ask(parts[0])
	others.Wait()
}

// ApplyEach divides b by place and applies the parts, as backends.Spread wants
// it. It calls decided for an operation when its place has answered. If operations
// of b are decided together over several places, it calls decided for all
// operations when the batch is decided and its charges are given back, or when
// ctx has ended.
//
// Giving back takes a goroutine. It goes to places that have just answered, so goroutines do not
// pile up.
func (p *Places) ApplyEach(ctx context.Context, b *backends.Batch, decided func(*backends.Op)) error {
	b.Refused = false
	if one, at := p.one(b); one {
		whole := &Part{Place: at, Part: backends.Part{Batch: *b}}
		p.Ask(ctx, []*Part{whole}, func(*Part) { all(b, decided) })
		b.Refused = whole.Refused
		return b.Err()
	}
	if b.AllOrNothing || p.groupsApart(b.Ops) {
		defer all(b, decided)
		return (&joint{b, p}).run(ctx)
	}
	parts := p.divide(b, func(*backends.Op) bool { return true })
	p.Ask(ctx, parts, func(part *Part) {
		for i := range part.Ops {
			decided(&b.Ops[part.At(i)])
		}
	})
	for _, part := range parts {
		part.Answer(b)
	}
	return b.Err()
}

func all(b *backends.Batch, decided func(*backends.Op)) {
	for i := range b.Ops {
		decided(&b.Ops[i])
	}
}

// one reports whether all cells of b live in one place, and returns that place, 0 if b has
// no operations.
func (p *Places) one(b *backends.Batch) (one bool, place int) {
	for i := range b.Ops {
		at := p.Of(&b.Ops[i])
		if i > 0 && at != place {
			return false, 0
		}
		place = at
	}
	return true, place
}

// groupsApart reports whether the cells of a group live in several places.
func (p *Places) groupsApart(ops []backends.Op) bool {
	for i := 1; i < len(ops); i++ {
		if ops[i].Group > 0 && ops[i].Group == ops[i-1].Group && p.Of(&ops[i]) != p.Of(&ops[i-1]) {
			return true
		}
	}
	return false
}

// divide makes the parts of the operations that want accepts.
func (p *Places) divide(b *backends.Batch, want func(*backends.Op) bool) []*Part {
	var parts []*Part
	for i := range b.Ops {
		if want(&b.Ops[i]) {
			var part *Part
			part, parts = partAt(parts, p.Of(&b.Ops[i]))
			part.Add(b, i)
		}
	}
	return parts
}

// partAt is the part of that place, and parts with it.
func partAt(parts []*Part, place int) (*Part, []*Part) {
	for _, p := range parts {
		if p.Place == place {
			return p, parts
		}
	}
	p := &Part{Place: place}
	return p, append(parts, p)
}
