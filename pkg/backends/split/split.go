// Package split applies a batch whose cells live in several places: on two
// stores, in the slots of a cluster, or in cells that are each changed alone.
//
// It promises that all places are asked at once and that the reply of each
// operation says whether its place has decided it. A group or an all-or-nothing
// batch whose cells live in several places is charged in all of them at once. Places may be
// asked before (Places.Looks), so that a group or batch which they refuse charges nothing. If
// the group or batch is refused all the same, or if a place does not answer whose operations
// could refuse it, the charges of the other places are given back, even if the
// caller has gone. A place that does not answer in time for the caller may charge or not, so
// nothing is given back there. Meanwhile other callers, and later descriptors of the batch, may
// be refused; no caller is admitted beyond a limit.
//
// It leaves to the places how their part of a batch is made atomic.
package split

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"example.org/rls/pkg/backends"
)

// Place is where operations are applied.
type Place struct {
	Server int    // a store, a slot or a server
	Cell   string // of a Server that changes each cell alone
	// Alone: the operation is applied by itself, after those before it on its Cell.
	Alone bool
}

// Part is the share of a batch that one place applies.
type Part struct {
	Place
	backends.Part
	// Look: the place charges nothing. The replies are those of [backends.State.Probe].
	Look bool
}

// Places is where the cells of a store live.
type Places struct {
	// Of is the place of an operation's cells.
	Of func(*backends.Op) Place
	// Looks: before operations that are decided together are charged, all places are asked
	// whether they fit ([Part.Look]). Then a refusal takes one round trip and changes no cell, and
	// a charge takes one round trip more.
	Looks bool
	// Ask applies the parts of a batch and leaves their operations as they are. The parts
	// of one Cell are in the order of their operations, and have to be applied in it.
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

// AtOnce calls ask for all of them side by side, for one on the caller's goroutine, and
// returns when all calls have ended.
func AtOnce[T any](all []T, ask func(T)) {
	var others sync.WaitGroup
	for _, one := range all[1:] {
		others.Go(func() { ask(one) })
	}
	ask(all[0])
	others.Wait()
}

// FirstOf calls ask for all of them side by side, at least one. It returns nil as soon as one call does,
// else all errors.
func FirstOf[T any](all []T, ask func(T) error) error {
	answers := make(chan error, len(all))
	for _, one := range all {
		go func() { answers <- ask(one) }()
	}
	var errs []error
	for range all {
		err := <-answers
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
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
	if len(b.Ops) == 0 {
		return nil
	}
	if one, at := p.one(b); one {
		whole := &Part{Place: at, Part: backends.Part{Batch: *b}}
		p.Ask(ctx, []*Part{whole}, func(*Part) { b.Each(decided) })
		b.Refused = whole.Refused
		return b.Err()
	}
	if b.AllOrNothing || p.groupsApart(b.Ops) {
		defer b.Each(decided)
		return (&joint{b, p, make([]bool, len(b.Ops))}).run(ctx)
	}
	parts := p.divide(b, func(int) bool { return true })
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

// one reports whether b is a single part, and returns its place.
func (p *Places) one(b *backends.Batch) (one bool, place Place) {
	for i := range b.Ops {
		at := p.Of(&b.Ops[i])
		if i > 0 && (at != place || at.Alone) {
			return false, Place{}
		}
		place = at
	}
	return true, place
}

// groupsApart reports whether the operations of a group are in several parts.
func (p *Places) groupsApart(ops []backends.Op) bool {
	for i := 1; i < len(ops); i++ {
		if ops[i].Group == 0 || ops[i].Group != ops[i-1].Group {
			continue
		}
		if at := p.Of(&ops[i]); at.Alone || at != p.Of(&ops[i-1]) {
			return true
		}
	}
	return false
}

// divide makes the parts of the operations that want accepts.
func (p *Places) divide(b *backends.Batch, want func(i int) bool) []*Part {
	var parts []*Part
	for i := range b.Ops {
		if want(i) {
			var part *Part
			part, parts = partAt(parts, p.Of(&b.Ops[i]))
			part.Add(b, i)
		}
	}
	return parts
}

// partAt is the part for the next operation at that place, and parts with it.
func partAt(parts []*Part, at Place) (*Part, []*Part) {
	for _, p := range slices.Backward(parts) {
		if p.Server == at.Server && p.Cell == at.Cell {
			if p.Alone || at.Alone {
				break
			}
			return p, parts
		}
	}
	p := &Part{Place: at}
	return p, append(parts, p)
}
