package memcached

import (
	"context"
	"fmt"

	"example.org/rls/pkg/backends"
)

// giveBack gives back charges of operations that depend on each other, even if
// the caller no longer waits: after a failure all of them, else the charges of
// refused groups or of a refused batch. A refund stays, because the cell's value does
// not tell how much of it the cell took.
func (j *job) giveBack(ctx context.Context, failed bool) error {
	var undo []backends.Op
	var of []*cell
	for _, c := range j.cells {
		for _, i := range c.ops {
			op, keep := &j.Ops[i], int64(0)
			if !failed {
				keep = j.Charges(i)
			}
			depends := j.AllOrNothing || op.Group > 0
			if depends && !op.Refund && j.charged[i] > keep && op.By != (backends.Amount{}) {
				back := op.Inverse(j.Replies[i].Until)
				back.Times, back.Group = j.charged[i]-keep, 0
				undo, of = append(undo, back), append(of, c)
			}
		}
	}
	if len(undo) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), j.timeout)
	defer cancel()
	back := newJob(j.server, &backends.Batch{Ops: undo})
	if err := back.rounds(ctx); err != nil {
		return fmt.Errorf("give back: %w", err)
	}
	for k, c := range of { // a cell's last operation overwrites the earlier ones
		for _, i := range c.ops {
			j.Replies[i].Value, j.Replies[i].Until = back.Replies[k].Value, back.Replies[k].Until
		}
	}
	return nil
}
