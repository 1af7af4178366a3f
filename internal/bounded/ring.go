// Package bounded looks at sequences in bounded memory and time: it keeps the newest values of a
// sequence, and picks a sample of one.
package bounded

import "slices"

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
