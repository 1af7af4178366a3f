// Package algorithms decides rate limits. It is pure: no I/O, no clock, no
// context. Each strategy plans a step on a store's cell ([Limit.Plan]) and
// judges the store's reply ([Limit.Judge]). Time is an argument and arithmetic
// is in integers, so that rounding errors do not add up over many decisions.
//
// A new strategy is one file and one row in the table of strategy.go.
package algorithms

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"example.org/rls/pkg/backends"
)

const (
	// MaxWindow is the longest window.
	MaxWindow = 10 * 365 * 24 * time.Hour
	// MaxLogRequests is the largest limit of a sliding_log, which stores every
	// hit.
	MaxLogRequests = 10_000
	// maxFill is the longest time that a burst may take to fill again, and that a Decision tells.
	maxFill = time.Duration(backends.MaxWait) * time.Microsecond
)

// Strategy names a way to count.
type Strategy uint8

// The strategies; docs/strategies.md says when to choose which.
const (
	FixedWindow Strategy = iota
	SlidingWindow
	SlidingLog
	TokenBucket
	GCRA
	LeakyBucket
	Concurrency
)

// row is one strategy.
type row struct {
	name     string
	kind     backends.Kind
	tag      string              // names the strategy in the cell's key
	burst    func(*Limit) uint32 // the default of Spec.Burst; nil if that has no meaning
	bucketed bool                // each window of the clock has a cell of its own
	prepare  func(*Limit) error  // checks the spec further and derives values
	plan     func(*Limit, *backends.Op, Charge)
	judge    func(*Limit, *backends.Op, *backends.Reply) Decision
}

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

// Lease says how many hits of a limit one process may charge ahead, and how long
// it may hold them unused. The zero Lease means that the limit has no lease.
type Lease struct {
	Share Percent // of Burst where the strategy has one, else of Requests
	TTL   time.Duration
}

// DefaultLease is the lease of a limit that names neither share nor ttl.
var DefaultLease = Lease{Share: 50_000, TTL: 250 * time.Millisecond}

// String is the lease as it is written in rules.
func (l Lease) String() string {
	if l == (Lease{}) {
		return ""
	}
	return fmt.Sprintf("{share: %s, ttl: %s}", l.Share, l.TTL)
}

// Reserve says how long a reservation is held, and what becomes of one that nobody settles.
// The zero Reserve means that the limit has none.
type Reserve struct {
	TTL time.Duration // 1 s to 24 h
	// GiveBack: hits that nobody settles within TTL come back; else they stay charged.
	GiveBack bool
}

// DefaultReserve is the Reserve of a limit that names no ttl.
var DefaultReserve = Reserve{TTL: 10 * time.Minute}

// String is the Reserve as it is written in rules.
func (r Reserve) String() string {
	switch {
	case r == Reserve{}:
		return ""
	case r.GiveBack:
		return fmt.Sprintf("{ttl: %s, on_expiry: give_back}", r.TTL)
	}
	return fmt.Sprintf("{ttl: %s}", r.TTL)
}

// SpecError says which field of a Spec is wrong, by its name in the rules, and
// what would be right.
type SpecError struct {
	// Field is requests_per_unit, unit, unit_multiplier, burst, max_delay, window, timezone, week_starts,
	// month_starts, year_starts, extend, strategy, overdraft, precision, reserve, reserve.ttl, lease,
	// lease.share or lease.ttl.
	Field   string
	Message string
}

func (e *SpecError) Error() string { return e.Field + ": " + e.Message }

// Limit is a checked Spec with the values derived from it. It is immutable and
// safe for concurrent use.
type Limit struct {
	Spec
	row       *row            // of its strategy
	window    int64           // µs
	tolerance backends.Amount // the time of a burst, over cell.Den
	calendar  *calendar       // nil without Spec.Calendar
	tag       string          // names strategy and window in the cell's key, and a bucket's terms
	bucketed  bool            // each window of the clock has a cell of its own
	cell      backends.Limit  // the constants of its operations
	onDemand  backends.Limit  // cell, for operations where callers may hold hits on demand; see reserve
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

// Capacity is the number of hits that fit an empty cell: the burst if the strategy has
// one, else the requests of a window. A limit of 0 requests has none.
func (l *Limit) Capacity() int64 {
	if l.Burst > 0 && l.Requests > 0 {
		return int64(l.Burst)
	}
	return int64(l.Requests)
}

// grantFactor bounds one grant: this many times the requests of the limit.
const grantFactor = 10

// MaxGrant is how many hits one grant may have: 10 times the requests of the limit.
func (l *Limit) MaxGrant() int64 { return grantFactor * int64(l.Requests) }

// MaxRemaining is how many hits may remain after a grant: 11 times the requests of the
// limit.
func (l *Limit) MaxRemaining() int64 { return (grantFactor + 1) * int64(l.Requests) }

// FullOverdraft is a Spec.Overdraft of fullDebt times the capacity.
const FullOverdraft = math.MaxUint64

const fullDebt = 1000

// fullDebt is the debt in hits of a full overdraft. On a meter it is paid within maxFill.
func (l *Limit) fullDebt() int64 {
	return int64(min(float64(fullDebt*l.Capacity()), float64(maxFill.Microseconds())/float64(l.window)*float64(l.Requests)))
}

// MaxDebt is the most hits that may be used beyond the limit; 0 without an overdraft.
func (l *Limit) MaxDebt() int64 {
	switch {
	case !l.overdraws():
		return 0
	case l.Overdraft == FullOverdraft:
		return l.fullDebt()
	}
	return int64(l.Overdraft)
}

// tooSlow reports whether so many hits, of a burst or a debt, take more than maxFill.
func (l *Limit) tooSlow(hits int64) bool {
	return float64(hits)*float64(l.window) > float64(maxFill.Microseconds())*float64(l.Requests)
}

// overdraws reports whether the limit has an overdraft. One of 0 requests denies every hit and
// has none.
func (l *Limit) overdraws() bool { return l.Overdraft > 0 && l.Requests > 0 }

// intervals is the time that n hits take at the rate.
func (l *Limit) intervals(n int64) backends.Amount {
	whole, frac := mulDiv(n, l.window, l.cell.Den)
	return backends.Amount{Whole: whole, Frac: frac}
}

// micros turns µs into a Duration, from 0 to maxFill.
func micros(us int64) time.Duration {
	return time.Duration(min(max(us, 0), backends.MaxWait)) * time.Microsecond
}

// mulDiv is a × b / c, rounded down, and the remainder. The quotient must fit
// 63 bits, else it panics.
func mulDiv(a, b, c int64) (quo, rem int64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, r := bits.Div64(hi, lo, uint64(c))
	return int64(q), int64(r)
}
