package redis

import (
	"crypto/sha1"
	"embed"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/maphash"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"

	"example.org/rls/pkg/backends"
)

// A script is a Lua script that Redis runs atomically for a batch.
type script struct {
	source string
	sha    any // hex SHA-1, by which EVALSHA names it
	// numbers are the numbers that each operation has for it, as places in opPlaces.
	numbers []int
}

//go:embed *.lua
var luaFiles embed.FS

// A section is a part of the script that only some batches need.
type section uint16

const (
	forCells section = 1 << iota // cells.lua: counters and meters
	forMeters
	forWindows  // windows that a mark names
	forLists    // list.lua
	forVerbs    // verbs.lua: the verbs that few operations have
	forDebt     // limits with a debt
	forGrant    // grants and resets
	forHold     // hold.lua
	forTogether // decide.lua: operations that are decided together
	allSections
)

// sections have the files of the script in their order, the numbers of an operation that a section needs
// (opPlaces), and the last number of a reply (replyPlaces).
var sections = []struct {
	of                   section
	file, numbers, reply string
}{
	{allSections - 1, "keys.lua", "KIND SPAN VERB KEY NOW TIMES BY MAX UNTIL LIFE", "REPLY_UNTIL"},
	{forCells, "cells.lua", "", "REPLY_UNTIL"},
	{forMeters, "", "BY_FRAC DEN MAX_FRAC FURTHEST FURTHEST_FRAC", "REPLY_FRAC"},
	{forWindows, "", "MARK WINDOW WEIGHT_UNIT WEIGHT_DEN", "REPLY_PREV"},
	{forVerbs, "verbs.lua", "BY_FRAC DEN MAX_FRAC", "CUT_FRAC"},
	{forDebt, "", "MARK WINDOW OVERDRAWS UNIT UNIT_FRAC DEBT DEBT_FRAC SHIFT SHIFT_FRAC CARRY", "CUT_FRAC"},
	{forGrant, "", "OPEN LEAST LEAST_FRAC", "CUT_FRAC"},
	{forLists, "list.lua", "MARK WINDOW DATE SLACK PARTS OLDEST", "RETRY_AT"},
	{forHold, "hold.lua", "OPEN RECORD GIVE_BACK KNOWN OWN_MARK ENDS NUMBER", "CUT_FRAC"},
	{forTogether, "decide.lua", "ROLE GROUP", "CUT_FRAC"},
	{allSections - 1, "apply.lua", "", "REPLY_UNTIL"},
}

// The numbers with which the script answers.
const (
	bad   = -2 * backends.MaxValue // the key holds something else; every cell is above it
	never = -1
)

// The numbers of an operation, of its reply and of a cell, in their order. Words of the script stand
// for their places. A batch leaves out the numbers of its operations, and the last numbers of its
// replies, that no section needs (sections): a script finds nil in their place.
var (
	opPlaces = strings.Fields(`KIND SPAN VERB KEY NOW TIMES BY MAX UNTIL LIFE
		BY_FRAC DEN MAX_FRAC FURTHEST FURTHEST_FRAC OPEN RECORD GIVE_BACK KNOWN OWN_MARK ENDS NUMBER
		MARK WINDOW WEIGHT_UNIT WEIGHT_DEN DATE SLACK PARTS OLDEST
		OVERDRAWS UNIT UNIT_FRAC DEBT DEBT_FRAC SHIFT SHIFT_FRAC CARRY LEAST LEAST_FRAC ROLE GROUP`)
	replyPlaces = strings.Fields(`ADMITTED REPLY_VALUE REPLY_UNTIL REPLY_FRAC REPLY_PREV RETRY_AT
		STATE HELD_BY HELD_FRAC CUT CUT_FRAC`)
	cellPlaces = strings.Fields(`VALUE SECOND THIRD OPEN_TEXT CELL_ENDS DIRTY FOURTH`)
)

// words are the words of the script that stand for numbers and texts.
var words = func() map[string]any {
	words := map[string]any{
		"COUNTER": backends.Counter, "METER": backends.Meter, "LIST": backends.List,
		"FIXED": backends.Fixed, "FIRST_HIT": backends.FirstHit, "CARRIED": backends.Carried, "SLIDING": backends.Sliding,
		"FIRM": backends.Firm, "QUOTA": backends.Quota,
		"CHARGE": backends.Charge, "COUNT": backends.Count, "FILL": backends.Fill, "REFUND": backends.Refund,
		"UNDO": backends.Undo, "GRANT": backends.Grant, "RESET": backends.Reset,
		"NO_HOLD": backends.NoHold, "HELD": backends.Held, "SETTLED": backends.Settled, "UNCHANGED": backends.Unchanged,
		"MAX_VALUE": backends.MaxValue, "NO_MAX": float64(backends.NoMax.Whole), "NO_ROOM": backends.NoRoom.Whole,
		"MAX_WAIT": backends.MaxWait, "SKEW": backends.Skew,
		"GRACE": backends.Skew / 1000, // a caller whose clock is behind still finds the key
		"BAD":   bad, "NEVER": never,
	}
	for _, places := range [][]string{replyPlaces, cellPlaces} {
		for i, name := range places {
			words[name] = i + 1
		}
	}
	return words
}()

var word = regexp.MustCompile(`\b[A-Z][A-Z_]+\b`)

// composed are the scripts by their sections.
var composed [allSections]atomic.Pointer[script]

// applyScript is the script with some sections only.
func applyScript(needs section) *script {
	if s := composed[needs].Load(); s != nil {
		return s
	}
	words := maps.Clone(words)
	numbers, replies := needs.numbers()
	for i, name := range opPlaces {
		if words[name] = slices.Index(numbers, i) + 1; words[name] == 0 {
			words[name] = 2*len(opPlaces) + i // where no operation has a number
		}
	}
	words["OPERATION"], words["REPLY"] = "'<BBB"+strings.Repeat("d", len(numbers)-3)+"'", "'<"+strings.Repeat("d", replies)+"'"
	var source []byte
	for _, s := range sections {
		if s.file == "" || needs&s.of == 0 {
			continue
		}
		text, err := luaFiles.ReadFile(s.file)
		if err != nil {
			panic(err) // it is embedded
		}
		source = append(source, word.ReplaceAllFunc(text, func(name []byte) []byte {
			if value, ok := words[string(name)]; ok {
				return fmt.Append(nil, value)
			}
			return name
		})...)
	}
	sum := sha1.Sum(source)
	s := script{source: string(source), sha: hex.EncodeToString(sum[:]), numbers: numbers}
	composed[needs].Store(&s)
	return &s
}

// numbers are the numbers that each operation of a batch has, and how many each reply has.
func (needs section) numbers() (ofOp []int, ofReply int) {
	for _, s := range sections {
		if needs&s.of != 0 {
			for name := range strings.FieldsSeq(s.numbers) {
				ofOp = append(ofOp, slices.Index(opPlaces, name))
			}
			ofReply = max(ofReply, slices.Index(replyPlaces, s.reply)+1)
		}
	}
	slices.Sort(ofOp)
	return slices.Compact(ofOp), ofReply
}

// sectionsOf are the sections that op needs.
func sectionsOf(op *backends.Op) (needs section) {
	switch {
	case op.Kind == backends.List:
		needs = forLists
	case op.Kind == backends.Meter:
		needs = forCells | forMeters
	case op.Span == backends.Sliding, op.Span == backends.FirstHit && op.Verb.GivesBack():
		needs = forCells | forWindows
	default:
		needs = forCells
	}
	if op.Hold != nil {
		needs |= forCells | forVerbs | forHold
	}
	switch {
	case op.Verb.Operates():
		needs |= forVerbs | forDebt | forGrant
	case op.Span == backends.Carried, op.Debt != backends.Amount{}, op.Shift != backends.Amount{}:
		needs |= forVerbs | forDebt
	case op.Verb == backends.Fill:
		needs |= forVerbs
	}
	return needs
}

// newApply is the script for b, and the arguments of its EVALSHA.
func newApply(b *backends.Batch, jitter int64) (*script, []any) {
	var needs section
	if b.Together() {
		needs = forTogether
	}
	for i := range b.Ops {
		needs |= sectionsOf(&b.Ops[i])
	}
	s := applyScript(needs)
	args := make([]any, 3, 5+3*len(b.Ops))
	packed := make([]byte, 0, 8*len(s.numbers)*len(b.Ops))
	for i := range b.Ops {
		args, packed = pack(args, packed, &b.Ops[i], jitter, s.numbers)
	}
	args[0], args[1], args[2] = "evalsha", s.sha, len(args)-3
	args = append(args, packed)
	if b.AllOrNothing {
		args = append(args, "all")
	}
	return s, args
}

// pack appends some numbers of op, as places in opPlaces, and to args its keys. Every number is
// below 2^53 or, as NoMax, above every cell.
func pack(args []any, to []byte, op *backends.Op, jitter int64, numbers []int) ([]any, []byte) {
	var hold backends.Hold
	var furthest backends.Amount
	var weightUnit, weightDen, date, slack, record, ownMark, ends, number int64
	window := op.Window
	args = append(args, StoredKey(op.Key))
	key := int64(len(args) - 3)
	open := key
	switch {
	case op.Kind == backends.List:
		date, _ = op.Dating()
		window = listWindow(op)
		slack = op.Leaves(date) - date - window
	case op.Kind == backends.Meter:
		furthest = op.Furthest()
	case op.Span == backends.Sliding:
		weightUnit, weightDen = op.WeightUnit(), op.Window/op.WeightUnit()
	}
	if op.Hold != nil && op.Verb != backends.Reset {
		hold, ownMark, ends = *op.Hold, op.OwnMark(), op.Hold.Ends(op.Now)
	}
	if key, ok := openKey(op); ok {
		args = append(args, key)
		open++
	}
	if op.Identified() && !op.Verb.Operates() {
		args = append(args, keyBeside(op, hold.RecordKey()))
		record, number = int64(len(args)-3), op.Number()
	}
	overdraws := op.Verb == backends.Charge && op.Debt != backends.Amount{} && op.Max != backends.NoMax
	to = append(to, byte(op.Kind), byte(op.Span), byte(op.Verb))
	all := [...]int64{key, op.Now, op.Times, op.By.Whole, op.Max.Whole, op.Until, life(op, jitter),
		op.By.Frac, op.Den, op.Max.Frac, furthest.Whole, furthest.Frac,
		open, record, bit(hold.GiveBack), bit(hold.Known), ownMark, ends, number,
		op.Mark, window, weightUnit, weightDen, date, slack, bit(op.Parts > 0), bit(op.Oldest),
		bit(overdraws), op.Unit.Whole, op.Unit.Frac, op.Debt.Whole, op.Debt.Frac, op.Shift.Whole, op.Shift.Frac, op.Carry,
		op.Least.Whole, op.Least.Frac, int64(op.Role), int64(op.Group)}
	const bytes = 3 // KIND SPAN VERB
	for _, i := range numbers[bytes:] {
		to = binary.LittleEndian.AppendUint64(to, math.Float64bits(float64(all[i-bytes])))
	}
	return args, to
}

// openKey is the key of the reservations that are open on op's list, if op has to do with them: it
// has a Hold, or is a reset by a limit without reservations. Without a hash tag both keys lie in two
// slots, and the list has no reservations.
func openKey(op *backends.Op) (key string, ok bool) {
	if op.Kind != backends.List || op.Hold == nil && op.Verb != backends.Reset {
		return "", false
	}
	key = keyBeside(op, op.Key+"|open")
	return key, op.Hold != nil || slotOf(key) == slotOf(StoredKey(op.Key))
}

// keyBeside is key, which has the hash tag of op's cell. It is shortened if that of the cell is, so
// that both share a slot.
func keyBeside(op *backends.Op, key string) string {
	if StoredKey(op.Key) == op.Key {
		return key
	}
	return backends.TextKey(key)
}

// listWindow is Limit.Window, of a List in parts the time since the first part that counts. In
// list.lua a cost counts if it is younger.
func listWindow(op *backends.Op) int64 {
	if op.Parts == 0 {
		return op.Window
	}
	_, gone := op.Dating()
	return op.Now - gone
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// fillReplies decodes the doubles with which the script answers, in the order of replyPlaces.
func fillReplies(b *backends.Batch, answer string) error {
	numbers := len(answer) / 8 / len(b.Ops)
	if numbers == 0 || numbers > len(replyPlaces) || len(answer) != 8*numbers*len(b.Ops) {
		return fmt.Errorf("the script answered %d bytes to %d operations", len(answer), len(b.Ops))
	}
	for i := range b.Replies {
		op := &b.Ops[i]
		var n [11]int64
		for j := range numbers {
			at := 8 * (i*numbers + j)
			n[j] = int64(math.Float64frombits(binary.LittleEndian.Uint64([]byte(answer[at : at+8]))))
		}
		r := backends.Reply{
			Now: op.Now, Admitted: n[0], Value: backends.Amount{Whole: n[1], Frac: n[3]},
			Until: n[2], Prev: n[4], RetryAt: n[5],
		}
		account := backends.Account{Hold: backends.HoldState(n[6]), Held: backends.Amount{Whole: n[7], Frac: n[8]},
			Cut: backends.Amount{Whole: n[9], Frac: n[10]}}
		if account != (backends.Account{}) {
			told := account // on the heap, as few are
			r.Account = &told
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
			crc = crc<<1 ^ (crc>>15)*polynomial
		}
		table[i] = crc
	}
	return table
}()

// isCount reports whether INCRBY can apply op: it is the charge of a fixed window whatever its count is.
func isCount(op *backends.Op) bool {
	return op.Verb <= backends.Count && op.Kind == backends.Counter && op.Span == backends.Fixed && op.By.Whole > 0 &&
		(op.Verb == backends.Count || op.Max == backends.NoMax) && op.Hold == nil && op.Debt == backends.Amount{}
}

// isForeign reports whether err is that of INCRBY for a key that does not hold a count.
func isForeign(err error) bool {
	text := err.Error()
	return strings.Contains(text, "WRONGTYPE") || strings.Contains(text, "not an integer") || strings.Contains(text, "overflow")
}
