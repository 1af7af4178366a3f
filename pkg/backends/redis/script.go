package redis

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/pkg/backends"
)

//go:embed count.lua
var countSource string

var countScript = newScript(countSource)

// An eval is one call of a script, or plain commands, for operations whose keys
// share a node.
type eval struct {
	script *script
	args   []any // EVALSHA's: name, sha, number of keys, keys, arguments
	plain  plain // if script is nil
}

// key is the first of the keys, which all live in one slot.
func (e *eval) key() string {
	if e.script == nil {
		return e.plain.key
	}
	return e.args[3].(string)
}

// bySource is the call that also loads the script.
func (e *eval) bySource() []any {
	args := append([]any(nil), e.args...)
	args[0], args[1] = "eval", e.script.source
	return args
}

// newEval encodes b. jitter is the longest time in µs that the key of a fixed
// window lives beyond its window.
func newEval(b *backends.Batch, jitter int64) eval {
	if isPlain(b) {
		op := &b.Ops[0]
		return eval{plain: plain{key: StoredKey(op.Key), cost: op.By.Whole * op.Times, lifetime: lifetime(op, jitter)}}
	}
	counts := !b.Together()
	for i := range b.Ops {
		counts = counts && isCount(&b.Ops[i])
	}
	if counts {
		return newCount(b, jitter)
	}
	script, args := newApply(b, jitter)
	return eval{script: script, args: args}
}

func newCount(b *backends.Batch, jitter int64) eval {
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
	return eval{script: &countScript, args: args}
}

// fill decodes an answer into b: a script's, or the count of plain commands.
func (e *eval) fill(b *backends.Batch, answer goredis.Cmder) error {
	switch answer := answer.(type) {
	case *goredis.IntCmd:
		return fillCounts(b, []int64{answer.Val()})
	case *goredis.IntSliceCmd:
		return fillCounts(b, answer.Val())
	}
	return fillReplies(b, answer.(*goredis.StringCmd).Val())
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

// plain is the charge of one counter whatever its count is, without a script. It
// costs Redis less than count.lua:
//
//	INCRBY key cost
//	PEXPIRE key lifetime
//
// Each PEXPIRE sets the same end (see life), also of a key that has lost it (PERSIST, a restored
// dump).
type plain struct {
	key            string
	cost, lifetime int64
}

// isPlain reports whether two plain commands can apply b.
func isPlain(b *backends.Batch) bool {
	return len(b.Ops) == 1 && isCount(&b.Ops[0]) && b.Ops[0].By.Whole > 0
}

// isCount reports whether count.lua can apply op: the charge of a fixed window
// whatever its count is.
func isCount(op *backends.Op) bool {
	return op.Verb <= backends.Count && op.Kind == backends.Counter && op.Span == backends.Fixed &&
		(op.Verb == backends.Count || op.Max == backends.NoMax) && op.Hold == nil && op.Debt == backends.Amount{}
}

// commands are the command that has the count, and the one after it.
func (p *plain) commands() (count goredis.Cmder, after []goredis.Cmder) {
	ctx := context.Background()
	return goredis.NewIntCmd(ctx, "incrby", p.key, p.cost), []goredis.Cmder{goredis.NewBoolCmd(ctx, "pexpire", p.key, p.lifetime)}
}

// isForeign reports whether text is the error of INCRBY for a key that does not hold
// a count.
func isForeign(text string) bool {
	return strings.Contains(text, "WRONGTYPE") || strings.Contains(text, "not an integer") || strings.Contains(text, "overflow")
}
