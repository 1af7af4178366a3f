package memcached

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
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
	changed bool  // it has to be written
	left    int64 // µs that the cell has to be kept
}

// clone is a copy of r. Steps change logs in place.
func (r *record) clone() *record {
	c := *r
	c.Log, c.Open = slices.Clone(r.Log), r.Open.Clone()
	return &c
}

var errNonsense = errors.New("the cell holds data of another format")

// decode reads the cell of op; item is nil if the cell does not exist. Flags are the length of the
// open reservations, which stand behind the cell.
func decode(op *backends.Op, item *memcache.Item) (r *record, err error) {
	r = &record{op: op}
	if item == nil {
		return r, nil
	}
	at := len(item.Value) - int(item.Flags)
	if at < 0 {
		return nil, errNonsense
	}
	if r.Open, err = decodeOpen(string(item.Value[at:])); err != nil {
		return nil, err
	}
	if op.Kind == backends.List {
		r.Log, err = decodeLog(item.Value[:at])
	} else {
		r.Cell, err = decodeCell(op, string(item.Value[:at]))
	}
	return r, err
}

// numbers are the numbers of c as they are written:
//
//	"12"                    a counter of a fixed window; incr reads it too
//	"12 1700000000000"      another counter, and when it ends
//	"12 28 1700000000000"   Carried: a counter, the number of its window, and when it ends
//	"12 28 1700000000000 7" Sliding: the same, and the count of the window before; behind it stands, after
//	                        a grant, the count before that
//	"1700000000000 3"       a meter and its fraction; behind credit stands when that ends
//
// Credit makes the first one negative. memcached's incr and decr refuse that, and open
// reservations behind the number.
func numbers(op *backends.Op, c *backends.Cell) (of [5]*int64, n int) {
	v := &c.Value
	switch {
	case op.Kind == backends.Meter && v.Whole < 0:
		return [5]*int64{&v.Whole, &v.Frac, &c.Until}, 3
	case op.Kind == backends.Meter:
		return [5]*int64{&v.Whole, &v.Frac}, 2
	case op.Span == backends.Fixed:
		return [5]*int64{&v.Whole}, 1
	case op.Span == backends.Carried:
		return [5]*int64{&v.Whole, &c.Window, &c.Until}, 3
	case op.Span == backends.Sliding && c.Base > 0:
		return [5]*int64{&v.Whole, &c.Window, &c.Until, &c.Prev, &c.Base}, 5
	case op.Span == backends.Sliding:
		return [5]*int64{&v.Whole, &c.Window, &c.Until, &c.Prev}, 4
	}
	return [5]*int64{&v.Whole, &c.Until}, 2
}

// isNumber reports whether memcached's incr can read the cell of op.
func isNumber(op *backends.Op) bool {
	return op.Kind == backends.Counter && op.Span == backends.Fixed
}

func decodeCell(op *backends.Op, text string) (c backends.Cell, err error) {
	if c.Until = op.Until; strings.HasPrefix(text, "-") {
		c.Value.Whole = -1
	}
	// decr leaves spaces at the end of a number that became shorter.
	fields := strings.Split(strings.TrimRight(text, " "), " ")
	if len(fields) == 5 {
		c.Base = 1
	}
	to, n := numbers(op, &c)
	if len(fields) != n {
		return c, errNonsense
	}
	for i, field := range fields {
		n, err := strconv.ParseInt(field, 10, 64)
		if errors.Is(err, strconv.ErrRange) && i == 0 && n > 0 { // as uint64, see saturate
			err = nil
		}
		if err != nil || i > 0 && n < 0 {
			return c, errNonsense
		}
		*to[i] = n
	}
	if op.Kind == backends.Counter {
		c.Value.Whole, c.Prev = min(c.Value.Whole, backends.MaxValue), min(c.Prev, backends.MaxValue)
		c.Base = min(c.Base, backends.MaxValue)
	}
	return c, nil
}

// step applies op, which has no Hold.
func (r *record) step(op *backends.Op) backends.Reply {
	before, n := r.Cell, len(r.Log)
	lowered := n > 0 && r.Log[n-1].At > op.Now
	r.changed = r.changed || op.Verb == backends.Reset && r.Open.Number != 0
	reply := r.State.Step(op)
	r.left = max(r.left, reply.Until-op.Now, r.Open.Until()-op.Now)
	if op.Kind == backends.List {
		charged := reply.Admitted > 0 && (n > 0 || !op.Verb.GivesBack()) || op.Verb.Operates()
		r.changed = r.changed || !op.ReadOnly() && (charged || lowered)
		return reply
	}
	charged := reply.Admitted > 0 || op.Verb == backends.Count || op.Overdraws() || op.Verb.Operates()
	switch {
	case op.Kind == backends.Meter:
		lowered = r.Value.Less(before.Value)
	case op.Span == backends.Carried, op.Span == backends.Sliding:
		lowered = r.Window != before.Window
	default:
		lowered = r.Until < before.Until && op.Now < r.Until
	}
	r.changed = r.changed || (charged || lowered) && r.Cell != before
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
	was := r.Open.Clone()
	on, after, reply = r.Open.StepHold(op, rec, r.step)
	if reply.HoldState() == backends.Settled && rec.Number == was.Number {
		r.keepNumber(was.Number, rec.Ends)
	}
	r.changed = r.changed || !r.Open.Equal(was)
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

// encode is the item of the cell at key, as decode reads it.
func (r *record) encode(key string) *memcache.Item {
	var b []byte
	if r.op.Kind == backends.List {
		b = encodeLog(r.Log)
	} else {
		of, n := numbers(r.op, &r.Cell)
		for i := range n {
			if i > 0 {
				b = append(b, ' ')
			}
			b = strconv.AppendInt(b, *of[i], 10)
		}
	}
	open := encodeOpen(r.Open)
	return &memcache.Item{Key: key, Value: append(b, open...), Flags: uint32(len(open))}
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

// encodeOpen is the text of open reservations: Number and Stays, and Ends, Mark and By for each of
// Back.
//
//	";4503599627370497:0;1700000600000:17:5:0"
func encodeOpen(l backends.Lapsing) []byte {
	if l.Number == 0 {
		return nil
	}
	b := fmt.Appendf(nil, ";%d:%d", l.Number, l.Stays)
	for _, rec := range l.Back {
		b = fmt.Appendf(b, ";%d:%d:%d:%d", rec.Ends, rec.Mark, rec.By.Whole, rec.By.Frac)
	}
	return b
}

func decodeOpen(text string) (l backends.Lapsing, err error) {
	if text != "" && text[0] != ';' {
		return l, errNonsense
	}
	for i, entry := range strings.Split(text, ";")[1:] {
		var n [4]int64
		fields := strings.Split(entry, ":")
		if len(fields) > len(n) {
			return l, errNonsense
		}
		for k, field := range fields {
			if n[k], err = strconv.ParseInt(field, 10, 64); err != nil || n[k] < 0 {
				return l, errNonsense
			}
		}
		if i == 0 {
			l.Number, l.Stays = n[0], n[1]
		} else {
			l.Back = append(l.Back, backends.Record{Ends: n[0], Mark: n[1], By: backends.Amount{Whole: n[2], Frac: n[3]}})
		}
	}
	return l, nil
}

// encodeLog packs a log: for each charge, oldest first, its distance in µs
// from the charge before (of the first, from the epoch) and its cost, as
// varints. A grant is a cost of 0 and the hits that were granted. A charge whose number
// is not its time has two 0 and the number before its cost. A charge takes 2 to 26 bytes,
// so 10,000 charges stay far below memcached's 1 MB.
func encodeLog(l backends.Log) []byte {
	b := make([]byte, 0, 10+6*len(l))
	var at int64
	for _, e := range l {
		b = binary.AppendUvarint(b, uint64(e.At-at))
		switch {
		case e.Hits < 0:
			b = append(b, 0)
		case e.Number != e.At:
			b = binary.AppendUvarint(append(b, 0, 0), uint64(e.Number))
		}
		b = binary.AppendUvarint(b, uint64(max(e.Hits, -e.Hits)))
		at = e.At
	}
	return b
}

func decodeLog(b []byte) (backends.Log, error) {
	l := make(backends.Log, 0, len(b)/2+1) // and room for one more
	var at int64
	for len(b) > 0 {
		distance, n := binary.Uvarint(b)
		if n <= 0 || distance > uint64(math.MaxInt64-at) {
			return nil, errNonsense
		}
		at += int64(distance)
		sign, number := int64(1), uint64(at)
		if b = b[n:]; len(b) > 0 && b[0] == 0 {
			sign, b = -1, b[1:]
		}
		if sign < 0 && len(b) > 0 && b[0] == 0 {
			if number, n = binary.Uvarint(b[1:]); n <= 0 || number > 2*uint64(backends.MaxValue) {
				return nil, errNonsense
			}
			sign, b = 1, b[1+n:]
		}
		cost, n := binary.Uvarint(b)
		if n <= 0 || cost == 0 || cost > uint64(backends.MaxValue) {
			return nil, errNonsense
		}
		l = append(l, backends.Cost{At: at, Hits: sign * int64(cost), Number: int64(number)})
		b = b[n:]
	}
	return l, nil
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
