package backends

import (
	"encoding/binary"
	"errors"
	"io"
)

// AppendNumbers appends numbers, each as a varint, to b.
func AppendNumbers(b []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		b = binary.AppendVarint(b, n)
	}
	return b
}

// Append appends s to b, as [Numbers.State] reads it. A cell takes 9 to some 40 bytes, a cost of its log 3
// to 26, and an entry of its open reservations 4 to 36.
func (s *State) Append(b []byte) []byte {
	b = AppendNumbers(b, s.Value.Whole, s.Value.Frac, s.Prev, s.Window, s.Base, s.Until)
	b = AppendNumbers(b, s.Open.Number, int64(len(s.Open.Held)), int64(len(s.Log)))
	for _, rec := range s.Open.Held {
		b = AppendNumbers(b, rec.Ends, rec.Mark, rec.By.Whole, rec.By.Frac)
	}
	var at int64
	for _, c := range s.Log {
		b = AppendNumbers(b, c.At-at, c.Hits, c.Number-c.At)
		at = c.At
	}
	return b
}

// Numbers reads numbers as AppendNumbers has written them.
type Numbers struct {
	io.ByteReader
	Err error // the first one; all numbers after it are 0
}

var errRange = errors.New("a number is out of range")

// Next is the next number.
func (r *Numbers) Next() (n int64) {
	if r.Err == nil {
		n, r.Err = binary.ReadVarint(r)
	}
	return n
}

// Natural is the next number, which is at least 0.
func (r *Numbers) Natural() int64 {
	n := r.Next()
	if n < 0 {
		n, r.Err = 0, errRange
	}
	return n
}

// State is the next State. Its amounts, times and counts are in range, and its log is in order.
func (r *Numbers) State() (s State) {
	s.Value = Amount{Whole: r.Next(), Frac: r.Natural()}
	s.Prev, s.Window, s.Base, s.Until = r.Natural(), r.Natural(), r.Natural(), r.Natural()
	s.Open.Number = r.Natural()
	held, costs := r.Natural(), r.Natural()
	for ; held > 0 && r.Err == nil; held-- {
		rec := Record{Ends: r.Natural(), Mark: r.Natural()}
		rec.By = Amount{Whole: r.Natural(), Frac: r.Natural()}
		s.Open.Held = append(s.Open.Held, rec)
	}
	var at int64
	for ; costs > 0 && r.Err == nil; costs-- {
		at += r.Natural()
		c := Cost{At: at, Hits: r.Next(), Number: at + r.Next()}
		if s.Log = append(s.Log, c); r.Err == nil && (c.At < 0 || c.Hits == 0) {
			r.Err = errRange
		}
	}
	return s
}
