package redis

import (
	"crypto/sha1"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"

	"example.org/rls/pkg/backends"
)

// A script is what Redis runs atomically for a batch.
type script struct {
	source string
	sha    any // hex SHA-1, by which EVALSHA names it
}

func newScript(source string) script {
	sum := sha1.Sum([]byte(source))
	return script{source: source, sha: hex.EncodeToString(sum[:])}
}

var (
	//go:embed count.lua
	countSource string
	//go:embed apply.lua
	applySource string

	countScript = newScript(countSource)
	applyScript = newScript(applySource)
)

// An eval is one call of a script, for operations whose keys share a node.
type eval struct {
	script *script
	args   []any // EVALSHA's: name, sha, number of keys, keys, arguments
}

// key is the first of the keys, which all live in one slot.
func (e *eval) key() string { return e.args[3].(string) }

// bySource is the call that also loads the script.
func (e *eval) bySource() []any {
	args := append([]any(nil), e.args...)
	args[0], args[1] = "eval", e.script.source
	return args
}

// isCount reports whether count.lua can apply op: a fixed window that is
// charged whatever it holds.
func isCount(op *backends.Op) bool {
	return op.Kind == backends.Counter && op.Span == backends.Fixed &&
		op.Max == backends.NoMax && !op.Refund && op.Prev == ""
}

// newEval encodes b. jitter is a random addition in µs to the life of a new
// fixed window's cell.
func newEval(b *backends.Batch, jitter int64) eval {
	for i := range b.Ops {
		if !isCount(&b.Ops[i]) {
			return newApply(b, jitter)
		}
	}
	return newCount(b, jitter)
}

func newCount(b *backends.Batch, jitter int64) eval {
	n := len(b.Ops)
	args := make([]any, 3, 3+3*n)
	args[0], args[1], args[2] = "evalsha", countScript.sha, n
	for i := range b.Ops {
		args = append(args, storedKey(b.Ops[i].Key))
	}
	for i := range b.Ops {
		op := &b.Ops[i]
		args = append(args, op.By.Whole*op.Times, lifetime(op, jitter))
	}
	return eval{script: &countScript, args: args}
}

// packedSize is an operation's size in ARGV[1] of apply.lua: five bytes and
// twelve doubles.
const packedSize = 5 + 12*8

func newApply(b *backends.Batch, jitter int64) eval {
	args := make([]any, 3, 5+2*len(b.Ops))
	packed := make([]byte, 0, packedSize*len(b.Ops))
	for i := range b.Ops {
		op := &b.Ops[i]
		args = append(args, storedKey(op.Key))
		if op.Prev != "" {
			args = append(args, storedKey(op.Prev))
		}
		packed = pack(packed, op, lifetime(op, jitter))
	}
	args[0], args[1], args[2] = "evalsha", applyScript.sha, len(args)-3
	all := "0"
	if b.AllOrNothing {
		all = "1"
	}
	return eval{script: &applyScript, args: append(args, packed, all)}
}

// pack appends op as apply.lua unpacks it. Every number is below 2^53 or, as
// NoMax, above every cell.
func pack(to []byte, op *backends.Op, lifetime int64) []byte {
	to = append(to, byte(op.Kind), byte(op.Span), bit(op.Soft), bit(op.Refund), bit(op.Prev != ""))
	for _, n := range [...]int64{
		op.Now, op.By.Whole, op.By.Frac, op.Den, op.Max.Whole, op.Max.Frac,
		op.Times, op.WeightNum, op.WeightDen, op.Until, lifetime, op.Window,
	} {
		to = binary.LittleEndian.AppendUint64(to, math.Float64bits(float64(n)))
	}
	return to
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// grace is how much longer than its cell a key lives, in µs, so that a caller
// whose clock is behind still finds it. apply.lua has the same.
const grace = 1_000_000

// lifetime is how long a new Counter's key lives in Redis, in ms. A fixed
// window's key names it, so that it may live longer.
func lifetime(op *backends.Op, jitter int64) int64 {
	us := op.Until - op.Now + grace
	if op.Span == backends.Fixed {
		us += jitter
	}
	return max(1, (us+999)/1000)
}

// fill decodes a script's answer into b.
func (e *eval) fill(b *backends.Batch, answer []int64) error {
	if e.script == &countScript {
		return fillCounts(b, answer)
	}
	const perOp = 6
	if len(answer) != 1+perOp*len(b.Ops) {
		return fmt.Errorf("the script answered %d numbers to %d operations", len(answer), len(b.Ops))
	}
	b.Refused = answer[0] == 1
	for i := range b.Replies {
		r := answer[1+perOp*i:]
		b.Replies[i] = backends.Reply{
			Admitted: r[0],
			Value:    backends.Amount{Whole: r[1], Frac: r[2]},
			Prev:     r[3],
			Until:    r[4],
			RetryAt:  r[5],
		}
		if r[5] < 0 {
			b.Replies[i].RetryAt = math.MaxInt64
		}
	}
	return nil
}

func fillCounts(b *backends.Batch, answer []int64) error {
	if len(answer) != len(b.Ops) {
		return fmt.Errorf("the script answered %d numbers to %d operations", len(answer), len(b.Ops))
	}
	b.Refused = false
	for i := range b.Replies {
		op := &b.Ops[i]
		b.Replies[i] = backends.Reply{
			Admitted: op.Times,
			Value:    backends.Amount{Whole: answer[i]},
			Until:    op.Until,
		}
	}
	return nil
}
