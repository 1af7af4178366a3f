package backendtest

import (
	"context"
	"slices"

	"example.org/rls/pkg/backends"
)

// Moved is next with the cells of the suite in other places: it applies a copy
// of each batch whose operations were changed by move.
func Moved(next backends.Store, move func(*backends.Op)) backends.Store { return moved{next, move} }

type moved struct {
	backends.Store
	move func(*backends.Op)
}

// Unwrap is the store whose cells are moved.
func (s moved) Unwrap() backends.Store { return s.Store }

func (s moved) Apply(ctx context.Context, b *backends.Batch) error {
	copied := *b
	copied.Ops = slices.Clone(b.Ops)
	for i := range copied.Ops {
		s.move(&copied.Ops[i])
	}
	err := s.Store.Apply(ctx, &copied)
	b.Refused = copied.Refused
	return err
}

// ToOneSlot moves the cells of an operation to the one slot of a Redis Cluster
// that all operations share.
func ToOneSlot(op *backends.Op) {
	op.Key = "{slot}" + op.Key
	if op.Hold != nil {
		hold := *op.Hold
		hold.Key = "{slot}" + hold.Key
		op.Hold = &hold
	}
}
