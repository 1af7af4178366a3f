package near

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sync/errgroup"

	"example.org/rls/pkg/backends"
)

// Options configures a Store.
type Options struct {
	// Background is the store for background calls: next without the bound to a request's
	// wait, because hits of a fetch that is given up are lost. nil is next itself.
	Background backends.Store
	// Timeout bounds each background call, > 0.
	Timeout time.Duration
	// Cells bounds the remembered cells; 0 is DefaultCells. A cell takes about 200 bytes,
	// and 400 more while it is leased or owes hits.
	Cells int
	// Deny lets the memory deny operations on cells without room.
	Deny bool
	// Replicas is the number of processes, 1 to 10,000, that divide a limit among them
	// while the store does not decide; nil stands for 1. It is called for each such decision.
	Replicas func() int
	// Go runs background work, which returns nil, and reports whether it takes it. nil
	// starts goroutines for it, and one that sweeps. Otherwise the caller also calls Sweep,
	// at least once in a ttl, and may run the work when it chooses, as a simulation does.
	Go func(work func() error) bool
	// Log gets a line, at most one in a minute, when all owed hits are charged; nil is none.
	Log *slog.Logger
}

// Store is another store with a near cache.
type Store struct {
	backends.Store
	opts    Options
	shards  [shardCount]shard
	closed  atomic.Bool
	calls   context.Context // of background calls
	cancel  func()          // ends calls
	running errgroup.Group  // the sweeper and what it settles, without Options.Go
	logged  atomic.Int64    // when the log got its last line, µs
	// Since that line: cells that were charged for owed hits, charged cells without room for
	// all of their owed hits, and entries that were evicted with owed hits.
	charged, full, lost atomic.Int64
	// The counts of CacheStats.
	hits, misses, evicted, expired, overwritten atomic.Uint64
}

const (
	// DefaultCells is the number of cells that are remembered by default.
	DefaultCells = 1 << 15
	shardCount   = 64
	// maxName bounds the name of a cell in bytes, so that long values of callers do not
	// fill the memory. A cell with a longer key is named by its hash.
	maxName    = 96
	candidates = 8 // entries that an eviction chooses from
)

// shard is some of the entries.
type shard struct {
	mu      sync.Mutex
	cells   map[string]*entry // by the name of the stem of their key; the newest window
	busy    []*entry          // with a balance: a sweep looks at them
	refused bool              // the store did not answer when it was last to take owed hits
	// steered is when a cell of the shard was last reset or granted hits, in µs. A reply
	// to an operation from before then may tell of the cell as it was.
	steered int64
	leases  LeaseStats
}

// each calls do with every shard, whose lock is held meanwhile.
func (s *Store) each(do func(*shard)) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		do(sh)
		sh.mu.Unlock()
	}
}

// lock locks the shard of op's cell, and returns it with the name of the stem of op's key.
func (s *Store) lock(op *backends.Op) (string, *shard) {
	stem := op.Key
	if op.Stem > 0 {
		stem = stem[:op.Stem]
	}
	stem = backends.ShortKey(stem, maxName)
	sh := &s.shards[xxhash.Sum64String(stem)%shardCount]
	sh.mu.Lock()
	return stem, sh
}

// find returns the entry of op's cell and window among the entries of its stem, or nil.
func (sh *shard) find(stem string, op *backends.Op) *entry {
	e := sh.cells[stem]
	for key := backends.ShortKey(op.Key, maxName); e != nil && (e.name != key || !e.isOf(op)); {
		e = e.older
	}
	return e
}

// entryOf returns the entry of op's cell, and makes an entry if there is none. A stem keeps
// the entries of its newest two windows.
func (s *Store) entryOf(sh *shard, stem string, op *backends.Op) *entry {
	e := sh.find(stem, op)
	if e != nil {
		return e
	}
	e = &entry{name: stem}
	if op.Stem > 0 && op.Stem < len(op.Key) {
		e.name = backends.ShortKey(op.Key, maxName)
	}
	if (op.Span == backends.Fixed || op.Span == backends.Sliding) && op.Kind == backends.Counter {
		if e.known.Until = op.Until; op.Span == backends.Sliding {
			e.known.Window = op.Mark
		}
	}
	newest := sh.cells[stem]
	if newest == nil && len(sh.cells) >= max(1, s.opts.Cells/shardCount) {
		s.evict(sh, op.Now)
	}
	if newest != nil {
		sh.forget(newest.older)
		if newest.older = nil; op.Until < newest.known.Until {
			newest.older = e
			return e
		}
		e.older = newest
	}
	sh.cells[stem] = e
	return e
}

// evict removes one of some entries of a shard, that of the lowest rank.
func (s *Store) evict(sh *shard, now int64) {
	worst, least, n := "", rankBalance+1, 0
	for stem, e := range sh.cells {
		if r := e.rank(now); r < least {
			worst, least = stem, r
		}
		if n++; n == candidates || least == rankEnded {
			break
		}
	}
	e := sh.cells[worst]
	switch {
	case least == rankFull:
		s.evicted.Add(1)
	case e.local != nil:
		s.lost.Add(1)
	}
	sh.forget(e.older)
	sh.forget(e)
	delete(sh.cells, worst)
}

// forget forgets the cell of e, which may be nil. Hits that are held stay charged.
func (sh *shard) forget(e *entry) {
	if e == nil {
		return
	}
	if l := e.lease; l != nil {
		sh.leases.Lost += uint64(l.held + l.surplus)
	}
	*e = entry{name: e.name, known: backends.Cell{Window: e.known.Window}, older: e.older, busy: e.busy, queued: e.queued}
}

// key is the key of the entry's cell, or "" if it is not known: a long one is only while
// hits are held or owed.
func (e *entry) key() string {
	switch {
	case len(e.name) <= maxName:
		return e.name
	case e.lease != nil:
		return e.lease.op.Key
	case e.local != nil:
		return e.local.op.Key
	}
	return ""
}

// watch puts e among the entries that a sweep looks at.
func (sh *shard) watch(e *entry) {
	if !e.busy {
		e.busy = true
		sh.busy = append(sh.busy, e)
	}
}

// warm notes an operation on a key without a lease, and leases a key that has become hot.
func (sh *shard) warm(e *entry, op *backends.Op) {
	e.demand.add(op.Now, 1, op.Lease.TTL)
	if e.demand.count >= hot && !op.Verb.GivesBack() && len(op.Key) <= maxKey {
		e.demand.count *= max(1, op.By.Units(op.Unit, op.Den))
		sh.lease(e, op, *op.Lease)
	}
}

func (sh *shard) lease(e *entry, op *backends.Op, terms backends.Lease) {
	e.lease = &lease{terms: terms, op: *op}
	sh.watch(e)
}

// inherit leases the cell of a new window of the clock if the cell of the window before is
// leased. The new cell is empty but for the hits of others.
func (sh *shard) inherit(e *entry, op *backends.Op) {
	if e.older == nil || e.older.lease == nil || e.older.lease.terms != *op.Lease {
		return
	}
	before := e.older.lease
	sh.lease(e, op, before.terms)
	e.at, e.known.Prev, e.lease.trip = op.Now, max(0, e.older.known.Value.Whole), before.trip
	before.yield(op.Now)
	e.demand, e.older.demand = e.older.demand, demand{}
}

// drain ends held hits whose window is over. Held hits of a meter end as soon as the bucket
// would be full without them, so that held hits and a full bucket cannot pass together.
func (sh *shard) drain(e *entry, now int64) {
	l := e.lease
	switch {
	case l.held == 0:
	case l.op.Kind == backends.Counter && e.known.Until > 0 && now >= e.known.Until:
		sh.leases.Lost += uint64(l.held)
		l.held = 0
	case l.op.Kind == backends.Meter && l.held*(l.op.Unit.Whole+1) > e.known.Value.Whole-now && !e.credit(&l.op, now):
		n := max(0, l.held-e.ahead(now))
		sh.leases.Refilled += uint64(n)
		l.held -= n
	}
}

// update takes in the cell as the reply to op reports it, and reports whether it did: not if
// the reply is older than the last report, or than a reset or a grant. A reply that is older
// by more than Skew comes from a clock that was set back.
func (s *Store) update(sh *shard, e *entry, op *backends.Op, r *backends.Reply) bool {
	newest := max(e.at-1, sh.steered)
	if r.Now <= newest && r.Now > newest-backends.Skew {
		return false
	}
	if l := e.lease; l == nil || r.Now >= l.fetched || !e.raise(op.Kind, e.known.Reported(op, r)) {
		s.set(e, op, r)
	}
	return true
}

// set takes in the cell as the reply to op reports it, beside the hits that are owed.
func (s *Store) set(e *entry, op *backends.Op, r *backends.Reply) {
	owed := e.owes(op)
	e.known, e.at = e.known.Reported(op, r), r.Now
	s.rebase(e, op.Now, owed)
}

// rebase starts the copies anew from the cell as the store reported it at now, if an
// amount is still owed. Otherwise the store decides alone.
func (s *Store) rebase(e *entry, now int64, owed backends.Amount) {
	if owed == (backends.Amount{}) {
		e.local = nil
		return
	}
	op := e.local.op.At(now)
	*e.local = *newLocal(&op, e.known, owed, int64(s.opts.Replicas()))
}

// giveUp has hits given back that the store has charged and that nobody may use.
func (s *Store) giveUp(sh *shard, e *entry, op *backends.Op, hits int64) {
	if len(op.Key) > maxKey {
		sh.leases.Lost += uint64(hits)
		return
	}
	if e.lease == nil {
		sh.lease(e, op, backends.Lease{TTL: retryAfter})
	}
	e.lease.surplus += hits
	s.enqueue(sh, e)
}

// call has the store decide op in the background. The lock of the shard is held, but not
// during the call: afterwards the entry may have been forgotten.
func (s *Store) call(sh *shard, op backends.Op) backends.Reply {
	sh.mu.Unlock()
	defer sh.mu.Lock()
	b := backends.Batch{Ops: []backends.Op{op}, Replies: make([]backends.Reply, 1)}
	ctx, cancel := context.WithTimeout(s.calls, s.opts.Timeout)
	defer cancel()
	_ = s.opts.Background.Apply(ctx, &b) // the reply has the error
	return b.Replies[0]
}

// enqueue has an entry settled in the background, each entry once at a time. If Options.Go
// does not take the work, the next sweep tries again. The lock of the shard is held.
func (s *Store) enqueue(sh *shard, e *entry) {
	if !e.queued && !s.closed.Load() {
		e.queued = s.opts.Go(func() error { return s.settle(sh, e) })
	}
}

// LeaseStats has the counts of leases since New, in hits.
type LeaseStats struct {
	Leased   uint64 // charged ahead
	Used     uint64 // taken from leases by callers
	Returned uint64 // given back
	Refilled uint64 // of meters: ended unused, because the bucket has refilled
	Lost     uint64 // ended unused with their window or by an error
	Held     uint64 // in leases now
	Keys     uint64 // hot keys now
}

// CacheStats has the counts of the memory of full cells since New.
type CacheStats struct {
	Hits, Misses uint64 // operations that memory has denied, and operations that it has not
	Entries      uint64 // full cells in memory now
	Evicted      uint64 // full cells that were removed because memory was full
	Expired      uint64 // look-ups that found a cell which had ended
	Overwritten  uint64 // cells that were replaced by a newer state
	// MeanTime is the middle between the oldest of the full cells and now, in seconds since
	// the epoch; 0 without any.
	MeanTime uint64
}

// Leases returns the counts of leases.
func (s *Store) Leases() (sum LeaseStats) {
	s.each(func(sh *shard) {
		n := &sh.leases
		sum.Leased += n.Leased
		sum.Used += n.Used
		sum.Returned += n.Returned
		sum.Refilled += n.Refilled
		sum.Lost += n.Lost
		for _, e := range sh.busy {
			if e.lease != nil && e.lease.terms.Share > 0 {
				sum.Keys++
				sum.Held += uint64(e.lease.held)
			}
		}
	})
	return sum
}

// Cache returns the counts of the memory of full cells.
func (s *Store) Cache() (sum CacheStats) {
	sum.Hits, sum.Misses, sum.Evicted = s.hits.Load(), s.misses.Load(), s.evicted.Load()
	sum.Expired, sum.Overwritten = s.expired.Load(), s.overwritten.Load()
	oldest, now := int64(math.MaxInt64), s.Now()
	s.each(func(sh *shard) {
		for _, e := range sh.cells {
			if e.full {
				sum.Entries++
				oldest = min(oldest, e.at)
			}
		}
	})
	if sum.Entries > 0 {
		sum.MeanTime = uint64((oldest+now)/2) / 1_000_000
	}
	return sum
}
