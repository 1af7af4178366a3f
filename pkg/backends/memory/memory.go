// Package memory is the embedded store: cells in this process, sharded by key.
//
// It promises that every batch is atomic, all-or-nothing ones too, and that it
// holds at most Options.MaxKeys cells: expired ones make room first, then the
// one that expires soonest, which is counted. Its cells are gone when the
// process ends and are not shared with other replicas.
package memory

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"time"

	"example.org/rls/pkg/backends"
)

// Options configures a Store.
type Options struct {
	// MaxKeys bounds the number of cells, >= 1. A cell costs about 150 bytes,
	// a sliding log 16 bytes more for each hit that it remembers.
	MaxKeys int
	// Now is the clock in µs since the epoch; nil is the system's.
	Now func() int64
}

// Store keeps cells in memory.
type Store struct {
	now     func() int64
	seed    maphash.Seed
	shards  []shard
	evicted atomic.Uint64
	closed  atomic.Bool
}

var _ backends.Store = (*Store)(nil)

// New returns an empty store.
func New(o Options) (*Store, error) {
	if o.MaxKeys < 1 || o.MaxKeys > maxKeys {
		return nil, fmt.Errorf("memory: MaxKeys is %d: must be between 1 and %d", o.MaxKeys, maxKeys)
	}
	if o.Now == nil {
		o.Now = func() int64 { return time.Now().UnixMicro() }
	}
	// Many shards keep cores apart; few keep the order of eviction exact.
	shards := 1 << max(0, min(6, bits.Len(uint(o.MaxKeys/1024))-1))
	s := &Store{now: o.Now, seed: maphash.MakeSeed(), shards: make([]shard, shards)}
	for i := range s.shards {
		s.shards[i] = newShard((o.MaxKeys+shards-1)/shards, &s.evicted)
	}
	return s, nil
}

// Now is the time in µs since the epoch.
func (s *Store) Now() int64 { return s.now() }

// Ping always succeeds on an open store.
func (s *Store) Ping(context.Context) error { return s.open() }

// Close forgets every cell.
func (s *Store) Close() error {
	s.closed.Store(true)
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		sh.index, sh.chunks, sh.free, sh.heap, sh.logs = map[string]uint32{}, nil, nil, nil, map[uint32]backends.Log{}
		sh.mu.Unlock()
	}
	return nil
}

// Len is the number of cells held, expired ones that nobody asked for since
// included.
func (s *Store) Len() int {
	n := 0
	for i := range s.shards {
		s.shards[i].mu.Lock()
		n += len(s.shards[i].index)
		s.shards[i].mu.Unlock()
	}
	return n
}

// Evicted counts the live cells that had to make room for others.
func (s *Store) Evicted() uint64 { return s.evicted.Load() }

var errClosed = errors.New("memory: the store is closed")

func (s *Store) open() error {
	if s.closed.Load() {
		return fmt.Errorf("%w: %w", backends.ErrUnavailable, errClosed)
	}
	return nil
}

func (s *Store) shardOf(key string) int {
	return int(maphash.String(s.seed, key)) & (len(s.shards) - 1)
}

// Apply applies b. It never waits for anything but a lock held for
// microseconds, so ctx is not looked at.
func (s *Store) Apply(_ context.Context, b *backends.Batch) error {
	if err := s.open(); err != nil {
		return err
	}
	b.Refused = false
	if b.AllOrNothing && len(b.Ops) > 1 {
		s.applyAll(b)
		return nil
	}
	for i := range b.Ops {
		op := &b.Ops[i]
		at, prev := s.shardOf(op.Key), -1
		if op.Prev != "" {
			prev = s.shardOf(op.Prev)
		}
		s.lock(at, prev)
		b.Replies[i] = s.step(op, at, prev)
		s.unlock(at, prev)
		if b.AllOrNothing && !op.Soft && b.Replies[i].Admitted < op.Times {
			b.Refused = true
		}
	}
	return nil
}

// lock takes the locks of one or two shards in their order.
func (s *Store) lock(a, b int) {
	if b >= 0 && b < a {
		s.shards[b].mu.Lock()
	}
	s.shards[a].mu.Lock()
	if b > a {
		s.shards[b].mu.Lock()
	}
}

func (s *Store) unlock(a, b int) {
	s.shards[a].mu.Unlock()
	if b >= 0 && b != a {
		s.shards[b].mu.Unlock()
	}
}

// step applies op; the locks of both shards are held.
func (s *Store) step(op *backends.Op, at, prev int) backends.Reply {
	var previous int64
	if prev >= 0 {
		previous = s.shards[prev].count(op.Prev, op.Now)
	}
	return s.shards[at].step(op, previous)
}

// applyAll applies a batch of several operations, all or nothing.
func (s *Store) applyAll(b *backends.Batch) {
	held := s.lockAll(b.Ops)
	defer s.unlockAll(held)
	type undo struct {
		shard int
		state state
	}
	undos := make([]undo, 0, len(b.Ops))
	for i := range b.Ops {
		op := &b.Ops[i]
		at := s.shardOf(op.Key)
		undos = append(undos, undo{at, s.shards[at].save(op.Key)})
		b.Replies[i] = s.step(op, at, s.prevShard(op))
		if !op.Soft && b.Replies[i].Admitted < op.Times {
			b.Refused = true
		}
	}
	if !b.Refused {
		return
	}
	for i := len(undos) - 1; i >= 0; i-- {
		s.shards[undos[i].shard].restore(b.Ops[i].Key, undos[i].state, b.Ops[i].Now)
	}
	for i := range b.Ops {
		op := b.Ops[i].Look()
		admitted, retryAt := b.Replies[i].Admitted, b.Replies[i].RetryAt
		b.Replies[i] = s.step(&op, s.shardOf(op.Key), s.prevShard(&op))
		b.Replies[i].Admitted, b.Replies[i].RetryAt = admitted, retryAt
	}
}

func (s *Store) prevShard(op *backends.Op) int {
	if op.Prev == "" {
		return -1
	}
	return s.shardOf(op.Prev)
}

// lockAll locks the shards of every key in their order and returns them as a
// set of at most 64.
func (s *Store) lockAll(ops []backends.Op) (set uint64) {
	for i := range ops {
		set |= 1 << s.shardOf(ops[i].Key)
		if prev := s.prevShard(&ops[i]); prev >= 0 {
			set |= 1 << prev
		}
	}
	for i := range s.shards {
		if set&(1<<i) != 0 {
			s.shards[i].mu.Lock()
		}
	}
	return set
}

func (s *Store) unlockAll(set uint64) {
	for i := range s.shards {
		if set&(1<<i) != 0 {
			s.shards[i].mu.Unlock()
		}
	}
}
