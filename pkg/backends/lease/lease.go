// Package lease decides hits on hot keys from memory, without a round trip.
//
// A process that sees a key often charges the store for several hits in one
// operation and takes the next hits from that charge, its lease. A fetch
// charges hits ahead; unused hits are given back when they were held for one
// ttl. Since every hit that passes was charged before, leases never admit more
// than the store has charged. ADR 9 has the algorithm, its bounds for each
// strategy, and the reasons.
//
// The store acts on operations with Op.Lease, as follows; all other operations
// pass through unchanged.
//
//   - An operation that the held hits cover is decided from memory; so is a
//     check (0 hits) while hits are held. Reply.Leased is true.
//   - Any other operation goes to the store with its whole cost.
//   - A refund goes into the lease as far as it has room, else to the store.
//   - Groups, all-or-nothing batches of several operations, and operations with
//     Times above 1 go to the store.
//   - A reset or a grant goes to the store, and ends the lease of its cell when the
//     store has answered.
//
// Replies have the cell's value as the store last reported it, less the hits
// that this process holds.
//
// # Resets and grants
//
// A reset forgets the charges of all hits that are leased. So this process drops the
// hits that it holds or is fetching, and does not give them back. Other processes do
// not know of the reset: they use up or give back their hits, and the hits that they
// give back lower the new cell, though never below 0. So after a reset at most the
// hits that they held may pass in addition: one share for each process.
//
// A grant forgets no charge. This process gives back the hits that it holds, and a
// refund of a lease restores the credit of a cell that still has credit ([backends.Op],
// Undo). A cell that is known to have credit is not leased: its hits go to the store
// until the credit is used up. A process that does not know of the grant learns of it
// with its next operation on the cell; a fetch that it makes before then may take
// credit, which is lost as far as its hits are not used (of a meter: all of it).
//
// # Background work
//
// Apply never waits for fetches and never makes them: it hands them to
// Options.Go. [Store.Sweep] ends leases and hands over the work of giving back.
// Without Options.Go the store runs both itself, in goroutines. A simulation on
// one goroutine sets Options.Go to a function that keeps the work, calls Sweep
// when its clock has moved on, and calls the kept work at a moment that it
// chooses. Sweep and the work take the time from Now of the store below, and
// everything else from Op.Now; nothing is random but the order of keys in a
// batch, which Sweep sorts.
package lease

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"example.org/rls/pkg/backends"
)

const (
	// hot is how many operations on a key within one ttl make it a hot key.
	hot = 8
	// maxKeys bounds the hot keys; further keys are not leased.
	maxKeys = 16_384
	// sweepEvery is the time between two sweeps.
	sweepEvery = 25 * time.Millisecond
)

// Options configures a Store.
type Options struct {
	// Background is the store for background calls: next without the bound that
	// decorators set to the wait of a request. Hits are lost if a fetch is given up
	// and the store charges it. nil is next itself.
	Background backends.Store
	// Timeout bounds each background call, > 0.
	Timeout time.Duration
	// Go runs background work. nil starts a goroutine for it, and a goroutine
	// that sweeps. Otherwise the caller also calls Sweep, at least once in a ttl.
	Go func(work func())
}

// Store is another store whose hot keys are leased.
type Store struct {
	backends.Store
	opts   Options
	shards [64]shard
	keys   atomic.Int64 // hot keys in all shards
	closed atomic.Bool
	queue  queue
	worker func() // s.work, made once
	count  counters
	calls  context.Context // of background calls
	giveUp func()          // ends calls
	stop   chan struct{}   // closed to end the sweeper; nil without one
	swept  chan struct{}   // closed when the sweeper has ended
}

var _ backends.Store = (*Store)(nil)

// shard is some of the keys.
type shard struct {
	mu   sync.Mutex
	hot  map[string]*entry // by the stem of their key
	cold sketch
	used uint64   // hits taken from leases
	_    [24]byte // keeps neighbours off this shard's cache line
}

// New returns a store that leases hits of next. Close gives back all leases and
// closes next.
func New(next backends.Store, o Options) (*Store, error) {
	if o.Timeout <= 0 {
		return nil, fmt.Errorf("lease: a timeout of %v bounds nothing: must be above 0", o.Timeout)
	}
	s := &Store{Store: next, opts: o}
	s.calls, s.giveUp = context.WithCancel(context.Background())
	s.worker, s.queue.idle.L = s.work, &s.queue.mu
	for i := range s.shards {
		s.shards[i].hot = map[string]*entry{}
	}
	if o.Background == nil {
		s.opts.Background = next
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

// Apply implements backends.Store.
func (s *Store) Apply(ctx context.Context, b *backends.Batch) error {
	if !anyLease(b) || s.closed.Load() {
		return s.Store.Apply(ctx, b)
	}
	together, taken := b.Together(), 0
	for i := range b.Ops {
		b.Replies[i] = backends.Reply{}
		if op := &b.Ops[i]; !together && op.Lease != nil && op.Verb == backends.Charge && op.Times == 1 && s.take(op, &b.Replies[i]) {
			taken++
		}
	}
	var err error
	switch taken {
	case 0:
		err = s.Store.Apply(ctx, b)
	case len(b.Ops):
		b.Decide()
		return nil
	default:
		err = b.ApplyRest(ctx, s.Store, func(r *backends.Reply) bool { return r.Leased })
	}
	steered := false
	for i := range b.Ops {
		op := &b.Ops[i]
		steered = steered || op.Verb != backends.Charge
		if op.Lease != nil && op.Verb == backends.Charge && !b.Replies[i].Leased {
			s.learn(op, &b.Replies[i], together)
		}
	}
	if steered {
		s.forget(b)
	}
	return err
}

// anyLease reports whether b has an operation that matters to leases.
func anyLease(b *backends.Batch) bool {
	for i := range b.Ops {
		if b.Ops[i].Lease != nil || b.Ops[i].Verb != backends.Charge {
			return true
		}
	}
	return false
}

func (s *Store) shard(hash uint64) *shard { return &s.shards[hash>>32%uint64(len(s.shards))] }

// take decides op from the lease of its key, and reports whether it did. It
// notes the demand for the key and asks for a fetch when one is due.
func (s *Store) take(op *backends.Op, r *backends.Reply) bool {
	stem := op.Key[:op.Stem]
	hash := xxhash.Sum64String(stem)
	sh := s.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.hot[stem]
	if e == nil {
		if !op.Refund && sh.cold.hit(uint32(hash), op) {
			s.warm(sh, op)
		}
		return false
	}
	if !s.enter(e, op) {
		return false
	}
	hits := unitsIn(op.By, op.Den, e.terms.Unit)
	if hits > e.terms.Share { // no lease is as large
		return false
	}
	took := false
	if op.Refund {
		took = e.refund(op, hits)
	} else {
		e.demand.add(op.Now, hits, e.terms.TTL)
		if took = e.spend(op.Now, hits, &s.count); took {
			sh.used += uint64(hits)
		}
		if n := e.want(op); n > 0 {
			e.fetching = n
			s.enqueue(job{entry: e, shard: sh, cell: e.cells, op: e.fetch(op, n), hits: n, unit: e.terms.Unit})
		}
	}
	if took {
		*r = e.reply(op)
	}
	return took
}

// warm makes an entry for a key that has become hot.
func (s *Store) warm(sh *shard, op *backends.Op) {
	if s.keys.Load() >= maxKeys {
		return
	}
	s.keys.Add(1)
	e := &entry{stem: op.Key[:op.Stem]}
	e.begin(op)
	e.demand = demand{perTTL: hot * max(1, unitsIn(op.By, op.Den, op.Lease.Unit)), since: op.Now}
	sh.hot[e.stem] = e
}

// enter brings e to the cell of op, and reports whether e is about that cell. An
// operation on the cell of an earlier window is not.
func (s *Store) enter(e *entry, op *backends.Op) bool {
	switch {
	case e.terms != *op.Lease: // the limit was changed
		s.abandon(e, op.Now)
		e.begin(op)
	case e.op.Key != op.Key:
		if op.Until < e.op.Until {
			return false
		}
		prev := max(0, e.value.Whole)
		s.abandon(e, op.Now)
		e.begin(op)
		// A new window of the clock is empty but for the other processes' hits.
		e.known, e.prev = true, prev
	case op.Span == backends.FirstHit && e.over(op.Now):
		s.abandon(e, op.Now)
		e.begin(op)
		e.known = true
	}
	return true
}

// learn takes in the store's reply to an operation that no lease has decided,
// and makes the reply truthful.
func (s *Store) learn(op *backends.Op, r *backends.Reply, together bool) {
	stem := op.Key[:op.Stem]
	sh := s.shard(xxhash.Sum64String(stem))
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if e := sh.hot[stem]; e != nil && e.op.Key == op.Key && e.terms == *op.Lease {
		e.learn(op, r, together)
	}
}
