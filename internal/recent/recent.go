// Package recent keeps the newest values of a sequence in bounded memory.
package recent

import "iter"

// Ring keeps the newest values. It is not safe for concurrent use.
type Ring[T any] struct {
	max   int
	slots []T
	count int // values ever
}

// New returns a Ring that keeps up to max values, at least 1. It takes memory as values come.
func New[T any](max int) Ring[T] { return Ring[T]{max: max} }

// Next returns the place of a new value. Once the ring is full it is the place of the oldest
// value, which is still there: the caller overwrites it and may use its memory again.
func (r *Ring[T]) Next() *T {
	at := r.count % r.max
	if r.count++; at == len(r.slots) {
		r.slots = append(r.slots, *new(T))
	}
	return &r.slots[at]
}

// Len is the number of values kept.
func (r *Ring[T]) Len() int { return len(r.slots) }

// Newest gives the values, the newest first.
func (r *Ring[T]) Newest() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for i := range r.slots {
			if !yield(&r.slots[(r.count-1-i)%r.max]) {
				return
			}
		}
	}
}
