package memcached

import (
	"encoding/binary"
	"errors"
	"math"
	"strconv"
	"strings"

	"example.org/rls/pkg/backends"
)

// form says how a cell is written.
//
//	number  "12"                a counter of a fixed window; incr reads it too
//	ending  "12 1700000000000"  a counter and when it ends
//	meter   "1700000000000 3"   a point in time and its fraction
//	log     binary              see encodeLog
type form uint8

const (
	number form = iota
	ending
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
	}
	return ending
}

// record is a cell as it was read and as the steps on it left it.
type record struct {
	form    form
	cell    backends.Cell
	log     backends.Log
	changed bool  // it has to be written
	left    int64 // µs that the cell has to be kept
}

var errNonsense = errors.New("the cell holds data of another format")

// decode reads the cell of op; text is nil when there is none.
func decode(op *backends.Op, text []byte) (*record, error) {
	r := &record{form: formOf(op)}
	if text == nil {
		return r, nil
	}
	var err error
	if r.form == list {
		r.log, err = decodeLog(text)
	} else {
		r.cell, err = decodeCell(r.form, string(text), op)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

func decodeCell(f form, text string, op *backends.Op) (backends.Cell, error) {
	// decr leaves spaces at the end of a number that became shorter.
	first, second, two := strings.Cut(strings.TrimRight(text, " "), " ")
	a, err := strconv.ParseUint(first, 10, 64)
	if err != nil || two == (f == number) {
		return backends.Cell{}, errNonsense
	}
	var b int64
	if two {
		if b, err = strconv.ParseInt(second, 10, 64); err != nil || b < 0 {
			return backends.Cell{}, errNonsense
		}
	}
	switch f {
	case number: // may be above MaxValue for a moment, see saturate
		return counter(min(a, uint64(backends.MaxValue)), op.Until), nil
	case ending:
		return counter(min(a, uint64(backends.MaxValue)), b), nil
	}
	c := backends.Cell{Value: backends.Amount{Whole: int64(min(a, math.MaxInt64)), Frac: b}}
	c.Until = c.Value.Whole
	if b > 0 && c.Until < math.MaxInt64 {
		c.Until++
	}
	return c, nil
}

func counter(n uint64, until int64) backends.Cell {
	return backends.Cell{Value: backends.Amount{Whole: int64(n)}, Until: until}
}

// count is the counter's value at now.
func (r *record) count(now int64) int64 {
	if now >= r.cell.Until {
		return 0
	}
	return r.cell.Value.Whole
}

// step applies op.
func (r *record) step(op *backends.Op, prev int64) backends.Reply {
	var reply backends.Reply
	if r.form == list {
		n := len(r.log)
		lowered := n > 0 && r.log[n-1].At > op.Now
		r.log, reply = r.log.Step(op)
		charged := reply.Admitted > 0 && op.By.Whole > 0 && (n > 0 || !op.Refund)
		r.changed = r.changed || charged || lowered
		r.left = max(r.left, reply.Until-op.Now)
		return reply
	}
	before := r.cell
	r.cell, reply = r.cell.Step(op, prev)
	charged := (reply.Admitted > 0 || op.ChargeDenied) && op.By != (backends.Amount{})
	lowered := r.cell.Until < before.Until && op.Now < r.cell.Until
	if r.form == meter {
		lowered = r.cell.Value.Less(before.Value)
	}
	r.changed = r.changed || (charged || lowered) && r.cell != before
	r.left = max(r.left, r.cell.Until-op.Now)
	return reply
}

// encode is the cell's text.
func (r *record) encode() []byte {
	if r.form == list {
		return encodeLog(r.log)
	}
	b := strconv.AppendInt(nil, r.cell.Value.Whole, 10)
	switch r.form {
	case ending:
		b = strconv.AppendInt(append(b, ' '), r.cell.Until, 10)
	case meter:
		b = strconv.AppendInt(append(b, ' '), r.cell.Value.Frac, 10)
	}
	return b
}

// encodeLog packs a log: for each charge, oldest first, its distance in µs
// from the charge before (of the first, from the epoch) and its cost, as
// varints. A charge takes 2 to 16 bytes, so 10,000 charges stay far below
// memcached's 1 MB.
func encodeLog(l backends.Log) []byte {
	b := make([]byte, 0, 10+6*len(l))
	var at int64
	for _, e := range l {
		b = binary.AppendUvarint(b, uint64(e.At-at))
		b = binary.AppendUvarint(b, uint64(e.Cost))
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
		cost, m := binary.Uvarint(b[n:])
		if m <= 0 || cost == 0 || cost > uint64(backends.MaxValue) {
			return nil, errNonsense
		}
		at += int64(distance)
		l = append(l, backends.Entry{At: at, Cost: int64(cost)})
		b = b[n+m:]
	}
	return l, nil
}
