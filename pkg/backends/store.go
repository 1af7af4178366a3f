package backends

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// ErrUnavailable marks every error of a store that could not decide in time: the
// store is stopped, overloaded or not reachable, or its answer has no meaning. It
// is then not known whether the store has charged the operation.
var ErrUnavailable = errors.New("store unavailable")

// ErrNotSent marks the errors of operations that were sent to no server, and so have
// charged nothing. It is beside ErrUnavailable.
var ErrNotSent = errors.New("not sent")

// NotSent is err as one that ErrNotSent marks. Its text stays as it is.
func NotSent(err error) error { return notSent{err} }

type notSent struct{ error }

func (e notSent) Unwrap() error { return e.error }

func (e notSent) Is(target error) bool { return target == ErrNotSent }

// ErrUnsupported marks the errors of operations and calls that a store can never do.
// Nothing is changed then.
var ErrUnsupported = errors.New("the store cannot do this")

// Store applies batches of operations.
//
// Implementations are safe for concurrent use. The operations of a batch apply
// in order; each operation is atomic, and so is a group and an AllOrNothing
// batch. If the cells of a group or of such a batch live on several servers, or their store
// changes each cell alone, the batch is charged in all of these places at once, unless a look at
// them before refuses it. Then the charges that do not stay are given back, and at last
// the refunds are made: no charge of the batch finds the room that they make. Before charges are
// given back, other callers, and later operations of the batch, may be refused, and what a
// settlement or a debt adds may be cut ([Account.Cut]); nobody is admitted beyond a limit.
// Given back is the amount alone: a window that the charge began goes on, and credit of a [Grant]
// that it used up stays so.
type Store interface {
	// Apply fills in b.Replies and b.Refused and leaves b.Ops as they are. It
	// returns nil if every operation was decided, else the first Reply.Err.
	// When ctx ends, Apply returns at once; a call on the wire goes on without
	// disturbing others, and charges the operations that it has: nobody gives them back. b is
	// not touched after Apply has returned.
	Apply(ctx context.Context, b *Batch) error
	// Now is the time on the clock that all processes which share the store
	// agree on, in microseconds since the epoch.
	Now() int64
	// Ping returns nil if the store can decide now, at least for some keys.
	Ping(ctx context.Context) error
	// Close releases connections and goroutines. Apply fails afterwards.
	Close() error
}

// Spread is a Store whose cells live on several servers, one of which may
// answer while another does not: a Redis Cluster, several memcached servers.
//
// combine keeps a key busy until its operation is decided. With ApplyEach it can
// free each key when the key's own server has answered, and need not wait for
// the slowest server of the batch.
type Spread interface {
	Store
	// ApplyEach is Apply. In addition it calls decided exactly once for each
	// operation of b, with a pointer into b.Ops: as soon as the server of that
	// operation has answered or failed, at the latest before ApplyEach returns.
	// It may call decided from other goroutines, and for several operations at
	// once. decided does not block and does not read b.Replies.
	ApplyEach(ctx context.Context, b *Batch, decided func(*Op)) error
}

// Scanner is a Store that can list its keys.
type Scanner interface {
	Store
	// Page looks at about n keys (> 0) behind a position, "" for the first page, and returns those
	// that begin with prefix, and the position behind them; next is "" behind the last key. No page
	// misses a key that is there from the first page to the last, and while keys are only added none
	// comes twice. Keys are as the store has them: a long key was shortened. Its error wraps ErrMoved
	// if the position is not one of these servers.
	Page(ctx context.Context, prefix, from string, n int) (keys []string, next string, err error)
}

// Scan calls each with the keys of s that begin with prefix, a page at a time, until all were listed, ctx
// ends or each returns an error, which Scan returns.
func Scan(ctx context.Context, s Scanner, prefix string, each func(keys []string) error) error {
	const look = 1000 // takes Redis less than a millisecond
	for from := ""; ; {
		keys, next, err := s.Page(ctx, prefix, from, look)
		if err == nil && len(keys) > 0 {
			err = each(keys)
		}
		if from = next; err != nil || from == "" {
			return err
		}
	}
}

// ErrMoved marks the error of a page behind a position that has no meaning any more: the cells are on
// other servers, or a server has started anew.
var ErrMoved = errors.New("the keys are on other servers than before")

// ScannerOf is the Scanner under the decorators of s, which have a method Unwrap. Its
// error wraps ErrUnsupported.
func ScannerOf(s Store) (Scanner, error) {
	if scanner, ok := under[Scanner](s); ok {
		return scanner, nil
	}
	return nil, fmt.Errorf("%w: it cannot scan its keys", ErrUnsupported)
}

// under is the first T among s and the stores under its decorators.
func under[T Store](s Store) (found T, ok bool) {
	for {
		if found, ok = s.(T); ok {
			return found, true
		}
		decorator, is := s.(interface{ Unwrap() Store })
		if !is {
			return found, false
		}
		s = decorator.Unwrap()
	}
}

// Memory is a Store that remembers cells which other processes share.
type Memory interface {
	Store
	// Forget drops what it remembers of the cell of op: it asks no server and changes no
	// cell, so hits that it holds stay charged, and hits that it owes are not charged.
	Forget(op *Op)
	// ForgetAmong calls among with the keys that it remembers and that begin with prefix,
	// and then is Forget for all operations that among returns. It drops what memory holds
	// no key of, too, as far as hits are neither held nor owed.
	ForgetAmong(prefix string, among func(keys []string) []Op)
}

// MemoryOf is the Memory among s and the stores under its decorators; ok is false if there
// is none.
func MemoryOf(s Store) (Memory, bool) { return under[Memory](s) }

// Notes is a Store that keeps texts beside its cells, which all processes share: under a name a hash of
// texts, with a version that each change replaces by one that was never there. A store that is away
// returns errors that wrap ErrUnavailable.
type Notes interface {
	Store
	// NotesVersion is the version of the hash, "" if there is none.
	NotesVersion(ctx context.Context, name string) (string, error)
	// Notes is the hash, of that version or later: with another version it may have both. It fails if the
	// hash has more fields or bytes than most.
	Notes(ctx context.Context, name string, most NotesBound) (version string, texts map[string]string, err error)
	// ChangeNotes makes a change, or none of it, and returns the versions before and after it. It returns
	// ErrNotesFull if the hash would have more fields than c.Most. The hash goes when it has no fields,
	// or when the latest c.Until of its changes has passed.
	ChangeNotes(ctx context.Context, name string, c NotesChange) (before, after string, err error)
}

// NotesBound bounds the fields and the bytes of a hash.
type NotesBound struct{ Fields, Bytes int }

// NotesChange sets a field of a hash, unless Set is "", and removes the others that have still the texts of
// Remove.
type NotesChange struct {
	Set, Text string
	Remove    map[string]string
	Most      int       // fields
	Until     time.Time // the hash is kept so long, at least
}

// ErrNotesFull is the error of a change after which a hash would have too many fields.
var ErrNotesFull = errors.New("there is no room for one more")

// NewVersion is a version of notes that was never there.
func NewVersion() string { return rand.Text() }
