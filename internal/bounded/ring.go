// Package bounded looks at sequences in bounded memory and time: it keeps the newest values of a
// sequence, and picks a sample of one.
package bounded

import (
	"encoding/json"
	"io"
	"slices"
	"sync"
)

// Ring keeps the newest values. It is not safe for concurrent use.
type Ring[T any] struct {
	max   int
	parts [][]T
	count int
}

// perPart is the number of values whose memory is taken at once. A ring grows without
// copying, so no caller waits long for Next.
const perPart = 256

// NewRing returns a Ring that keeps up to max values, at least 1. It takes memory as values come.
func NewRing[T any](max int) Ring[T] { return Ring[T]{max: max} }

// Next returns the place of a new value. Once the ring is full it is the place of the oldest
// value, which is still there: the caller overwrites it and may use its memory again.
func (r *Ring[T]) Next() *T {
	at := r.count % r.max
	if at == len(r.parts)*perPart {
		r.parts = append(r.parts, make([]T, min(perPart, r.max-at)))
	}
	r.count++
	return &r.parts[at/perPart][at%perPart]
}

// Count is the number of values that the ring was ever given.
func (r *Ring[T]) Count() int { return r.count }

// Len is the number of values kept.
func (r *Ring[T]) Len() int { return min(r.count, r.max) }

// At is the value that was given after i others. It must be one that is kept: i is at least
// Count less Len, and less than Count.
func (r *Ring[T]) At(i int) *T {
	at := i % r.max
	return &r.parts[at/perPart][at%perPart]
}

// Back is the value that was given i values before the newest, or zero if that one is not kept.
func (r *Ring[T]) Back(i int) (value T) {
	if i < r.Len() {
		value = *r.At(r.count - 1 - i)
	}
	return value
}

// Last returns the last n values that are kept, the newest first.
func (r *Ring[T]) Last(n int) []T {
	all := make([]T, 0, min(n, r.Len()))
	for i := range cap(all) {
		all = append(all, r.Back(i))
	}
	return all
}

// Precede puts older values, the newest first, before the values of the ring, as far as the ring
// has room.
func (r *Ring[T]) Precede(older []T) {
	all := append(r.Last(r.max), older...)
	*r = NewRing[T](r.max)
	for _, value := range slices.Backward(all[:min(len(all), r.max)]) {
		*r.Next() = value
	}
}

// Log is a [Ring] that is safe for concurrent use, and whose values outlive the process.
type Log[T any] struct {
	mu   sync.Mutex
	ring Ring[T]
}

// NewLog returns a Log that keeps up to max values, at least 1.
func NewLog[T any](max int) *Log[T] { return &Log[T]{ring: NewRing[T](max)} }

// Add keeps a value.
func (l *Log[T]) Add(value T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*l.ring.Next() = value
}

// Last returns the last n values that are kept, the newest first.
func (l *Log[T]) Last(n int) []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ring.Last(n)
}

// Changes counts the values that there were.
func (l *Log[T]) Changes() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return uint64(l.ring.Count())
}

// Precede is [Ring.Precede].
func (l *Log[T]) Precede(older []T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ring.Precede(older)
}

// Save writes the values, as Load reads them.
func (l *Log[T]) Save(w io.Writer) error { return json.NewEncoder(w).Encode(l.Last(l.ring.max)) }

// Load adds values of an earlier process.
func (l *Log[T]) Load(r io.Reader) error {
	var older []T
	err := json.NewDecoder(r).Decode(&older)
	if err == nil {
		l.Precede(older)
	}
	return err
}
