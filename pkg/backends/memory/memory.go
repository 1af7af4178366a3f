// Package memory is the embedded store: cells in this process, sharded by key.
//
// Every operation is atomic, and so is a batch whose operations are decided together. The
// store holds at most Options.MaxKeys cells: when it is full it removes cells that have
// ended, or else the cell that ends soonest, which it counts as evicted. Cells are lost
// when the process ends, and other replicas do not see them.
package memory

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"time"

	"example.org/rls/pkg/backends"
)

// Options configures a Store. Its field with a tag env is a setting of the process.
type Options struct {
	// MaxKeys bounds the number of cells and reservations, >= 1. A cell costs about 100 bytes,
	// at most 400 with a long key, a sliding window 40 bytes more, and a sliding log 24 bytes
	// more for each hit that it remembers. A reservation costs about 170 bytes. One that was
	// evicted cannot be settled: a later call with its ID is a new reservation.
	MaxKeys int `env:"MAX_KEYS" default:"1000000" min:"1" max:"1000000000" unit:"keys" help:"Most keys, of at most about 400 bytes each; beyond, the one expiring soonest is removed."`
	// Now is the clock in µs since the epoch. nil is the system's time when the
	// store was opened and the monotonic clock since: it does not jump when
	// somebody sets the system's clock.
	Now func() int64 `kong:"-"`
}

// Store keeps cells in memory.
type Store struct {
	now     func() int64
	seed    maphash.Seed
	shards  []shard
	evicted atomic.Uint64
	closed  atomic.Bool
	notes   notes
}

var _ backends.Store = (*Store)(nil)

// New returns an empty store.
func New(o Options) (*Store, error) {
	if o.MaxKeys < 1 || o.MaxKeys > maxKeys {
		return nil, fmt.Errorf("memory: MaxKeys is %d: must be between 1 and %d", o.MaxKeys, maxKeys)
	}
	if o.Now == nil {
		start := time.Now()
		o.Now = func() int64 { return start.UnixMicro() + time.Since(start).Microseconds() }
	}
	// With more shards fewer cores wait for the same lock; with fewer, evictions
	// come closer to the order in which cells end.
	shards := 1 << max(0, min(6, bits.Len(uint(o.MaxKeys/1024))-1))
	s := &Store{now: o.Now, seed: maphash.MakeSeed(), shards: make([]shard, shards), notes: notes{byName: map[string]*hash{}}}
	for i := range s.shards {
		s.shards[i].max, s.shards[i].evicted = (o.MaxKeys+shards-1)/shards, &s.evicted
		s.shards[i].table.hash = func(key []byte) uint32 { return name{hash: maphash.Bytes(s.seed, key)}.low() }
		s.shards[i].clear()
	}
	return s, nil
}

// Now is the time in µs since the epoch.
func (s *Store) Now() int64 { return s.now() }

// Ping always succeeds on an open store.
func (s *Store) Ping(context.Context) error { return s.closedErr() }

// Close forgets every cell.
func (s *Store) Close() error {
	s.closed.Store(true)
	s.Clear()
	return nil
}

// Clear forgets every cell. It does not count them as evicted.
func (s *Store) Clear() {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		sh.clear()
		sh.mu.Unlock()
	}
}

// Len is the number of cells and reservations held. Ended ones count until they are
// removed.
func (s *Store) Len() int {
	n := 0
	for i := range s.shards {
		s.shards[i].mu.Lock()
		n += s.shards[i].table.len
		s.shards[i].mu.Unlock()
	}
	return n
}

// Evicted counts the cells and reservations that were removed before their end to make room.
func (s *Store) Evicted() uint64 { return s.evicted.Load() }

var errClosed = fmt.Errorf("%w: memory: the store is closed", backends.ErrUnavailable)

func (s *Store) closedErr() error {
	if s.closed.Load() {
		return errClosed
	}
	return nil
}

// longestKey is the length in bytes above which a key is shortened.
const longestKey = 256

func (s *Store) name(key string) name {
	key = backends.ShortKey(key, longestKey)
	return name{key, maphash.String(s.seed, key)}
}

// shardOf takes the high bits; the shard's table takes the low ones.
func (s *Store) shardOf(n name) int { return int(n.hash>>32) & (len(s.shards) - 1) }

// Apply applies b. It waits only for locks that are held for microseconds, so
// it does not look at the context.
func (s *Store) Apply(_ context.Context, b *backends.Batch) error {
	if err := s.closedErr(); err != nil {
		return b.Fail(err)
	}
	if b.Together() {
		s.applyTogether(b)
		return nil
	}
	for i := range b.Ops {
		p := s.targetOf(&b.Ops[i])
		s.lock(p.shards())
		s.step(&b.Ops[i], &p, &b.Replies[i])
		s.unlock(p.shards())
	}
	b.Decide()
	return nil
}

// target is the cell of an operation and the record of its ID, and their shards. Without an ID
// both shards are the same.
type target struct {
	key, record  name
	at, recordAt int
}

func (s *Store) targetOf(op *backends.Op) target {
	p := target{key: s.name(op.Key)}
	p.at = s.shardOf(p.key)
	p.recordAt = p.at
	if op.Identified() {
		p.record = s.name(op.Hold.Key + "|" + op.Hold.ID) // shorter than RecordKey
		p.recordAt = s.shardOf(p.record)
	}
	return p
}

// shards is the shards of the target as a set of numbers below 64.
func (p *target) shards() uint64 { return 1<<p.at | 1<<p.recordAt }

// lock takes the locks of a set of shards in their order.
func (s *Store) lock(set uint64) {
	for ; set != 0; set &= set - 1 {
		s.shards[bits.TrailingZeros64(set)].mu.Lock()
	}
}

func (s *Store) unlock(set uint64) {
	for ; set != 0; set &= set - 1 {
		s.shards[bits.TrailingZeros64(set)].mu.Unlock()
	}
}

// step applies op, and sets *r; the locks of its shards are held.
func (s *Store) step(op *backends.Op, p *target, r *backends.Reply) {
	if op.Hold != nil {
		s.stepHold(op, p, r)
	} else {
		s.shards[p.at].step(op, p.key, r)
	}
}

// stepHold applies op, which has a Hold, and sets *r.
func (s *Store) stepHold(op *backends.Op, p *target, r *backends.Reply) {
	sh, records := &s.shards[p.at], &s.shards[p.recordAt]
	var rec backends.Record
	if op.Identified() {
		rec = records.record(p.record)
	}
	var state backends.State
	slot, ok := sh.load(p.key, op.Kind, &state)
	after, reply := state.StepHold(op, rec)
	if *r = reply; !op.ReadOnly() {
		sh.stepped(p.key, slot, ok, &state, op.Now)
	}
	if after != rec {
		records.keep(p.record, after, op.Now)
	}
}

// applyTogether applies operations that are decided together.
func (s *Store) applyTogether(b *backends.Batch) {
	targets := make([]target, len(b.Ops))
	before := make([]saved, len(b.Ops))
	var held uint64
	for i := range b.Ops {
		targets[i] = s.targetOf(&b.Ops[i])
		held |= targets[i].shards()
	}
	s.lock(held)
	defer s.unlock(held)
	apply := func(i int, op *backends.Op) (r backends.Reply) {
		s.step(op, &targets[i], &r)
		return r
	}
	b.ApplyTogether(func(i int) backends.Reply {
		p := &targets[i]
		before[i] = s.shards[p.at].save(p.key, b.Ops[i].Kind)
		if b.Ops[i].Identified() {
			before[i].rec = s.shards[p.recordAt].record(p.record)
		}
		return apply(i, &b.Ops[i])
	}, func(first, end int) {
		for i := end - 1; i >= first; i-- {
			p := &targets[i]
			s.shards[p.at].restore(p.key, before[i], b.Ops[i].Now)
			if b.Ops[i].Identified() {
				s.shards[p.recordAt].keep(p.record, before[i].rec, b.Ops[i].Now)
			}
		}
	}, apply)
}
