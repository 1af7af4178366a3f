package redis

import (
	"fmt"
	"strings"

	"example.org/rls/pkg/backends"
)

var countScript = compose(words, "count.lua")

// newCount is count.lua, and the arguments of its EVALSHA for b.
func newCount(b *backends.Batch, jitter int64) (*script, []any) {
	n := len(b.Ops)
	args := make([]any, 3, 3+3*n)
	args[0], args[1], args[2] = "evalsha", countScript.sha, n
	for i := range b.Ops {
		args = append(args, StoredKey(b.Ops[i].Key))
	}
	for i := range b.Ops {
		op := &b.Ops[i]
		life := lifetime(op, jitter)
		if op.ReadOnly() {
			life = 0
		}
		args = append(args, op.By.Whole*op.Times, life)
	}
	return &countScript, args
}

func fillCounts(b *backends.Batch, counts []int64) error {
	if len(counts) != len(b.Ops) {
		return fmt.Errorf("the script answered %d numbers to %d operations", len(counts), len(b.Ops))
	}
	for i, n := range counts {
		op := &b.Ops[i]
		if n == bad {
			b.Replies[i] = backends.Reply{Err: foreign(op.Key)}
			continue
		}
		b.Replies[i] = backends.Reply{
			Now:      op.Now,
			Admitted: op.Fitting(op.Max.Whole, n),
			Value:    backends.Amount{Whole: n},
			Until:    op.Until,
		}
	}
	b.Decide()
	return nil
}

// isCount reports whether count.lua can apply op: the charge of a fixed window
// whatever its count is.
func isCount(op *backends.Op) bool {
	return op.Verb <= backends.Count && op.Kind == backends.Counter && op.Span == backends.Fixed &&
		(op.Verb == backends.Count || op.Max == backends.NoMax) && op.Hold == nil && op.Debt == backends.Amount{}
}

// isForeign reports whether text is the error of INCRBY for a key that does not hold
// a count.
func isForeign(text string) bool {
	return strings.Contains(text, "WRONGTYPE") || strings.Contains(text, "not an integer") || strings.Contains(text, "overflow")
}
