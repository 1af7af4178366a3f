package redis

import (
	"crypto/sha1"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/maphash"
	"math"
	"regexp"
	"strings"
	"sync/atomic"

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

//go:embed apply.lua
var applySource string

// A section is a part of apply.lua that only some operations need.
type section uint8

const (
	forCounter section = 1 << iota
	forMeter
	forList
	forTerms
	forHold
	forLapse    // of a cell on which hits may come back
	forTogether // operations that are decided together
	forEach     // operations that are decided each on its own
)

var sections = map[string]section{"counter": forCounter, "meter": forMeter, "list": forList, "terms": forTerms,
	"hold": forHold, "lapse": forLapse, "together": forTogether, "each": forEach}

// The ways in which an operation changes its cell.
const (
	_ byte = iota // a charge, also one that is made although it does not fit, or as far as it fits
	wayRefund
	wayUndo
	wayReset
	wayGrant
)

// The numbers with which apply.lua answers.
const (
	bad   = -2 * backends.MaxValue // the key holds something else; every cell is above it; as in count.lua
	never = -1
)

// constants are the words of apply.lua that stand for numbers and texts.
var constants = map[string]any{
	"COUNTER": backends.Counter, "METER": backends.Meter, "LIST": backends.List,
	"FIXED": backends.Fixed, "EVERY_HIT": backends.EveryHit, "CARRIED": backends.Carried, "SLIDING": backends.Sliding,
	"FIRM": backends.Firm, "QUOTA": backends.Quota,
	"REFUND": wayRefund, "UNDO": wayUndo, "RESET": wayReset, "GRANT": wayGrant, "ALL": "'all'",
	"HELD": backends.Held, "SETTLED": backends.Settled, "UNCHANGED": backends.Unchanged,
	"MAX": backends.MaxValue, "MAX_WAIT": backends.MaxWait, "SKEW": backends.Skew, "GRACE": backends.Skew / 1000, // a caller whose clock is behind still finds the key
	"BAD": bad, "NEVER": never,
	// Places in the terms of an operation, see packTerms.
	"PARTIAL": 1, "OVERDRAWS": 2, "PARTS": 3, "OLDEST": 4,
	"DEBT": 5, "DEBTF": 6, "UNIT": 7, "UNITF": 8, "SHIFT": 9, "SHIFTF": 10, "CARRY": 9, "PERIOD": 10,
	"DATE": 5, "SLACK": 6, "ENDS": 7, "NUMBER": 8, "UNTIL": 9, // of a list
	"CUT": 11, "CUTF": 12,
	"NO_TERMS": noTerms,
	"RESERVES": 2, // of OVERDRAWS: the operation makes a reservation
}

var word = regexp.MustCompile(`\b[A-Z][A-Z_]+\b`)

// composed are the scripts by their sections.
var composed [1 << 8]atomic.Pointer[script]

// applyScript is apply.lua with the lines of some sections only.
func applyScript(needs section) *script {
	if s := composed[needs].Load(); s != nil {
		return s
	}
	var source strings.Builder
	kept := []bool{true} // of the sections around a line
	for line := range strings.Lines(applySource) {
		text, last := strings.TrimSpace(line), kept[len(kept)-1]
		switch names, starts := strings.CutPrefix(text, "--#if "); {
		case starts:
			var of section
			for name := range strings.FieldsSeq(names) {
				of |= sections[name]
			}
			kept = append(kept, last && of&needs != 0)
		case text == "--#end":
			kept = kept[:len(kept)-1]
		case last && !strings.HasPrefix(text, "--"):
			source.WriteString(word.ReplaceAllStringFunc(line, func(name string) string {
				if value, ok := constants[name]; ok {
					return fmt.Sprint(value)
				}
				return name
			}))
		}
	}
	s := newScript(source.String())
	composed[needs].Store(&s)
	return &s
}

// sectionsOf are the sections that op needs.
func sectionsOf(op *backends.Op) section {
	needs := forCounter << op.Kind
	if isFurther(op) {
		needs |= forTerms
	}
	if op.Hold != nil {
		needs |= forHold
		if op.Hold.GiveBack {
			needs |= forLapse
		}
	}
	return needs
}

// newApply is the script for b, and the arguments of its EVALSHA.
func newApply(b *backends.Batch, jitter int64) (*script, []any) {
	args := make([]any, 3, 5+3*len(b.Ops))
	size := 96 // of an ordinary operation, which pack makes of at most 89 bytes
	if isFurther(&b.Ops[0]) {
		size = 192
	}
	packed := make([]byte, 0, size*len(b.Ops))
	needs := forEach
	if b.Together() {
		needs = forTogether
	}
	for i := range b.Ops {
		op := &b.Ops[i]
		needs |= sectionsOf(op)
		args = append(args, StoredKey(op.Key))
		args, packed = pack(args, packed, op, jitter)
	}
	s := applyScript(needs)
	args[0], args[1], args[2] = "evalsha", s.sha, len(args)-3
	args = append(args, packed)
	if b.AllOrNothing {
		args = append(args, "all")
	}
	return s, args
}

// pack appends op as apply.lua unpacks it, and to keys those of its reservations. Every number is below 2^53 or, as NoMax, above every cell.
func pack(keys []any, to []byte, op *backends.Op, jitter int64) ([]any, []byte) {
	var far backends.Amount
	switch {
	case op.Verb == backends.Grant: // lowers the cell to Max, which is nearer
		far = op.Least
	case op.Kind == backends.Meter:
		far = op.Furthest()
	case op.Verb == backends.Undo && op.Span == backends.FirstHit:
		far.Whole = op.Mark
	}
	to = append(to, byte(op.Kind), wayOf(op), byte(op.Role), op.Group, termsOf(op), bit(op.Hold != nil))
	to = appendDoubles(to, op.Now, op.By.Whole, op.Max.Whole, far.Whole, op.Times)
	switch op.Kind {
	case backends.Counter:
		to = append(to, byte(op.Span), bit(op.Verb == backends.Count))
		to = appendDoubles(to, op.Until, life(op, jitter), op.Window)
		if op.Span == backends.Sliding {
			num, den := op.Weight(op.Until - op.Window - op.Now)
			to = appendDoubles(to, op.Mark, num, den)
		}
	case backends.Meter:
		to = appendDoubles(to, op.By.Frac, op.Den, op.Max.Frac, far.Frac, op.Until)
	case backends.List:
		to = appendDoubles(to, listWindow(op))
	}
	if termsOf(op) == someTerms {
		to = packTerms(to, op)
	}
	if op.Kind == backends.List && (op.Hold != nil || op.Verb == backends.Reset) {
		keys = append(keys, openKey(op))
	}
	if op.Identified() {
		keys = append(keys, keyBeside(op, op.Hold.RecordKey()))
	}
	if hold := op.Hold; hold != nil {
		to = append(to, bit(op.Identified()), bit(hold.GiveBack), bit(hold.Known))
		to = appendDoubles(to, op.OwnMark(), hold.Ends(op.Now), op.Number())
	}
	return keys, to
}

// openKey is the key of the reservations that are open on the list of op. Without a Hold it is that
// of the list if another slot has them: then nobody makes reservations on it.
func openKey(op *backends.Op) string {
	open, key := keyBeside(op, op.Key+"|open"), StoredKey(op.Key)
	if op.Hold == nil && slotOf(open) != slotOf(key) {
		return key
	}
	return open
}

// keyBeside is key, which has the hash tag of op's cell. It is shortened if that of the cell is, so
// that both share a slot.
func keyBeside(op *backends.Op, key string) string {
	if StoredKey(op.Key) == op.Key {
		return key
	}
	return backends.TextKey(key)
}

func appendDoubles(to []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		to = binary.LittleEndian.AppendUint64(to, math.Float64bits(float64(n)))
	}
	return to
}

// isFurther reports whether apply.lua has to know of op's terms (packTerms), or tells of them.
func isFurther(op *backends.Op) bool {
	return op.Hold != nil || op.Verb == backends.Fill || op.Oldest && op.Verb.GivesBack() || op.Parts > 0 || hasDebt(op)
}

// hasDebt reports whether the limit of op, or another limit of its cell, has an overdraft.
func hasDebt(op *backends.Op) bool {
	return op.Span == backends.Carried || op.Debt != backends.Amount{} || op.Shift != backends.Amount{}
}

// Whether pack has the terms of an operation.
const (
	_         byte = iota
	someTerms      // packTerms
	noTerms        // they are zeros
)

func termsOf(op *backends.Op) byte {
	switch {
	case !isFurther(op):
		return 0
	case !hasDebt(op) && op.Verb != backends.Fill && op.Kind != backends.List && op.Verb != backends.Grant:
		return noTerms
	}
	return someTerms
}

// listWindow is Limit.Window, of a List in parts the time since the first part that counts. In
// apply.lua a cost counts if it is younger.
func listWindow(op *backends.Op) int64 {
	if op.Parts == 0 {
		return op.Window
	}
	_, gone := op.Dating()
	return op.Now - gone
}

// packTerms appends what isFurther tells of. The places of the numbers are constants of
// apply.lua.
func packTerms(to []byte, op *backends.Op) []byte {
	partial := op.Verb == backends.Fill
	overdraws := op.Debt != backends.Amount{} && op.Max != backends.NoMax && !partial
	to = append(to, bit(partial), bit(overdraws), bit(op.Parts > 0), bit(op.Oldest))
	switch op.Kind {
	case backends.List:
		at, _ := op.Dating()
		return appendDoubles(to, at, op.Leaves(at)-at-listWindow(op), op.Mark, at, 0, 0)
	case backends.Counter:
		return appendDoubles(to, op.Debt.Whole, 0, op.Unit.Whole, 0, op.Carry, op.Mark)
	}
	debt := op.Debt
	if op.Verb == backends.Grant { // makes no debt; hits that come back before it are taken off a meter that Furthest bounds
		debt = op.Furthest()
	}
	return appendDoubles(to, debt.Whole, debt.Frac, op.Unit.Whole, op.Unit.Frac, op.Shift.Whole, op.Shift.Frac)
}

// wayOf is the way in which op changes its cell.
func wayOf(op *backends.Op) byte {
	switch {
	case op.Verb == backends.Reset:
		return wayReset
	case op.Verb == backends.Grant:
		return wayGrant
	case op.Verb == backends.Undo:
		return wayUndo
	case op.Verb == backends.Refund:
		return wayRefund
	}
	return 0
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// fillReplies decodes the doubles with which apply.lua answers: six for each operation, and five
// more for one that isFurther tells of.
func fillReplies(b *backends.Batch, answer string) error {
	at := 0
	next := func() int64 {
		at += 8
		if len(answer) < at {
			return bad
		}
		return int64(math.Float64frombits(binary.LittleEndian.Uint64([]byte(answer[at-8 : at]))))
	}
	for i := range b.Replies {
		op := &b.Ops[i]
		r := backends.Reply{Now: op.Now, Admitted: next(), Value: backends.Amount{Whole: next(), Frac: next()},
			Prev: next(), Until: next(), RetryAt: next()}
		if isFurther(op) {
			account := backends.Account{Hold: backends.HoldState(next()),
				Held: backends.Amount{Whole: next(), Frac: next()}, Cut: backends.Amount{Whole: next(), Frac: next()}}
			if account != (backends.Account{}) {
				r.Account = &account
			}
		}
		switch {
		case r.Admitted < 0:
			r = backends.Reply{Err: foreign(op.Key)}
		case r.RetryAt == never:
			r.RetryAt = math.MaxInt64
		}
		if r.Err == nil && op.Parts > 0 {
			window := listWindow(op)
			if r.Until != op.Now { // it is not empty
				r.Until = op.Leaves(r.Until - window)
			}
			if r.Admitted < op.Times && r.RetryAt != math.MaxInt64 {
				r.RetryAt = op.Leaves(r.RetryAt - window)
			}
		}
		b.Replies[i] = r
	}
	if at != len(answer) {
		return fmt.Errorf("the script answered %d bytes to %d operations", len(answer), len(b.Ops))
	}
	b.Decide()
	return nil
}

// lifetime is how long a Counter's key has to live in Redis, in ms.
func lifetime(op *backends.Op, jitter int64) int64 {
	return max(1, (life(op, jitter)+backends.Skew+999)/1000) // a caller whose clock is behind still finds it
}

// life is how long a Counter's key has to live for op, in µs. A fixed window's key names the
// window, so the key may live longer than the window: by a part of jitter that depends on the
// key only, so that each write of the key sets the same end.
func life(op *backends.Op, jitter int64) int64 {
	us := op.Until - op.Now
	if op.Span == backends.Fixed && jitter > 0 {
		us += int64(maphash.String(jitterSeed, op.Key) % uint64(jitter+1))
	}
	return us
}

var jitterSeed = maphash.MakeSeed()

// foreign is the error of an operation whose key holds something that this
// store did not write. It does not tell the key, which may hold values that
// identify customers.
func foreign(key string) error {
	return fmt.Errorf("redis: %w: a key does not hold a counter of this limit: of the keys that redis-cli --scan prints, delete the key whose SHA-256 begins with %s (docs/backends.md)",
		backends.ErrUnavailable, backends.KeyHash(StoredKey(key)))
}

// maxKey is the length in bytes above which keys are shortened, so that long
// values of callers do not cost memory and traffic of Redis.
const maxKey = 512

// StoredKey is the name under which Redis keeps the cell key: the key itself,
// or a backends.TextKey if it is long. Whether a key is long does not depend on
// trailing digits, in which the keys of adjacent windows differ.
func StoredKey(key string) string {
	const bucketDigits = 20
	long := len(key) > maxKey+bucketDigits || len(strings.TrimRight(key, "0123456789")) > maxKey
	if !long && !backends.IsTextKey(key) {
		return key
	}
	return backends.TextKey(key)
}

// slotOf is the Redis Cluster slot of a key, 0 to 16383: CRC-16/XMODEM of its
// hash tag modulo 16384.
func slotOf(key string) uint16 {
	var crc uint16
	tag := backends.HashTag(key)
	for i := range len(tag) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^tag[i]]
	}
	return crc % 16384
}

var crcTable = func() (table [256]uint16) {
	const polynomial = 0x1021
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= polynomial
			}
		}
		table[i] = crc
	}
	return table
}()
