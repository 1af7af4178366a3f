package memcached

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"example.org/rls/pkg/backends"
)

// record is a cell as it was read and as the steps on it left it.
type record struct {
	op *backends.Op // one on the cell, whose limit says how it is written
	backends.State
	left int64 // µs that the cell has to be kept
}

// clone is a copy of r. Steps change logs in place.
func (r *record) clone() *record {
	c := *r
	c.State = r.Clone()
	return &c
}

var errNonsense = errors.New("the cell holds data of another format")

// decode reads the cell of op, as encode writes it; item is nil if the cell does not exist.
func decode(op *backends.Op, item *memcache.Item) (r *record, err error) {
	r = &record{op: op}
	switch {
	case item == nil:
	case len(item.Value) > 0 && item.Value[0] == form(op):
		from := bytes.NewReader(item.Value[1:])
		numbers := backends.Numbers{ByteReader: from}
		if r.State = numbers.State(); numbers.Err != nil || from.Len() > 0 {
			return nil, errNonsense
		}
		if most := backends.MaxValue; op.Kind == backends.Counter {
			r.Value.Whole, r.Prev, r.Base = min(r.Value.Whole, most), min(r.Prev, most), min(r.Base, most)
		}
	case isNumber(op):
		n, err := strconv.ParseUint(strings.TrimRight(string(item.Value), spaces), 10, 64) // above MaxValue: see saturate
		if err != nil {
			return nil, errNonsense
		}
		r.Cell = backends.Cell{Value: backends.Amount{Whole: int64(min(n, uint64(backends.MaxValue)))}, Until: op.Until}
	default:
		return nil, errNonsense
	}
	return r, nil
}

// spaces are what decr leaves at the end of a number that became shorter.
const spaces = " "

// form is the first byte of a cell of op that incr and decr do not read: they refuse it.
func form(op *backends.Op) byte { return 0x80 | byte(op.Kind)<<4 | byte(op.Span) }

// isNumber reports whether memcached's incr can read the cell of op.
func isNumber(op *backends.Op) bool {
	return op.Kind == backends.Counter && op.Span == backends.Fixed
}

// step applies op, which has no Hold.
func (r *record) step(op *backends.Op) backends.Reply {
	reply := r.State.Step(op)
	r.left = max(r.left, reply.Until-op.Now, r.Open.Until()-op.Now)
	return reply
}

// apply applies op, which makes or settles no reservation.
func (r *record) apply(op *backends.Op) backends.Reply {
	if op.Hold == nil {
		return r.step(op)
	}
	_, _, reply := r.stepHold(op, backends.Record{})
	return reply
}

// stepHold applies op, which has a Hold, as backends.Lapsing.StepHold does. Where op settles the last
// reservation, the cell keeps its number: see keepNumber.
func (r *record) stepHold(op *backends.Op, rec backends.Record) (on backends.Op, after backends.Record, reply backends.Reply) {
	number := r.Open.Number
	on, after, reply = r.Open.StepHold(op, rec, r.step)
	if reply.HoldState() == backends.Settled && rec.Number == number {
		r.keepNumber(number, rec.Ends)
	}
	r.left = max(r.left, r.Open.Until()-op.Now)
	return on, after, reply
}

// takeBack undoes the charge of op, which came to on with that reply and left after.
func (r *record) takeBack(op, on *backends.Op, reply *backends.Reply, after backends.Record) {
	mark, back := on.OwnMark(), on.Inverse(reply.Until)
	if reply.Account != nil {
		back.By = back.By.Sub(reply.Account.Cut, back.Den)
	}
	if back.Hold = nil; back.Kind == backends.List {
		back.Mark = mark
	}
	if back.By != (backends.Amount{}) {
		r.step(&back)
	}
	number := r.Open.Number
	r.Open.Take(op, after)
	r.keepNumber(number, after.Ends)
}

// keepNumber keeps the number of reservations in the cell, until they end, when the last one is
// settled or taken back: until the record of one that is settled is written, others see that it was open.
func (r *record) keepNumber(number, ends int64) {
	if r.Open.Number == 0 {
		r.Open = backends.Lapsing{Number: number, Stays: ends}
	}
}

// empty reports whether there is no cell.
func (r *record) empty() bool {
	return len(r.Log) == 0 && r.Cell == (backends.Cell{}) && r.Open.Number == 0
}

// encode is the item of the cell at key: the count of a fixed window in digits, if that has neither credit
// nor open reservations, else the form of the cell and its State.
func (r *record) encode(key string) *memcache.Item {
	if isNumber(r.op) && r.Open.Number == 0 && r.Value.Whole >= 0 {
		return &memcache.Item{Key: key, Value: strconv.AppendInt(nil, r.Value.Whole, 10)}
	}
	return &memcache.Item{Key: key, Value: r.State.Append([]byte{form(r.op)})}
}

// encodeReservation is the text of the item beside a cell that has the record of a reservation:
//
//	"5 0 1700000000000 1700000600000 false 4503599627370497 0"
func encodeReservation(rec backends.Record) []byte {
	return fmt.Append(nil, rec.By.Whole, rec.By.Frac, rec.Mark, rec.Ends, rec.Settled, rec.Number, rec.At)
}

// decodeReservation reads a record; item is nil if there is none.
func decodeReservation(item *memcache.Item) (rec backends.Record, err error) {
	if item == nil {
		return rec, nil
	}
	n, _ := fmt.Sscan(string(item.Value), &rec.By.Whole, &rec.By.Frac, &rec.Mark, &rec.Ends, &rec.Settled, &rec.Number, &rec.At)
	if n < 7 {
		return rec, errNonsense
	}
	return rec, nil
}

const maxKeyLen = 250 // memcached's KEY_MAX_LENGTH

// StoredKey is the name under which memcached stores the cell key: key itself
// where the text protocol can carry it (1 to 250 bytes, no spaces, control
// characters or DEL), else a backends.TextKey.
func StoredKey(key string) string {
	if isLegal(key) && !backends.IsTextKey(key) {
		return key
	}
	return backends.TextKey(key)
}

func isLegal(key string) bool {
	forbidden := func(c rune) bool { return c <= ' ' || c == 0x7f }
	return key != "" && len(key) <= maxKeyLen && !strings.ContainsFunc(key, forbidden)
}

const (
	// maxRelative is the longest exptime in seconds, 30 days, that memcached
	// counts from now (REALTIME_MAXDELTA). A longer one is a Unix time, and an
	// item with a Unix time in the past is dropped at once.
	maxRelative = 30 * 24 * 60 * 60
	// tick is added because memcached's clock moves in whole seconds: an item
	// with an expiry of n lives between n-1 and n.
	tick = 1
	// gone is the exptime that removes an item.
	gone = -1
)

// expiration is the exptime with which memcached keeps an item for at least left
// µs from realNow, the time on memcached's clock. It is never 0, which would mean
// for ever. The protocol's Unix times end in January 2038; an item that would
// end later is kept until then.
func expiration(left int64, jitter time.Duration, realNow time.Time) int32 {
	left = min(max(left, 1), 1<<53)
	if jitter > 0 {
		left += rand.Int64N(jitter.Microseconds() + 1)
	}
	seconds := (left+999_999)/1_000_000 + tick
	if seconds <= maxRelative {
		return int32(seconds)
	}
	if at := realNow.Unix() + seconds; at <= math.MaxInt32 {
		return int32(at)
	}
	if realNow.Unix()+maxRelative < math.MaxInt32 {
		return math.MaxInt32
	}
	return maxRelative
}
