package memcached

import (
	"bytes"
	"errors"
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
	last []dated // the records that the last operations on the cell have written, at most maxLast
}

// dated is a version of the record of a reservation. That of a cancelled one has only an end: its item stays
// until then, so that an `add` of an earlier version fails.
type dated struct {
	backends.Record
	key  string // of its item
	date int64  // of the version, in µs since the epoch: later than that of the version before
}

// maxLast bounds the records that a cell has room for. When there are so many, one request tells whether their
// items have been written, so every maxLast reservations take one more.
const maxLast = 4

var errNonsense = errors.New("the cell holds data of another format")

// decode reads the cell of op, as encode writes it; item is nil if the cell does not exist.
func decode(op *backends.Op, item *memcache.Item) (r *record, err error) {
	r = &record{op: op}
	switch {
	case item == nil:
	case len(item.Value) > 0 && item.Value[0] == form(op):
		from := bytes.NewReader(item.Value[1:])
		numbers := backends.Numbers{ByteReader: from}
		r.State = numbers.State()
		for from.Len() > 0 && numbers.Err == nil {
			key := make([]byte, min(numbers.Natural(), int64(from.Len())))
			_, _ = from.Read(key)
			d := nextDated(&numbers)
			if d.key = string(key); d.Ends+backends.Skew > op.Now {
				r.last = append(r.last, d)
			}
		}
		if numbers.Err != nil {
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

// until is when the cell and its last records have ended, in µs since the epoch; 0 if the cell has nothing to keep.
func (r *record) until() int64 {
	until := r.Ends()
	for i := range r.last {
		until = max(until, r.last[i].Ends)
	}
	return until
}

// encode is the item of the cell at key: the count of a fixed window in digits, if that has neither credit
// nor reservations, else the form of the cell, its State, and the last records behind their keys.
func (r *record) encode(key string) *memcache.Item {
	if isNumber(r.op) && r.Open.Number == 0 && r.Value.Whole >= 0 && len(r.last) == 0 {
		return &memcache.Item{Key: key, Value: strconv.AppendInt(nil, r.Value.Whole, 10)}
	}
	value := r.State.Append([]byte{form(r.op)})
	for i := range r.last {
		key := r.last[i].key
		value = r.last[i].append(append(backends.AppendNumbers(value, int64(len(key))), key...))
	}
	return &memcache.Item{Key: key, Value: value}
}

// append appends d without its key, as nextDated reads it.
func (d *dated) append(b []byte) []byte {
	var settled int64
	if d.Settled {
		settled = 1
	}
	return backends.AppendNumbers(b, d.date, d.By.Whole, d.By.Frac, d.Mark, d.Ends, d.At, d.Number, settled)
}

func nextDated(n *backends.Numbers) (d dated) {
	d.date = n.Natural()
	d.By = backends.Amount{Whole: n.Natural(), Frac: n.Natural()}
	d.Mark, d.Ends, d.At, d.Number = n.Natural(), n.Natural(), n.Natural(), n.Natural()
	d.Settled = n.Natural() > 0
	return d
}

// decodeDated reads the record at key from its item; a nil item is a record that was never written.
func decodeDated(key string, item *memcache.Item) (d dated, err error) {
	if item != nil {
		from := bytes.NewReader(item.Value)
		numbers := backends.Numbers{ByteReader: from}
		if d = nextDated(&numbers); numbers.Err != nil || from.Len() > 0 {
			return d, foreign(key, errNonsense)
		}
	}
	d.key = key
	return d, nil
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
