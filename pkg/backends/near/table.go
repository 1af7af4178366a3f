package near

import (
	"sync"

	"github.com/cespare/xxhash/v2"

	"example.org/rls/pkg/backends"
)

const (
	shardCount = 64
	// maxName bounds the name of a cell in bytes, so that long values of callers do not
	// fill the memory. A cell with a longer key is named by its hash.
	maxName = 96
	// maxKey is the length in bytes above which a cell is not leased, and hits that are
	// owed to it are not charged: background work has to keep its key.
	maxKey = 1024
	// candidates is how many entries an eviction chooses from, and checked how many
	// entries of a shard a sweep looks at to forget ended ones.
	candidates, checked = 8, 16
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

// name is the name under which the cell of key is remembered.
func name(key string) string { return backends.ShortKey(key, maxName) }

// stemOf is the name of the stem of op's key, its hash and its shard.
func (s *Store) stemOf(op *backends.Op) (string, uint64, *shard) {
	stem := op.Key
	if op.Stem > 0 {
		stem = stem[:op.Stem]
	}
	stem = name(stem)
	hash := xxhash.Sum64String(stem)
	return stem, hash, &s.shards[hash>>32%shardCount]
}

// find returns the entry of the cell of key among the entries of its stem, or nil.
func (sh *shard) find(stem, key string) *entry {
	e := sh.cells[stem]
	for key = name(key); e != nil && e.name != key; {
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
		e.name = name(op.Key)
	}
	if op.Span == backends.Fixed && op.Kind == backends.Counter {
		e.known.Until = op.Until
	}
	newest := sh.cells[stem]
	if newest == nil && len(sh.cells) >= max(1, s.opts.Cells/shardCount) {
		s.evict(sh, op.Now)
	}
	if newest != nil {
		s.drop(sh, newest.older)
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
	if least == rankFull {
		sh.cache.Evicted++
	}
	s.remove(sh, worst)
}

// forgetEnded removes some of the entries that have ended.
func (s *Store) forgetEnded(sh *shard, now int64) {
	n := 0
	for stem, e := range sh.cells {
		if e.rank(now) == rankEnded {
			s.remove(sh, stem)
		}
		if n++; n == checked {
			return
		}
	}
}

// remove removes the entries of a stem.
func (s *Store) remove(sh *shard, stem string) {
	for e := sh.cells[stem]; e != nil; e = e.older {
		s.drop(sh, e)
	}
	delete(sh.cells, stem)
}

// drop ends the balance of an entry that is forgotten; e may be nil.
func (s *Store) drop(sh *shard, e *entry) {
	if e == nil {
		return
	}
	e.life++
	sh.endLease(e)
	if e.alone != nil {
		s.pay.lost.Add(1)
		e.alone = nil
	}
	sh.rest(e)
}

// idle is the spot of an entry that is not busy.
const idle = -1

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
