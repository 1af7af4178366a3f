// Package algorithms decides rate limits. It is pure: no I/O, no clock, no
// context. Each strategy plans a step on a store's cell ([Limit.Plan]) and
// judges the store's reply ([Limit.Judge]). Time is an argument and arithmetic
// is in integers, so that rounding errors do not add up over many decisions.
//
// A new strategy is one file and one row in the table of strategy.go.
package algorithms

import (
	"cmp"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"example.org/rls/pkg/backends"
)

const (
	// MaxWindow is the longest window.
	MaxWindow = 10 * 365 * 24 * time.Hour
	// MaxLogRequests is the largest limit of a sliding_log, which stores every
	// hit.
	MaxLogRequests = 10_000
	// maxFill is the longest time that a burst may take to fill again.
	maxFill = 10 * MaxWindow
)

// Spec is a limit as a person writes it.
type Spec struct {
	Strategy Strategy
	Requests uint32        // hits per Window; 0 denies every hit
	Window   time.Duration // whole seconds, > 0, at most MaxWindow; nominal with Calendar
	// Burst is the capacity in hits of token_bucket and leaky_bucket and the
	// tolerance of gcra, if Requests is above 0; 0 takes the strategy's default.
	Burst uint32
	// MaxDelay, above 0, makes a leaky_bucket a queue: the longest wait for a turn.
	MaxDelay time.Duration
	// FromFirstHit starts a fixed_window at its key's first hit, not on the
	// clock; Extend starts it anew with each hit.
	FromFirstHit bool
	Extend       bool
	Calendar     Calendar
	Lease        Lease
	// Overdraft, above 0, is the debt in hits up to which every charge is made, or
	// [FullOverdraft].
	Overdraft uint64
	// Precision, above 0, is the number of parts of a sliding_window that counts in parts, 2
	// to 60.
	Precision uint32
	Reserve   Reserve
	// Mark, if it is not empty, ends the keys of the limit's cells, so that these are apart
	// from the cells of a limit that is the same but for the mark.
	Mark string
}

// SpecError says which field of a Spec is wrong, by its name in the rules, and
// what would be right.
type SpecError struct {
	Field   string // requests_per_unit, unit, unit_multiplier, burst, max_delay, window, timezone, week_starts, month_starts, year_starts, extend, strategy, overdraft, precision, reserve, reserve.ttl, lease, lease.share, lease.ttl
	Message string
}

func (e *SpecError) Error() string { return e.Field + ": " + e.Message }

// Limit is a checked Spec with the values derived from it. It is immutable and
// safe for concurrent use.
type Limit struct {
	Spec
	row        *row            // of its strategy
	window     int64           // µs
	interval   backends.Amount // µs per hit, over den
	tolerance  backends.Amount // burst × interval
	den        int64
	weightUnit int64           // µs that one unit of a sliding window's weight stands for
	calendar   *calendar       // nil without Spec.Calendar
	tag        string          // names strategy and window in the cell's key, and a bucket's terms
	bucketed   bool            // each window of the clock has a cell of its own
	lease      *backends.Lease // nil without Spec.Lease
	beyond     *backends.Terms // nil if the spec asks for nothing beyond amounts
}

// New checks spec. Its error is a *SpecError.
func New(spec Spec) (*Limit, error) {
	if int(spec.Strategy) >= len(table) {
		return nil, &SpecError{"strategy", fmt.Sprintf("unknown strategy %d", spec.Strategy)}
	}
	row := &table[spec.Strategy]
	l := &Limit{Spec: spec, row: row, window: spec.Window.Microseconds()}
	if spec.Window <= 0 || spec.Window > MaxWindow || spec.Window%time.Second != 0 {
		return nil, &SpecError{"unit_multiplier", fmt.Sprintf("a window of %v is out of range: whole seconds, more than 0, at most 10 years", spec.Window)}
	}
	if err := l.checkOptions(); err != nil {
		return nil, err
	}
	switch {
	case l.Precision > 0:
		l.row = &parts
	case l.Calendar.On:
		l.row = &periods
	}
	l.tag = l.row.tag
	if err := l.row.prepare(l); err != nil {
		return nil, err
	}
	if err := l.prepareOverdraft(); err != nil {
		return nil, err
	}
	l.bucketed = l.row.bucketed && !l.FromFirstHit
	l.tag = "|" + l.tag + cmp.Or(l.Calendar.Unit(l.Window), formatWindow(l.Window))
	if row.burst != nil && !l.overdraws() {
		l.tag += l.terms()
	}
	if err := l.prepareLease(); err != nil {
		return nil, err
	}
	return l, nil
}

// Capacity is the number of hits that fit an empty cell: the burst if the strategy has
// one, else the requests of a window. A limit of 0 requests has none.
func (l *Limit) Capacity() int64 {
	if l.Burst > 0 && l.Requests > 0 {
		return int64(l.Burst)
	}
	return int64(l.Requests)
}

// checkOptions refuses options that the strategy would ignore.
func (l *Limit) checkOptions() error {
	switch {
	case l.Burst != 0 && l.row.burst == nil:
		return &SpecError{"burst", l.row.name + " " + NoBurst()}
	case l.MaxDelay != 0 && l.Strategy != LeakyBucket:
		return &SpecError{"max_delay", l.row.name + " never delays; leaky_bucket does"}
	case l.MaxDelay < 0 || l.MaxDelay > time.Minute || l.MaxDelay%time.Microsecond != 0:
		return &SpecError{"max_delay", "must be between 1us and 1m"}
	case l.FromFirstHit && l.Strategy != FixedWindow:
		return &SpecError{"window", "from_first_hit is an option of fixed_window, not of " + l.row.name}
	case l.Extend && !l.FromFirstHit:
		return &SpecError{"extend", "needs strategy fixed_window with `window: from_first_hit`"}
	case l.Precision > 0 && l.Strategy != SlidingWindow:
		return &SpecError{"precision", "is an option of sliding_window, not of " + l.row.name}
	case l.Precision == 1 || l.Precision > MaxPrecision:
		return &SpecError{"precision", fmt.Sprintf("must be between 2 and %d", MaxPrecision)}
	}
	return cmp.Or(l.checkCalendar(), l.checkOverdraft(), l.checkReserve())
}

// Identity names whom a limit counts: a prefix for every key of the service
// and the escaped domain and descriptor. Neither is retained.
type Identity struct {
	Prefix string
	ID     []byte
	// ByStart, of limits that are [Limit.Clocked], makes the key Prefix, ID and the
	// second since the epoch at which the window starts, as other programs write it.
	ByStart bool
	// OneSlot makes ID the hash tag of the key, so that the keys of all limits of one
	// descriptor share a Redis Cluster slot. ByStart goes before it.
	OneSlot bool
	// Longest, above 0, is the longest TTL of a Charge in µs: callers may hold hits of every
	// limit that can ([Limit.CheckHold]). It needs OneSlot.
	Longest int64
}

// Charge is the hits of one descriptor that a limit decides together.
type Charge struct {
	Now  int64  // µs since the epoch, on the store's clock
	Cost uint64 // hits; 0 checks without charging
	// Refund gives Cost back.
	Refund bool
	// AdmittedOnly: a fixed window, too, does not count the hits that it denies.
	AdmittedOnly bool
	// Reservation, of a limit with Reserve or of an Identity with Longest, is the ID of the
	// reservation that the charge makes or settles, 16 bytes; "" if it has none.
	Reservation string
	// TTL, above 0, is how long Reservation holds the hits in µs, if all of them fit, also
	// where the limit has an overdraft. They come back if nobody settles it within that time.
	TTL int64
	// Beyond: the hits are charged whatever remains, up to the debt that the limit can have,
	// and Reservation is only settled: an ID that holds nothing is charged as if there were none.
	Beyond bool
	// Patience is the longest time in µs that the caller can wait for its turn
	// in a queue; used only with MaxDelay.
	Patience int64
}

// Decision is the result of a charge for one limit.
type Decision struct {
	Allowed   bool
	Remaining int64 // hits that would pass now, >= 0
	// Reset is how long until the full quota is back, or a fixed window ends.
	Reset time.Duration
	// RetryAfter, of a denial, is how long until the same cost would pass if no other
	// hit came; one window for a cost above the limit, which never passes.
	RetryAfter time.Duration
	Delay      time.Duration // of an allowed hit: the wait for its turn in a queue
}

// Clocked reports whether the limit counts in windows that start on the clock,
// in one cell each.
func (l *Limit) Clocked() bool { return l.bucketed && !l.row.paired && l.calendar == nil }

// bucket is the number at the end of the keys of cells that count at now: the window's, or the
// second since the epoch at which a period of the calendar begins. It is -1 if there is none.
func (l *Limit) bucket(now int64) int64 {
	switch {
	case !l.bucketed:
		return -1
	case l.calendar != nil:
		_, start, _ := l.calendar.period(now)
		return start / 1_000_000
	}
	return now / l.window
}

// Plan fills in op with the step that charges c to id. It leaves Group and Role
// to the caller.
func (l *Limit) Plan(op *backends.Op, id Identity, c Charge) {
	*op = backends.Op{
		Now:       c.Now,
		By:        backends.Amount{Whole: int64(min(c.Cost, uint64(backends.MaxCost)))},
		Den:       1,
		Max:       backends.Amount{Whole: int64(l.Requests)},
		Unit:      backends.Amount{Whole: 1},
		Times:     1,
		Refund:    c.Refund,
		PerSecond: l.Window == time.Second,
		Terms:     l.beyond,
	}
	// Keys are built here: escape analysis puts arguments of a call through a function
	// value on the heap, and the bytes of the identity live on the caller's stack.
	bucket := l.bucket(c.Now)
	op.Key, op.Stem = l.key(id, bucket)
	op.Lease = l.lease
	if l.row.paired {
		op.Prev, _ = l.key(id, bucket-1)
	}
	l.row.plan(l, op, c)
	if l.Reserve.TTL > 0 || id.Longest > 0 {
		l.reserve(op, id, c)
	}
	if l.Requests == 0 && c.Cost > 0 && !c.Refund {
		op.Max = backends.NoRoom // denies also hits that were granted before it was lowered to 0
	}
	if c.Beyond {
		l.chargeBeyond(op)
	}
}

// Judge turns the store's reply to a planned op into a decision, as of r.Now.
// r.Err must be nil.
func (l *Limit) Judge(op *backends.Op, r *backends.Reply) Decision {
	if r.Replicas > 1 {
		return l.judgeShare(op, r)
	}
	d := l.row.judge(l, op, r)
	d.Remaining = max(d.Remaining, 0)
	if d.Allowed {
		d.RetryAfter = 0
	} else {
		d.Delay = 0
	}
	return d
}

// key builds the name of a cell: prefix id|tag|bucket, without a bucket when it
// is negative. The braces of a hash tag stand where keys have to share a Redis
// Cluster slot: prefix{id|tag}bucket for the two keys of a pair, and
// prefix{id}|tag|bucket for the keys of a descriptor with several limits. The
// bytes before stem are the same for all buckets, and for no other limit; with a mark,
// which ends the key, stem is 0.
func (l *Limit) key(id Identity, bucket int64) (key string, stem int) {
	pair := l.row.paired && !id.OneSlot
	buf := make([]byte, 0, 192)
	buf = append(buf, id.Prefix...)
	if pair || id.OneSlot && !id.ByStart {
		buf = append(buf, '{')
	}
	buf = append(buf, id.ID...)
	switch {
	case id.ByStart:
		bucket *= l.window / 1_000_000
	case pair:
		buf = append(append(buf, l.tag...), '}')
	default:
		if id.OneSlot {
			buf = append(buf, '}')
		}
		if buf = append(buf, l.tag...); bucket >= 0 {
			buf = append(buf, '|')
		}
	}
	stem = len(buf)
	if bucket >= 0 {
		buf = strconv.AppendInt(buf, bucket, 10)
	}
	if l.Mark != "" {
		buf, stem = append(buf, l.Mark...), 0
	}
	return string(buf), stem
}

// Paired reports whether a decision reads two cells: that of the window before, too.
func (l *Limit) Paired() bool { return l.row.paired }

// IDOf returns Identity.ID of a key that l, or the same strategy and window with other
// amounts (an override, or the rule before a change), makes for a cell that counts at
// now, with that Identity.Prefix and OneSlot and without ByStart. ok is false for others.
func (l *Limit) IDOf(key, prefix string, oneSlot bool, now int64) (id string, ok bool) {
	buckets := []int64{l.bucket(now)}
	if l.row.paired {
		buckets = append(buckets, buckets[0]-1)
	}
	key, marked := strings.CutSuffix(key, l.Mark)
	if !marked {
		return "", false
	}
	if l.row.burst != nil {
		key = withoutTerms(key)
	}
	const none = "\x00" // in place of an ID
	for _, bucket := range buckets {
		model, _ := l.key(Identity{Prefix: prefix, ID: []byte(none), OneSlot: oneSlot}, bucket)
		before, after, _ := strings.Cut(strings.TrimSuffix(model[len(prefix):], l.Mark), none)
		if l.row.burst != nil {
			after = withoutTerms(after)
		}
		if rest, found := strings.CutPrefix(key, prefix+before); found {
			if id, ok = strings.CutSuffix(rest, after); ok {
				return id, true
			}
		}
	}
	return "", false
}

// formatWindow writes a window in the largest unit that divides it: 15m, 7d.
func formatWindow(w time.Duration) string {
	for _, u := range []struct {
		d    time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}} {
		if w%u.d == 0 {
			return strconv.FormatInt(int64(w/u.d), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(w/time.Second), 10) + "s"
}

// micros turns µs into a Duration, not below 0.
func micros(us int64) time.Duration {
	return time.Duration(max(us, 0)) * time.Microsecond
}

// mulDiv is a × b / c, rounded down, and the remainder. The quotient must fit
// 63 bits, else it panics.
func mulDiv(a, b, c int64) (quo, rem int64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, r := bits.Div64(hi, lo, uint64(c))
	return int64(q), int64(r)
}
