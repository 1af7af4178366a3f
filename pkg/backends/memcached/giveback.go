package memcached

import (
	"context"
	"fmt"

	"example.org/rls/pkg/backends"
)

// giveBack undoes what an all-or-nothing batch that is refused or failed has
// charged, whether or not its caller still waits.
func (j *job) giveBack(ctx context.Context) error {
	var undo []backends.Op
	var of []*target
	for _, t := range j.cells {
		for _, i := range t.ops {
			op, r := &j.ops[i], &j.replies[i]
			if t.written && !op.Refund && r.Admitted > 0 && op.By != (backends.Amount{}) {
				back := op.Inverse()
				back.Times = r.Admitted
				undo, of = append(undo, back), append(of, t)
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
	for k, t := range of { // the last one on a cell has the final say
		for _, i := range t.ops {
			j.replies[i].Value, j.replies[i].Until = back.replies[k].Value, back.replies[k].Until
		}
	}
	return nil
}

// unstep has the replies of a refused batch show the cells that were not
// written as they were read.
func (j *job) unstep() error {
	for _, t := range j.cells {
		if t.written {
			continue
		}
		for _, i := range t.ops {
			look, r := j.ops[i].Look(), &j.replies[i]
			record, err := decode(&look, text(t.item))
			if err != nil {
				return fmt.Errorf("cell %s: %w", t.key, err)
			}
			seen := record.step(&look, r.Prev)
			r.Value, r.Until = seen.Value, seen.Until
		}
	}
	return nil
}
