package backends

import (
	"context"
	"fmt"
)

// Scanner is a Store that can list its keys.
type Scanner interface {
	Store
	// Scan calls each with the keys that begin with prefix, some at a time, until all
	// were listed, ctx ends or each returns an error, which Scan returns. A key that
	// is written or removed meanwhile may be left out, and a key may come twice. Keys
	// are as the store has them: a long key was shortened.
	Scan(ctx context.Context, prefix string, each func(keys []string) error) error
}

// ScannerOf is the Scanner under the decorators of s, which have a method Unwrap. Its
// error wraps ErrUnsupported.
func ScannerOf(s Store) (Scanner, error) {
	for {
		switch store := s.(type) {
		case Scanner:
			return store, nil
		case interface{ Unwrap() Store }:
			s = store.Unwrap()
		default:
			return nil, fmt.Errorf("%w: it cannot scan its keys", ErrUnsupported)
		}
	}
}
