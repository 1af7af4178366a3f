// Package standin decides limits in this process while the store does not, and
// charges the hits that it admitted to the store once the store is back
// (`on_error: local`).
//
// It remembers each cell as the store last reported it. While the store is away
// each limit is decided on a copy of its cell by the steps that every store makes
// ([backends.Cell], [backends.Log]). A hit counts in the copy once for each
// replica, so that the replicas together admit what remained, rounded up for each
// of them. A cell that is not remembered counts as empty: each replica then
// admits requests_per_unit (or burst) ÷ replicas in a window, rounded up.
//
// The hits that were admitted here are charged to the store as far as they fit
// the limit and as far as they still count: not if their window has ended, and
// without the part of a meter that has drained. A charge that was on the way when
// the store went away may count twice. No charge is left out, except that of a
// cell that was evicted and that of a key above 1 KiB.
//
// The package has no clock and no goroutine of its own: time is Op.Now, or
// Options.Clock in [Standin.Step].
package standin

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
)

const (
	// DefaultMaxKeys is the number of cells that are remembered by default.
	DefaultMaxKeys = 1 << 15
	// every is the time between two attempts to charge the store.
	every = 100 * time.Millisecond
	// longestName is the length in bytes above which a key is remembered by its
	// hash, and longestKey the length above which its hits are not charged to
	// the store: long keys of callers must not fill the memory.
	longestName = 256
	longestKey  = 1024
	// longestLate is the time in µs by which replies overtake each other. A reply
	// that is older comes from a clock that was set back.
	longestLate = 1_000_000
)

// Options configures a Standin.
type Options struct {
	// Store is the store whose operations may be undecided.
	Store backends.Store
	// Replicas is the number of processes that divide a limit among them; nil
	// stands for 1. It is called for each decision.
	Replicas func() int
	// MaxKeys bounds the remembered cells; 0 is DefaultMaxKeys. A cell takes
	// about 200 bytes, and as much again once it was decided here. If there are
	// more, cells whose last hit was admitted are forgotten sooner than full
	// ones, and cells with hits that are not charged to the store last.
	MaxKeys int
	// Clock is the time in µs for Step; nil is Store.Now.
	Clock func() int64
	// Log gets a line when all hits were charged to the store, at most one in a
	// minute; nil is none.
	Log *slog.Logger
}

// Standin decides limits while the store does not. It is safe for concurrent use.
type Standin struct {
	store    backends.Store
	replicas func() int
	clock    func() int64
	log      *slog.Logger

	mu     sync.Mutex
	table  table
	charge sum
	told   int64 // when the log got its last line, µs
}

// New returns a Standin that knows no cells.
func New(o Options) (*Standin, error) {
	if o.Store == nil {
		return nil, errors.New("standin: Options.Store is missing")
	}
	if o.MaxKeys < 0 {
		return nil, errors.New("standin: Options.MaxKeys is negative")
	}
	if o.MaxKeys == 0 {
		o.MaxKeys = DefaultMaxKeys
	}
	if o.Replicas == nil {
		o.Replicas = func() int { return 1 }
	}
	if o.Clock == nil {
		o.Clock = o.Store.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Standin{
		store: o.Store, replicas: o.Replicas, clock: o.Clock, log: o.Log,
		table: table{max: o.MaxKeys, slots: map[string]uint32{}},
	}, nil
}

func name(op *backends.Op) string { return backends.ShortKey(op.Key, longestName) }

// Remember notes op's cell as the store reported it in r, after it decided op,
// which l planned. It keeps neither op nor r. A reset forgets the cell, and hits that
// were admitted here are then not charged to the store; after a grant they are.
func (s *Standin) Remember(l *algorithms.Limit, op *backends.Op, r *backends.Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch op.Verb {
	case backends.Reset:
		s.table.forget(name(op))
		s.table.forget(backends.ShortKey(op.Prev, longestName))
		return
	case backends.Grant:
		look := op.Look()
		op = &look
	}
	e := s.table.find(name(op))
	if e == nil {
		if r.Until <= r.Now || r.Value.Whole == 0 && r.Prev == 0 {
			return // as good as unknown
		}
		e = s.table.add(name(op), r.Now)
	}
	if late := e.at - r.Now; late > 0 && late < longestLate {
		return // a later operation was answered sooner
	}
	if a := e.alone; a != nil {
		s.rebase(e, l, op, r, a.uncharged(op, e.known))
		return
	}
	e.learn(op, r)
}

// rebase takes in the cell as the store reported it. left is the amount that
// was admitted here and that the store's cell does not have.
func (s *Standin) rebase(e *entry, l *algorithms.Limit, op *backends.Op, r *backends.Reply, left backends.Amount) {
	e.learn(op, r)
	e.alone = nil
	if left != (backends.Amount{}) {
		e.alone = newAlone(l, op, e.known, left, s.replicas())
		s.enqueue(e)
	}
}

// learn takes in the cell as the store reported it.
func (e *entry) learn(op *backends.Op, r *backends.Reply) {
	e.known = backends.Cell{Value: r.Value, Until: r.Until}
	if op.Kind == backends.Meter && r.Value.Whole < r.Now { // credit
		e.known.Value.Whole -= r.Now
	}
	e.prev, e.at, e.denied = r.Prev, r.Now, r.Admitted < op.Times
}

// Decide decides op, which l planned and the store left undecided. A refund gives
// back hits that were admitted here; the rest of it is dropped.
func (s *Standin) Decide(l *algorithms.Limit, op *backends.Op) algorithms.Decision {
	replicas := s.replicas()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.table.find(name(op))
	if e == nil {
		e = s.table.add(name(op), op.Now)
	}
	if e.alone == nil {
		e.alone = newAlone(l, op, e.known, backends.Amount{}, replicas)
	}
	e.alone.limit = l
	d, charged := e.alone.decide(op, e.known, s.previous(e, op), replicas)
	if charged {
		s.enqueue(e)
	}
	return d
}

// enqueue notes that e has hits for the store.
func (s *Standin) enqueue(e *entry) {
	if e.alone.key != "" {
		s.table.enqueue(e)
	}
}

// previous is the count of the previous window's cell of op, as far as it is
// known.
func (s *Standin) previous(e *entry, op *backends.Op) int64 {
	if op.Prev == "" {
		return 0
	}
	p := s.table.find(backends.ShortKey(op.Prev, longestName))
	switch {
	case p == nil:
		return e.prev
	case p.alone != nil:
		return max(e.prev, p.alone.share.Value.Whole)
	}
	return max(e.prev, p.known.Value.Whole)
}

// Run calls Step every 100 ms until ctx ends.
func (s *Standin) Run(ctx context.Context) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.Step(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}
