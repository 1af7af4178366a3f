package bounded

import (
	"encoding/json"
	"io"
	"sync"
)

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
