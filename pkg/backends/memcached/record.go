package memcached

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/rls/pkg/backends"
)

// form says how a cell is written.
//
//	number  "12"                   a counter of a fixed window; incr reads it too
//	ending  "12 1700000000000"     a counter and when it ends
//	carried "12 28 1700000000000"  a counter, the number of its window, and when it ends
//	sliding "12 28 1700000000000 7"  the same, and the count of the window before
//	meter   "1700000000000 3"      a point in time less Limit.Shift, and its fraction
//	log     binary                 see encodeLog
//
// Credit makes the first number negative, and a meter then has a third one: when the
// credit ends. Open reservations (backends.Lapsing) stand behind the numbers, and before a log:
//
//	";4503599627370497:0"          Number and Stays
//	";1700000600000:17:5:0"        Ends, Mark and By, for each of Back
//
// memcached's incr and decr refuse a negative number and open reservations.
type form uint8

const (
	number form = iota
	ending
	carried
	sliding
	meter
	list
)

func formOf(op *backends.Op) form {
	switch {
	case op.Kind == backends.List:
		return list
	case op.Kind == backends.Meter:
		return meter
	case op.Span == backends.Fixed:
		return number
	case op.Span == backends.Carried:
		return carried
	case op.Span == backends.Sliding:
		return sliding
	}
	return ending
}

// record is a cell as it was read and as the steps on it left it.
type record struct {
	form form
	backends.State
	changed bool  // it has to be written
	left    int64 // µs that the cell has to be kept
}

// clone is a copy of r, which may be nil. Steps change logs in place.
func (r *record) clone() *record {
	if r == nil {
		return nil
	}
	c := *r
	c.Log, c.Open = slices.Clone(r.Log), r.Open.Clone()
	return &c
}

var errNonsense = errors.New("the cell holds data of another format")

// decode reads the cell of op; text is nil if the cell does not exist.
func decode(op *backends.Op, text []byte) (*record, error) {
	r := &record{form: formOf(op)}
	if text == nil {
		return r, nil
	}
	value, open, err := cut(r.form, text)
	if err == nil && len(open) > 0 {
		r.Open, err = decodeOpen(string(open))
	}
	if err == nil && r.form == list {
		r.Log, err = decodeLog(value)
	} else if err == nil {
		r.Cell, err = decodeCell(r.form, string(value), op)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

func decodeCell(f form, text string, op *backends.Op) (backends.Cell, error) {
	// decr leaves spaces at the end of a number that became shorter.
	fields := strings.Split(strings.TrimRight(text, " "), " ")
	var n [4]int64
	if len(fields) > len(n) {
		return backends.Cell{}, errNonsense
	}
	for i, field := range fields {
		var err error
		n[i], err = strconv.ParseInt(field, 10, 64)
		if errors.Is(err, strconv.ErrRange) && i == 0 && n[0] > 0 { // as uint64, see saturate
			err = nil
		}
		if err != nil || i > 0 && n[i] < 0 {
			return backends.Cell{}, errNonsense
		}
	}
	credit := n[0] < 0
	switch {
	case f == number && len(fields) == 1: // may be above MaxValue for a moment, see saturate
		return counter(n[0], op.Until), nil
	case f == ending && len(fields) == 2:
		return counter(n[0], n[1]), nil
	case f == carried && len(fields) == 3, f == sliding && len(fields) == 4:
		c := counter(n[0], n[2])
		c.Window, c.Prev = n[1], min(n[3], backends.MaxValue)
		return c, nil
	case f == meter && !credit && len(fields) == 2, f == meter && credit && len(fields) == 3:
		c := backends.Cell{Value: backends.Amount{Whole: n[0], Frac: n[1]}, Until: n[2]}
		if !credit {
			c.Until = meterEnd(c.Value, op)
		}
		return c, nil
	}
	return backends.Cell{}, errNonsense
}

// meterEnd is when a meter that is stored as v ends.
func meterEnd(v backends.Amount, op *backends.Op) int64 {
	if op.Shift != (backends.Amount{}) {
		v = v.Add(op.Shift, op.Den)
	}
	if v.Whole == math.MaxInt64 {
		return v.Whole
	}
	return v.Ceil()
}

func counter(n, until int64) backends.Cell {
	return backends.Cell{Value: backends.Amount{Whole: min(n, backends.MaxValue)}, Until: until}
}

// step applies op, which has no Hold.
func (r *record) step(op *backends.Op) backends.Reply {
	before, n := r.Cell, len(r.Log)
	lowered := n > 0 && r.Log[n-1].At > op.Now
	r.changed = r.changed || op.Verb == backends.Reset && r.Open.Number != 0
	reply := r.State.Step(op)
	if r.form == list {
		charged := reply.Admitted > 0 && (n > 0 || !op.Verb.GivesBack()) || op.Verb.Operates()
		r.changed = r.changed || !op.ReadOnly() && (charged || lowered)
		r.left = max(r.left, reply.Until-op.Now, r.Open.Until()-op.Now)
		return reply
	}
	charged := reply.Admitted > 0 || op.Verb == backends.Count || op.Overdraws() || op.Verb.Operates()
	lowered = r.Until < before.Until && op.Now < r.Until
	switch r.form {
	case meter:
		lowered = r.Value.Less(before.Value)
	case carried, sliding:
		lowered = r.Window != before.Window
	}
	r.changed = r.changed || (charged || lowered) && r.Cell != before
	r.left = max(r.left, r.Until-op.Now, r.Open.Until()-op.Now)
	return reply
}

// stepHold applies op, which has a Hold, as backends.Lapsing.StepHold does. A reservation that it
// settles keeps its number in the cell: until its record is written, others see that it was open.
func (r *record) stepHold(op *backends.Op, rec backends.Record) (on backends.Op, after backends.Record, reply backends.Reply) {
	was := r.Open.Clone()
	on, after, reply = r.Open.StepHold(op, rec, r.step)
	if reply.HoldState() == backends.Settled && rec.Number == was.Number && r.Open.Number == 0 {
		r.Open = backends.Lapsing{Number: was.Number, Stays: rec.Ends}
	}
	r.changed = r.changed || !r.Open.Equal(was)
	r.left = max(r.left, r.Open.Until()-op.Now)
	return on, after, reply
}

// reopen has the hits of rec come back again, unless they were forgotten.
func (r *record) reopen(op *backends.Op, rec backends.Record) {
	if isOpen(rec) && rec.Number == r.Open.Number {
		r.Open.Add(op, rec)
	}
}

// empty reports whether there is no cell.
func (r *record) empty() bool {
	return len(r.Log) == 0 && r.Cell == (backends.Cell{}) && r.Open.Number == 0
}

// encode is the cell's text.
func (r *record) encode() []byte {
	open := encodeOpen(r.Open)
	if r.form == list {
		if len(open) > 0 {
			open = append(binary.AppendUvarint(append([]byte(nil), openMark...), uint64(len(open))), open...)
		}
		return append(open, encodeLog(r.Log)...)
	}
	b := strconv.AppendInt(nil, r.Value.Whole, 10)
	switch r.form {
	case ending:
		b = strconv.AppendInt(append(b, ' '), r.Until, 10)
	case carried, sliding:
		b = strconv.AppendInt(append(b, ' '), r.Window, 10)
		if b = strconv.AppendInt(append(b, ' '), r.Until, 10); r.form == sliding {
			b = strconv.AppendInt(append(b, ' '), r.Prev, 10)
		}
	case meter:
		b = strconv.AppendInt(append(b, ' '), r.Value.Frac, 10)
		if r.Value.Whole < 0 {
			b = strconv.AppendInt(append(b, ' '), r.Until, 10)
		}
	}
	return append(b, open...)
}

// openMark stands before the length of the open reservations of a list. No log begins so: its first
// cost would be 0.
const openMark = "\x00\x00\x00\x00\x00"

// cut takes the open reservations off a cell's text.
func cut(f form, text []byte) (value, open []byte, err error) {
	if f != list {
		if at := bytes.IndexByte(text, ';'); at >= 0 {
			return text[:at], text[at:], nil
		}
		return text, nil, nil
	}
	rest, found := bytes.CutPrefix(text, []byte(openMark))
	if !found {
		return text, nil, nil
	}
	length, n := binary.Uvarint(rest)
	if n <= 0 || length > uint64(len(rest)-n) {
		return nil, nil, errNonsense
	}
	end := n + int(length)
	return rest[end:], rest[n:end], nil
}

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
