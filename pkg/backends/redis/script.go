package redis

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/pkg/backends"
)

// A script is a Lua script that Redis runs atomically for a batch.
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

// noCount is the answer for a key that does not hold a count; as in count.lua. Every
// count is above it.
const noCount = -2 * backends.MaxValue

// newEval encodes b. jitter is the longest time in µs that the key of a fixed
// window lives beyond its window.
func newEval(b *backends.Batch, jitter int64) eval {
	if isPlain(b) {
		op := &b.Ops[0]
		return eval{plain: plain{key: StoredKey(op.Key), cost: op.By.Whole * op.Times, lifetime: lifetime(op, jitter)}}
	}
	if b.Together() {
		return newApply(b, jitter)
	}
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

func newApply(b *backends.Batch, jitter int64) eval {
	args := make([]any, 3, 6+2*len(b.Ops))
	packed := make([]byte, 0, (7+14*8)*len(b.Ops)) // of each operation seven bytes and fourteen doubles
	var further []byte
	for i := range b.Ops {
		op := &b.Ops[i]
		args = append(args, StoredKey(op.Key))
		if op.Prev != "" {
			args = append(args, StoredKey(op.Prev))
		}
		packed = pack(packed, op, lifetime(op, jitter))
		if isFurther(op) {
			if further == nil {
				further = make([]byte, 0, (8+16+14*8)*(len(b.Ops)-i))
			}
			args, further = packFurther(args, further, op)
		}
	}
	args[0], args[1], args[2] = "evalsha", applyScript.sha, len(args)-3
	mode := "0"
	switch {
	case !b.Together():
	case b.AllOrNothing:
		mode = "2"
	default:
		mode = "1"
	}
	if args = append(args, packed, mode); further != nil {
		args = append(args, further)
	}
	return eval{script: &applyScript, args: args}
}

// pack appends op as apply.lua unpacks it. Every number is below 2^53 or, as
// NoMax, above every cell.
func pack(to []byte, op *backends.Op, lifetime int64) []byte {
	far := op.Furthest
	switch {
	case op.Verb == backends.Grant: // lowers the cell to Max, which is nearer
		far = op.Least
	case op.Undo && op.Kind == backends.Counter:
		far.Whole = op.Ends
	}
	to = append(to, byte(op.Kind), byte(op.Span), byte(op.Role), op.Group,
		wayOf(op), bit(op.ChargeDenied), bit(op.Prev != "")+2*bit(isFurther(op)))
	for _, n := range [...]int64{
		op.Now, op.By.Whole, op.By.Frac, op.Den, op.Max.Whole, op.Max.Frac, far.Whole, far.Frac,
		op.Times, op.WeightNum, op.WeightDen, op.Until, lifetime, listWindow(op),
	} {
		to = binary.LittleEndian.AppendUint64(to, math.Float64bits(float64(n)))
	}
	return to
}

// isFurther reports whether packFurther has more of op.
func isFurther(op *backends.Op) bool { return op.Terms != nil || op.Hold != nil || op.Partial }

// listWindow is Op.Window, of a List in parts the time since the first part that counts. In
// apply.lua a cost counts if it is younger.
func listWindow(op *backends.Op) int64 {
	if op.Terms == nil || op.Terms.Parts == 0 {
		return op.Window
	}
	_, gone := op.Dating()
	return op.Now - gone
}

// packFurther appends what pack has not, as apply.lua unpacks it: eight bytes, the ID of the
// reservation and fourteen doubles. It appends to keys those of the records: the hash of the
// next generation, as long as a caller may be in it, of the running one and of the one before;
// and of what comes back.
func packFurther(keys []any, to []byte, op *backends.Op) ([]any, []byte) {
	terms, hold := op.Terms, op.Hold
	if terms == nil {
		terms = new(backends.Terms)
	}
	var id [16]byte
	var ends, life int64
	var generations, known byte
	if hold == nil {
		hold = new(backends.Hold)
	} else {
		g, before := hold.Generation(op.Now), len(keys)
		if next := hold.Generation(op.Now + backends.Skew); next > g {
			keys = append(keys, holdKey(op, next))
		}
		keys = append(keys, holdKey(op, g), holdKey(op, g-1))
		generations, known = byte(len(keys)-before), bit(hold.Known)
		if hold.GiveBack {
			keys = append(keys, holdKey(op, -1))
		}
		copy(id[:], hold.ID)
		ends, life = hold.Ends(op.Now), (2*hold.Length()+backends.Skew)/1000
	}
	at, slack := op.Now, int64(0)
	if op.Kind == backends.List {
		at, _ = op.Dating()
		slack = op.Leaves(at) - at - listWindow(op)
	}
	overdraws := terms.Debt != backends.Amount{} && op.Max != backends.NoMax
	to = append(to, bit(overdraws), bit(terms.Parts > 0), bit(terms.Oldest), bit(op.Partial),
		generations, bit(hold.GiveBack), bit(hold.ID != ""), known)
	to = append(to, id[:]...)
	for _, n := range [...]int64{
		terms.Debt.Whole, terms.Debt.Frac, op.Unit.Whole, op.Unit.Frac, terms.Shift.Whole, terms.Shift.Frac,
		terms.Carry, op.Period, at, slack, op.Ends, op.Mark(), ends, life,
	} {
		to = binary.LittleEndian.AppendUint64(to, math.Float64bits(float64(n)))
	}
	return keys, to
}

// holdKey is the key of the records of a generation of op's reservations; -1 is that of what
// comes back. It is shortened if that of the cell is, so that both have one hash tag.
func holdKey(op *backends.Op, generation int64) string {
	key := op.Hold.Key + "|open"
	if generation >= 0 {
		key = op.Hold.Key + "|" + strconv.FormatInt(generation, 10)
	}
	if StoredKey(op.Key) == op.Key {
		return key
	}
	return backends.TextKey(key)
}

// wayOf is the way in which op changes its cell, as apply.lua numbers them.
func wayOf(op *backends.Op) byte {
	const refund, undo, reset, grant = 1, 2, 3, 4
	switch {
	case op.Verb == backends.Reset:
		return reset
	case op.Verb == backends.Grant:
		return grant
	case op.Refund && op.Undo:
		return undo
	}
	return bit(op.Refund) * refund
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// lifetime is how long a Counter's key has to live in Redis, in ms. A fixed
// window's key names the window, so the key may live longer than the window: by
// a part of jitter that depends on the key only, so that each write of the key
// sets the same end.
func lifetime(op *backends.Op, jitter int64) int64 {
	us := op.Until - op.Now + backends.Skew // a caller whose clock is behind still finds it; as in apply.lua
	if op.Span == backends.Fixed && jitter > 0 {
		us += int64(maphash.String(jitterSeed, op.Key) % uint64(jitter+1))
	}
	return max(1, (us+999)/1000)
}

var jitterSeed = maphash.MakeSeed()

// fill decodes an answer into b: a script's, or the count of plain commands.
func (e *eval) fill(b *backends.Batch, answer []int64) error {
	perOp := 6
	if e.script == &countScript || e.script == nil {
		perOp = 1
	}
	more := 0
	for i := range b.Ops {
		if perOp > 1 && isFurther(&b.Ops[i]) {
			more += 5
		}
	}
	if len(answer) != perOp*len(b.Ops)+more {
		return fmt.Errorf("the script answered %d numbers to %d operations", len(answer), len(b.Ops))
	}
	further := answer[perOp*len(b.Ops):]
	for i := range b.Replies {
		r, op := answer[perOp*i:], &b.Ops[i]
		switch {
		case perOp == 1 && r[0] == noCount:
			b.Replies[i] = backends.Reply{Err: foreign(op.Key)}
		case perOp == 1:
			b.Replies[i] = backends.Reply{
				Now:      op.Now,
				Admitted: op.Fitting(op.Max.Whole, r[0]),
				Value:    backends.Amount{Whole: r[0]},
				Until:    op.Until,
			}
		case r[0] == -2:
			b.Replies[i] = backends.Reply{Err: foreign(op.Prev)}
		case r[0] < 0:
			b.Replies[i] = backends.Reply{Err: foreign(op.Key)}
		default:
			b.Replies[i] = backends.Reply{
				Now:      op.Now,
				Admitted: r[0],
				Value:    backends.Amount{Whole: r[1], Frac: r[2]},
				Prev:     r[3],
				Until:    r[4],
				RetryAt:  r[5],
			}
			if r[5] < 0 {
				b.Replies[i].RetryAt = math.MaxInt64
			}
			if isFurther(op) {
				fillFurther(&b.Replies[i], op, further)
			}
		}
		if perOp > 1 && isFurther(op) {
			further = further[5:]
		}
	}
	b.Decide()
	return nil
}

// fillFurther completes r, the reply to op, with the five numbers that apply.lua adds for it,
// and with the dates of a List in parts.
func fillFurther(r *backends.Reply, op *backends.Op, more []int64) {
	account := backends.Account{
		Hold: backends.HoldState(more[0]),
		Held: backends.Amount{Whole: more[1], Frac: more[2]},
		Cut:  backends.Amount{Whole: more[3], Frac: more[4]},
	}
	if account != (backends.Account{}) {
		r.Account = &account
	}
	if op.Kind != backends.List || op.Terms == nil || op.Terms.Parts == 0 {
		return
	}
	window := listWindow(op)
	if r.Until != op.Now { // it is not empty
		r.Until = op.Leaves(r.Until - window)
	}
	if r.Admitted < op.Times && r.RetryAt != math.MaxInt64 {
		r.RetryAt = op.Leaves(r.RetryAt - window)
	}
}

// foreign is the error of an operation whose key holds something that this
// store did not write. It does not tell the key, which may hold values that
// identify customers.
func foreign(key string) error {
	return fmt.Errorf("redis: %w: a key does not hold a counter of this limit: of the keys that redis-cli --scan prints, delete the key whose SHA-256 begins with %s (docs/backends.md)",
		backends.ErrUnavailable, backends.KeyHash(StoredKey(key)))
}

// plain is the charge of one counter whatever its count is, without a script. It
// costs Redis less than count.lua:
//
//	SET key 0 PX lifetime NX
//	INCRBY key cost
//
// SET comes first, so that the key has a lifetime from the moment it exists.
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
	return op.Verb == backends.Charge && op.Kind == backends.Counter && op.Span == backends.Fixed && op.Prev == "" &&
		!op.Refund && (op.ChargeDenied || op.Max == backends.NoMax) && !isFurther(op)
}

// commands are the commands in their order. The last one has the count.
func (p *plain) commands() (before []goredis.Cmder, last goredis.Cmder) {
	ctx := context.Background()
	before = append(make([]goredis.Cmder, 0, 2), goredis.NewBoolCmd(ctx, "set", p.key, 0, "px", p.lifetime, "nx"))
	if rand.N(8) == 0 { // the key may have lost its expiry (PERSIST, a restored dump)
		before = append(before, goredis.NewBoolCmd(ctx, "pexpire", p.key, p.lifetime))
	}
	return before, goredis.NewIntCmd(ctx, "incrby", p.key, p.cost)
}

// isForeign reports whether text is the error of INCRBY for a key that does not hold
// a count.
func isForeign(text string) bool {
	return strings.Contains(text, "WRONGTYPE") || strings.Contains(text, "not an integer") || strings.Contains(text, "overflow")
}
