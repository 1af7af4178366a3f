// Package near is a near cache: what this process remembers of cells that other
// processes share, and the only such memory. Its Store decides operations from that
// memory where it can, and asks the store below for the others.
//
// Each entry of the memory is a cell as the store last reported it, and the balance of
// this process with the store:
//
//   - No room: a counter or a meter that has no room for an operation has none until it
//     ends, so for up to a second after a denial the memory denies (Options.Deny).
//   - Hits held: a process that sees a key often charges the store for several hits in
//     one operation, its lease, and takes the next hits from it (Op.Lease). Unused hits
//     are given back after one ttl. Every hit that passes was charged before, so leases
//     never admit more than the store has charged.
//   - Hits owed: while the store leaves operations undecided, the process decides those
//     with IfUndecided Local on its own copies of the cells, as one of Options.Replicas.
//     It charges the hits that it admitted to the store when the store is back.
//
// ADR 9 has the algorithm of leases and its bounds, ADR 17 the reasons for one memory.
//
// # Operations
//
// An operation with a lease that the held hits cover is decided from memory, and so is a
// check (0 hits) while hits are held; Reply.Leased is true. A refund goes into the lease
// as far as it has room. Groups, all-or-nothing batches of several operations and
// operations with Times above 1 take nothing from leases. A group or batch that is
// certain to be refused, because a cell of it has no room, is denied from memory, too, if
// its other cells were reported a moment ago. Replies have a cell's value as the store
// last reported it, less the hits that this process holds.
//
// A denial from memory charges nothing: a fixed window that counts denied hits counts
// fewer of them. The store decides operations on sliding windows and logs, whose room
// grows as time passes, and on windows that each hit extends.
//
// An operation that this process decides alone (Reply.Replicas) counts in the decision
// of its group and batch as if the store had decided it: if they are refused then, the
// charges of the store are given back. A refund gives back hits that were admitted here;
// the rest of it is dropped.
//
// # Resets and grants
//
// They go to the store. A reset removes everything that the entry has: hits that were
// held or are being fetched are dropped and not given back, and hits that are owed are not
// charged. After a grant held hits go back at once, and a cell that is known to have
// credit is not leased. Other processes do not know of a reset: the hits that they give
// back lower the new cell, though never below 0, so at most one share of each process
// may pass in addition. A process that does not know of a grant may take credit with a
// fetch, which is lost as far as its hits are not used (of a meter: all of it).
//
// # Background work
//
// Apply never waits for background calls: it hands them to Options.Go. [Store.Sweep]
// ends leases, and hands over the work of giving back and of charging what is owed.
// Without Options.Go the store runs both itself, in goroutines. A simulation on one
// goroutine sets Options.Go to a function that keeps the work, calls Sweep when its
// clock has moved on, and calls the kept work at a moment that it chooses. Sweep and
// the work take the time from Now of the store below, and everything else from Op.Now.
package near

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"example.org/rls/pkg/backends"
)

// Options configures a Store.
type Options struct {
	// Background is the store for background calls: next without the bound that
	// decorators set to the wait of a request. Hits are lost if a fetch is given up
	// and the store charges it. nil is next itself.
	Background backends.Store
	// Timeout bounds each background call, > 0.
	Timeout time.Duration
	// Cells bounds the remembered cells; 0 is DefaultCells. A cell takes about 200
	// bytes, and 400 more while it is leased or owes hits.
	Cells int
	// Deny lets the memory deny operations on cells without room.
	Deny bool
	// Replicas is the number of processes that divide a limit among them while the store
	// does not decide; nil stands for 1. It is called for each such decision.
	Replicas func() int
	// Go runs background work. nil starts a goroutine for it, and a goroutine
	// that sweeps. Otherwise the caller also calls Sweep, at least once in a ttl.
	Go func(work func())
	// Log gets a line when all hits that were owed are charged, at most one in a
	// minute; nil is none.
	Log *slog.Logger
}

// DefaultCells is the number of cells that are remembered by default.
const DefaultCells = 1 << 15

// maxReplicas bounds what Options.Replicas may say.
const maxReplicas = 10_000

// Store is another store with a near cache.
type Store struct {
	backends.Store
	opts   Options
	shards [shardCount]shard
	closed atomic.Bool
	queue  queue
	worker func() // s.work, made once
	pay    payments
	calls  context.Context // of background calls
	giveUp func()          // ends calls
	stop   chan struct{}   // closed to end the sweeper; nil without one
	swept  chan struct{}   // closed when the sweeper has ended
}

var _ backends.Store = (*Store)(nil)

// New returns a store with a near cache of next. Close settles all balances and closes
// next.
func New(next backends.Store, o Options) (*Store, error) {
	switch {
	case o.Timeout <= 0:
		return nil, fmt.Errorf("near: a timeout of %v bounds nothing: must be above 0", o.Timeout)
	case o.Cells < 0:
		return nil, fmt.Errorf("near: %d cells: must be 0 or more", o.Cells)
	case o.Cells == 0:
		o.Cells = DefaultCells
	}
	if o.Background == nil {
		o.Background = next
	}
	if o.Replicas == nil {
		o.Replicas = func() int { return 1 }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{Store: next, opts: o}
	s.calls, s.giveUp = context.WithCancel(context.Background())
	s.worker, s.queue.idle.L = s.work, &s.queue.mu
	for i := range s.shards {
		s.shards[i].cells = map[string]*entry{}
	}
	if o.Go == nil {
		s.opts.Go = func(work func()) { go work() }
		s.stop, s.swept = make(chan struct{}), make(chan struct{})
		go s.sweepOften()
	}
	return s, nil
}

// Unwrap is the decorated store; see backends.ScannerOf.
func (s *Store) Unwrap() backends.Store { return s.Store }

// way says how an operation of a batch is decided.
type way uint8

const (
	ask  way = iota // by the store
	fast            // by the store, which charges it also if it does not fit; see cheap
	done            // from memory
)

// Apply implements backends.Store.
func (s *Store) Apply(ctx context.Context, b *backends.Batch) error {
	if !s.concerns(b) || s.closed.Load() {
		return s.Store.Apply(ctx, b)
	}
	var room [16]way
	ways := room[:0]
	together, asked, known := b.Together(), 0, 0
	for i := range b.Ops {
		w := ask
		if !changedBefore(b, ways, i) {
			w = s.recall(&b.Ops[i], &b.Replies[i], together)
		}
		switch ways = append(ways, w); w {
		case ask:
			b.Replies[i] = backends.Reply{}
			asked++
		case done:
			known++
		}
	}
	var err error
	switch {
	case known == len(ways), together && known > 0 && s.refuses(b, ways):
		b.Decide()
		return nil
	case together, asked == len(ways):
		clear(ways)
		err = s.Store.Apply(ctx, b)
	default:
		err = s.askRest(ctx, b, ways)
	}
	denied := false
	for i := range b.Ops {
		denied = denied || b.Replies[i].Err == nil && b.Replies[i].Admitted < b.Ops[i].Times
	}
	for i := range ways {
		if ways[i] != done {
			s.learn(&b.Ops[i], &b.Replies[i], ways[i], together, denied)
		}
	}
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) && s.decideAlone(b) {
		err = b.Err()
	}
	return err
}

// concerns reports whether memory matters to an operation of b.
func (s *Store) concerns(b *backends.Batch) bool {
	for i := range b.Ops {
		op := &b.Ops[i]
		if s.opts.Deny || op.Lease != nil || op.Max == backends.NoRoom || op.IfUndecided == backends.Local || op.Verb != backends.Charge {
			return true
		}
	}
	return false
}

// changedBefore reports whether an operation of b before the one at i goes to the store
// with the same key: it may change the cell.
func changedBefore(b *backends.Batch, ways []way, i int) bool {
	for j := range i {
		if b.Ops[j].Key == b.Ops[i].Key && ways[j] != done {
			return true
		}
	}
	return false
}

// refuses reports whether the operations that memory has denied refuse all operations
// of a batch that are decided together, and memory can tell the cells of the others as
// they were at the same moment.
func (s *Store) refuses(b *backends.Batch, ways []way) bool {
	for i := range b.Ops {
		if ways[i] == ask {
			b.Replies[i].Admitted = b.Ops[i].Times
		}
	}
	b.Decide()
	for i := range b.Ops {
		if ways[i] == ask && b.Charges(i) > 0 {
			return false
		}
	}
	at := int64(unheard)
	for i := range b.Ops {
		for j := range i {
			if b.Ops[j].Key == b.Ops[i].Key { // the later one sees what the earlier one tries
				return false
			}
		}
		if b.Ops[i].Max != backends.NoRoom && !s.tells(&b.Ops[i], &b.Replies[i], ways[i], &at) {
			return false
		}
	}
	return true
}

// askRest has the store decide the operations that memory has not decided.
func (s *Store) askRest(ctx context.Context, b *backends.Batch, ways []way) error {
	var rest backends.Part
	for i := range b.Ops {
		if ways[i] != done {
			op := rest.Add(b, i)
			op.ChargeDenied = op.ChargeDenied || ways[i] == fast
		}
	}
	err := s.Store.Apply(ctx, &rest.Batch)
	rest.Answer(b)
	b.Decide()
	return err
}
