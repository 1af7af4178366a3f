package operate

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/service"
)

// Progress counts the keys of the store that were looked at, the cells of the rule
// among them, and the cells that were reset.
type Progress struct {
	Scanned int64 `json:"scanned"`
	Matched int64 `json:"matched"`
	Changed int64 `json:"changed"`
}

// ResetMatching resets the cells of all values of a rule that is in force, each as
// [Operator.Inspect] resets it; a dry run only counts them. tell is called after some
// keys, and an error of it ends the reset.
//
// The cells are found by their keys in the store. Cells whose window is over and cells
// whose keys the store has shortened are left out.
//
// Its errors are the context's, or have a code: NotFound for a rule that the domain does
// not have, FailedPrecondition for one that has no cells, or no path of its own, Unimplemented if the
// store cannot list its keys or they do not tell the rule, and Unavailable while no rules are loaded and after a
// failure of the store. The Progress beside an error is the progress until the error.
func (o *Operator) ResetMatching(ctx context.Context, domain, rule string, dryRun bool, tell func(Progress) error) (Progress, error) {
	var p Progress
	cells, err := o.ofRule(domain, rule)
	if err != nil {
		return p, err
	}
	scanner, err := backends.ScannerOf(o.cfg.Store)
	if err != nil {
		return p, service.Errorf(codes.Unimplemented, "%v", err)
	}
	each := func(keys []string) error {
		p.Scanned += int64(len(keys))
		found := cells.among(keys)
		p.Matched += int64(len(found))
		if !dryRun {
			for some := range slices.Chunk(found, maxBatch) {
				changed, err := o.reset(ctx, some)
				if p.Changed += changed; err != nil {
					return err
				}
			}
		}
		return tell(p)
	}
	for _, prefix := range cells.prefixes {
		if err = backends.Scan(ctx, scanner, prefix, each); err != nil {
			break
		}
	}
	if !dryRun {
		o.forgetAmong(cells)
	}
	switch {
	case err == nil:
		return p, nil
	case ctx.Err() != nil:
		return p, ctx.Err()
	}
	if dryRun {
		return p, service.Errorf(codes.Unavailable, "%d cells of the rule were found, then the store failed: %v", p.Matched, err)
	}
	return p, service.Errorf(codes.Unavailable, "%d cells of the rule were reset, then the store failed: %v", p.Changed, err)
}

// ForgetMatching drops what this process remembers of the cells of all values of a rule,
// which another process has reset. Its errors are those of [Operator.ResetMatching].
func (o *Operator) ForgetMatching(domain, rule string) error {
	cells, err := o.ofRule(domain, rule)
	if err == nil {
		o.forgetAmong(cells)
	}
	return err
}

// forgetAmong drops what this process remembers of the cells.
func (o *Operator) forgetAmong(cells *ruleCells) {
	if memory, has := backends.MemoryOf(o.cfg.Store); has {
		for _, prefix := range cells.prefixes {
			memory.ForgetAmong(prefix, func(keys []string) (ops []backends.Op) {
				for _, c := range cells.among(keys) {
					ops = append(ops, c.op)
				}
				return ops
			})
		}
	}
	o.forget(cells.among(slices.Collect(maps.Keys(o.grants.all()))))
}

// reset resets cells and returns how many of them the store has reset. The error says
// why the others were not reset.
func (o *Operator) reset(ctx context.Context, cells []*cell) (changed int64, err error) {
	o.change(ctx, cells, Reset)
	failed := 0
	for _, c := range cells {
		if c.Err != nil {
			failed++
			err = c.Err
		}
	}
	if err != nil {
		err = fmt.Errorf("%w (%d of %d)", err, failed, len(cells))
	}
	return int64(len(cells) - failed), err
}
