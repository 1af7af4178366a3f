package near

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

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

const (
	shardCount = 64
	// maxName bounds the name of a cell in bytes, so that long values of callers do not
	// fill the memory. A cell with a longer key is named by its hash.
	maxName = 96
	// candidates is how many entries an eviction chooses from, and checked how many
	// entries of a shard a sweep looks at to forget ended ones.
	candidates, checked = 8, 16
	// maxWorkers bounds the background calls that are under way.
	maxWorkers = 8
	// maxJobs bounds the cells of one background call, so that replicas do not overload
	// a store that has just come back.
	maxJobs = 64
)

// shard is some of the entries.
type shard struct {
	mu    sync.Mutex
	cells map[string]*entry // by the name of the stem of their key; the newest window
	busy  []*entry          // with a balance: a sweep looks at them
	hot   int               // entries that are leased
	cold  sketch
	// steered is when a cell of the shard was last reset or granted hits, in µs. A reply
	// to an operation from before then may tell of the cell as it was.
	steered int64
	leases  LeaseStats
	cache   CacheStats
}

// shortName is the name under which the cell of key is remembered.
func shortName(key string) string { return backends.ShortKey(key, maxName) }

// stemOf is the name of the stem of op's key, its hash and its shard.
func (s *Store) stemOf(op *backends.Op) (string, uint64, *shard) {
	stem := op.Key
	if op.Stem > 0 {
		stem = stem[:op.Stem]
	}
	stem = shortName(stem)
	hash := xxhash.Sum64String(stem)
	return stem, hash, &s.shards[hash>>32%shardCount]
}

// find returns the entry of the cell of key among the entries of its stem, or nil.
func (sh *shard) find(stem, key string) *entry {
	e := sh.cells[stem]
	for key = shortName(key); e != nil && e.name != key; {
		e = e.older
	}
	return e
}

// entryOf returns the entry of op's cell, and makes it if there is none.
func (s *Store) entryOf(sh *shard, stem string, op *backends.Op) *entry {
	if e := sh.find(stem, op.Key); e != nil {
		return e
	}
	return s.add(sh, stem, op)
}

// add makes an entry for op's cell. Of the windows of a stem it keeps the newest two.
func (s *Store) add(sh *shard, stem string, op *backends.Op) *entry {
	e := &entry{name: stem, at: unheard, spot: idle}
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
	switch {
	case least == rankFull:
		sh.cache.Evicted++
	case sh.cells[worst].alone != nil:
		s.pay.lost.Add(1)
	}
	sh.remove(worst)
}

// forgetEnded removes some of the entries that have ended.
func (sh *shard) forgetEnded(now int64) {
	n := 0
	for stem, e := range sh.cells {
		if e.rank(now) == rankEnded {
			sh.remove(stem)
		}
		if n++; n == checked {
			return
		}
	}
}

// remove removes the entries of a stem.
func (sh *shard) remove(stem string) {
	for e := sh.cells[stem]; e != nil; e = e.older {
		sh.drop(e)
	}
	delete(sh.cells, stem)
}

// drop ends the balance of an entry that is forgotten; e may be nil.
func (sh *shard) drop(e *entry) {
	if e == nil {
		return
	}
	e.life++
	sh.endLease(e)
	e.alone = nil
	sh.rest(e)
}

// work puts e among the entries that a sweep looks at.
func (sh *shard) work(e *entry) {
	if e.spot == idle {
		e.spot = len(sh.busy)
		sh.busy = append(sh.busy, e)
	}
}

// rest takes e from among the entries that a sweep looks at.
func (sh *shard) rest(e *entry) {
	if e.spot == idle {
		return
	}
	n := len(sh.busy) - 1
	last := sh.busy[n]
	sh.busy[e.spot], last.spot = last, e.spot
	sh.busy[n], e.spot = nil, idle
	sh.busy = sh.busy[:n]
}

// warm begins the lease of a hot key, unless too many keys are leased. e is the entry of
// op's cell, or nil; warm returns it, and makes it for a lease.
func (s *Store) warm(sh *shard, stem string, e *entry, op *backends.Op) *entry {
	if sh.hot >= maxHot {
		return e
	}
	if e == nil {
		e = s.add(sh, stem, op)
	}
	e.lease = &lease{terms: *op.Lease, op: *op}
	e.lease.demand = demand{perTTL: hot * max(1, op.By.Units(op.Unit, op.Den)), since: op.Now}
	sh.hot++
	sh.work(e)
	return e
}

// nextWindow returns an entry for op's cell, which has none, if the cell of the window
// before is leased. The new window of the clock is empty but for the hits of others.
// Otherwise it returns nil.
func (s *Store) nextWindow(sh *shard, stem string, op *backends.Op) *entry {
	before := sh.cells[stem]
	if before == nil || before.lease == nil || before.lease.terms != *op.Lease || op.Until < before.known.Until {
		return nil
	}
	e := s.warm(sh, stem, nil, op)
	if e != nil {
		old := before.lease
		e.at, e.prev = op.Now, max(0, before.known.Value.Whole)
		e.lease.demand, e.lease.trip = old.demand, old.trip
		old.yield(op.Now)
		old.demand = demand{}
	}
	return e
}

// endLease drops the hits that e holds, which stay charged in the store.
func (sh *shard) endLease(e *entry) {
	if e.lease == nil {
		return
	}
	sh.leases.Lost += uint64(e.lease.held() + e.lease.surplus)
	if e.lease.terms.TTL > 0 {
		sh.hot--
	}
	e.lease = nil
}

// drain ends held hits of a meter as soon as its bucket would be full without them, so
// that the hits of a lease and a refilled bucket cannot pass together.
func (sh *shard) drain(e *entry, now int64) {
	l := e.lease
	if l.op.Kind != backends.Meter || len(l.portions) == 0 || e.credit(&l.op, now) {
		return
	}
	if n := l.held() - e.ahead(now); n > 0 {
		sh.leases.Refilled += uint64(l.spend(n))
	}
}

// heard takes in the cell as the reply to op reports it, beside the hits that are owed.
func (s *Store) heard(e *entry, op *backends.Op, r *backends.Reply) {
	owed := backends.Amount{}
	if e.alone != nil {
		owed = e.alone.owed(op)
	}
	e.saw(op, r)
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
func (s *Store) replicas() int64 { return int64(min(max(s.opts.Replicas(), 1), maxReplicas)) }

// giveBack has hits given back that the store has charged and that nobody may use.
func (s *Store) giveBack(sh *shard, e *entry, op *backends.Op, hits int64) {
	if len(op.Key) > maxKey {
		sh.leases.Lost += uint64(hits)
		return
	}
	if e.lease == nil {
		e.lease = &lease{op: *op}
		sh.work(e)
	}
	e.lease.surplus += hits
	s.enqueue(sh, e)
}

// queue is the entries that wait for a worker, each of them once.
type queue struct {
	mu      sync.Mutex
	tasks   []task
	workers int       // handed to Options.Go and not ended
	active  int       // calls of work that have begun and not ended
	idle    sync.Cond // on mu: active is 0
}

// task is an entry whose balance a worker is to settle.
type task struct {
	*entry
	shard *shard
}

// payments is what is known of charges of owed hits.
type payments struct {
	refused atomic.Bool  // the store decides nothing; one call at a time tries it
	turn    atomic.Int64 // the shard at which the next such call begins
	told    atomic.Int64 // when the log got its last line, µs
	// Since that line: cells whose hits went to the store, those of them that were too
	// full to take all owed hits, and entries that were evicted with hits.
	cells, reduced, lost atomic.Int64
}

// enqueue hands an entry to a worker. The lock of its shard is held.
func (s *Store) enqueue(sh *shard, e *entry) {
	if e.queued {
		return
	}
	e.queued = true
	q := &s.queue
	q.mu.Lock()
	q.tasks = append(q.tasks, task{e, sh})
	start := q.workers < maxWorkers && q.workers*maxJobs < len(q.tasks)
	if start {
		q.workers++
	}
	q.mu.Unlock()
	if start {
		s.opts.Go(s.worker)
	}
}

// Leases returns the counts of leases.
func (s *Store) Leases() (sum LeaseStats) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		n := sh.leases
		n.Keys = uint64(sh.hot)
		for _, e := range sh.busy {
			if e.lease != nil {
				n.Held += uint64(e.lease.held())
			}
		}
		sh.mu.Unlock()
		sum = LeaseStats{
			sum.Leased + n.Leased, sum.Used + n.Used, sum.Returned + n.Returned, sum.Refilled + n.Refilled,
			sum.Lost + n.Lost, sum.Held + n.Held, sum.Keys + n.Keys,
		}
	}
	return sum
}

// Cache returns the counts of the memory of full cells.
func (s *Store) Cache() (sum CacheStats) {
	now := s.Now()
	oldest := now
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		n := sh.cache
		for _, e := range sh.cells {
			if e.full {
				n.Entries++
				oldest = min(oldest, e.at)
			}
		}
		sh.mu.Unlock()
		sum = CacheStats{
			sum.Hits + n.Hits, sum.Misses + n.Misses, sum.Entries + n.Entries, sum.Evicted + n.Evicted,
			sum.Expired + n.Expired, sum.Overwritten + n.Overwritten, 0,
		}
	}
	if sum.Entries > 0 {
		sum.MeanTime = uint64((oldest+now)/2) / 1_000_000
	}
	return sum
}
