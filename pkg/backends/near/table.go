package near

import (
	"context"
	"log/slog"
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
	work    func(*shard, *entry) error // settles the balance of an entry
	calls   context.Context            // of background calls
	cancel  func()                     // ends calls
	running errgroup.Group             // the sweeper and what it settles, without Options.Go
	logged  atomic.Int64               // when the log got its last line, µs
	// Since that line: cells that were charged for owed hits, charged cells without room for
	// all of their owed hits, and entries that were evicted with owed hits.
	charged, full, lost atomic.Int64
}

const (
	// DefaultCells is the number of cells that are remembered by default.
	DefaultCells = 1 << 15
	shardCount   = 64
	// maxName bounds the name of a cell in bytes, so that long values of callers do not
	// fill the memory. A cell with a longer key is named by its hash.
	maxName = 96
	// candidates is how many entries an eviction chooses from.
	candidates = 8
)

// shard is some of the entries.
type shard struct {
	mu    sync.Mutex
	cells map[string]*entry // by the name of the stem of their key; the newest window
	busy  []*entry          // with a balance: a sweep looks at them
	debts int               // entries that were decided here, at the last sweep
	turn  int               // counts sweeps
	// refused: the store did not answer when it was last to take owed hits.
	refused bool
	// steered is when a cell of the shard was last reset or granted hits, in µs. A reply
	// to an operation from before then may tell of the cell as it was.
	steered int64
	leases  LeaseStats
	cache   CacheStats
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

// shortName is the name under which the cell of key is remembered.
func shortName(key string) string { return backends.ShortKey(key, maxName) }

// lock locks the shard of op's cell, and returns it with the name of the stem of op's key.
func (s *Store) lock(op *backends.Op) (string, *shard) {
	stem := op.Key
	if op.Stem > 0 {
		stem = stem[:op.Stem]
	}
	stem = shortName(stem)
	sh := &s.shards[xxhash.Sum64String(stem)%shardCount]
	sh.mu.Lock()
	return stem, sh
}

// find returns the entry of the cell of key among the entries of its stem, or nil.
func (sh *shard) find(stem, key string) *entry {
	e := sh.cells[stem]
	for key = shortName(key); e != nil && e.name != key; {
		e = e.older
	}
	return e
}

// entryOf returns the entry of op's cell, and makes an entry if there is none. A stem keeps
// the entries of its newest two windows.
func (s *Store) entryOf(sh *shard, stem string, op *backends.Op) *entry {
	e := sh.find(stem, op.Key)
	if e != nil {
		return e
	}
	e = &entry{name: stem, at: unheard}
	if op.Stem > 0 && op.Stem < len(op.Key) {
		e.name = shortName(op.Key)
	}
	if op.Span == backends.Fixed && op.Kind == backends.Counter {
		e.known.Until = op.Until
	}
	newest := sh.cells[stem]
	if newest == nil && len(sh.cells) >= max(1, s.opts.Cells/shardCount) {
		s.evict(sh, op.Now)
	}
	if newest != nil {
		sh.drop(newest.older)
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
		sh.cache.Evicted++
	case e.alone != nil:
		s.lost.Add(1)
	}
	sh.drop(e.older)
	sh.drop(e)
	delete(sh.cells, worst)
}

// forget removes the entry of the cell of key, if there is one.
func (sh *shard) forget(stem, key string) {
	e, newest := sh.find(stem, key), sh.cells[stem]
	sh.drop(e)
	switch {
	case e == nil:
	case e != newest:
		newest.older = nil
	case e.older != nil:
		sh.cells[stem] = e.older
	default:
		delete(sh.cells, stem)
	}
}

// forgetCells removes the entries of the cells of op.
func (sh *shard) forgetCells(stem string, op *backends.Op) {
	sh.forget(stem, op.Key)
	sh.forget(stem, op.Prev)
}

// key is the key of the entry's cell, if it is known: a long one is only while hits are
// held or owed.
func (e *entry) key() (key string, known bool) {
	switch {
	case len(e.name) <= maxName:
		return e.name, true
	case e.lease != nil:
		return e.lease.op.Key, true
	case e.alone != nil:
		return e.alone.op.Key, e.alone.op.Key != ""
	}
	return "", false
}

// drop ends the balance of an entry that is forgotten; e may be nil. Held hits stay charged.
func (sh *shard) drop(e *entry) {
	if e == nil {
		return
	}
	if l := e.lease; l != nil {
		sh.leases.Lost += uint64(l.held + l.surplus)
	}
	e.lease, e.alone = nil, nil
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
	if age := op.Now - e.since; age < 0 || age >= op.Lease.TTL {
		e.since, e.seen = op.Now, 0
	}
	if e.seen++; e.seen >= hot && !op.Refund && len(op.Key) <= maxKey {
		sh.lease(e, op, demand{last: hot * max(1, op.By.Units(op.Unit, op.Den)), since: op.Now})
	}
}

func (sh *shard) lease(e *entry, op *backends.Op, d demand) {
	e.lease = &lease{terms: *op.Lease, op: *op, demand: d}
	sh.watch(e)
}

// inherit leases the cell of a new window of the clock if the cell of the window before is
// leased. The new cell is empty but for the hits of others.
func (sh *shard) inherit(e *entry, op *backends.Op) {
	if e.older == nil || e.older.lease == nil || e.older.lease.terms != *op.Lease {
		return
	}
	before := e.older.lease
	sh.lease(e, op, before.demand)
	e.at, e.prev, e.lease.trip = op.Now, max(0, e.older.known.Value.Whole), before.trip
	before.yield(op.Now)
	before.demand = demand{}
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

// report takes in the cell as the reply to op reports it, unless the reply is late, and
// reports whether it did.
func (s *Store) report(sh *shard, e *entry, op *backends.Op, r *backends.Reply) bool {
	if e.late(r, sh.steered) {
		return false
	}
	s.heard(e, op, r)
	return true
}

// heard takes in the cell as the reply to op reports it, beside the hits that are owed.
func (s *Store) heard(e *entry, op *backends.Op, r *backends.Reply) {
	owed := backends.Amount{}
	if e.alone != nil {
		owed = e.alone.owed(op)
	}
	e.known, e.prev, e.at = backends.CellOf(op, r), r.Prev, r.Now
	if e.alone != nil {
		s.rebase(e, op.Now, owed)
	}
}

// rebase starts the copies anew from the cell as the store reported it at now, if an
// amount is still owed. Otherwise the store decides alone.
func (s *Store) rebase(e *entry, now int64, owed backends.Amount) {
	op := e.alone.op.At(now)
	if e.alone = nil; owed != (backends.Amount{}) {
		e.alone = newAlone(&op, e.known, owed, s.replicas())
	}
}

// replicas is the number of processes that divide a limit.
func (s *Store) replicas() int64 { return int64(s.opts.Replicas()) }

// giveUp has hits given back that the store has charged and that nobody may use.
func (s *Store) giveUp(sh *shard, e *entry, op *backends.Op, hits int64) {
	if len(op.Key) > maxKey {
		sh.leases.Lost += uint64(hits)
		return
	}
	if e.lease == nil {
		e.lease = &lease{op: *op, terms: backends.Lease{TTL: retryAfter}}
		sh.watch(e)
	}
	e.lease.surplus += hits
	s.enqueue(sh, e)
}

// undo has a reservation given back with its record. If the store does not answer, its hits stay
// charged.
func (s *Store) undo(sh *shard, back backends.Op) {
	back.Group, back.Role, back.IfUndecided = 0, backends.Firm, backends.Open
	s.opts.Go(func() error {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		s.call(sh, back)
		return nil
	})
}

// enqueue has an entry settled in the background, each entry once at a time. If Options.Go
// does not take the work, the next sweep tries again. The lock of the shard is held.
func (s *Store) enqueue(sh *shard, e *entry) {
	if !e.queued && !s.closed.Load() {
		e.queued = s.opts.Go(func() error { return s.work(sh, e) })
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
	oldest, now := int64(never), s.Now()
	s.each(func(sh *shard) {
		n := &sh.cache
		sum.Hits += n.Hits
		sum.Misses += n.Misses
		sum.Evicted += n.Evicted
		sum.Expired += n.Expired
		sum.Overwritten += n.Overwritten
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
