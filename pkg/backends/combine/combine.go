// Package combine merges operations on a hot key.
//
// Operations on the same cell that arrive while one is on its way to the store
// wait for it and are then sent as one, as many times as there were callers;
// the store charges as many as fit and the callers get their replies in the
// order in which they came. It is exact, nobody waits who would not have
// waited for the same key anyway, and a hot key costs the store one operation
// per round trip and process instead of one per request.
//
// All-or-nothing batches of several operations pass through untouched.
package combine

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"example.org/rls/pkg/backends"
)

// Store is another store with merged operations.
type Store struct {
	backends.Store
	timeout time.Duration
	seed    maphash.Seed
	shards  [64]shard
}

type shard struct {
	mu     sync.Mutex
	flying map[string]*flight
	_      [40]byte // keeps neighbours off this shard's cache line
}

// flight is a key with an operation on its way and those who wait behind it.
type flight struct{ waiting []*waiter }

// waiter is one operation that waits for its turn. What flush writes is read
// only after done is closed.
type waiter struct {
	ctx   context.Context
	op    backends.Op
	reply backends.Reply
	err   error
	done  chan struct{}
}

// New merges operations for next. timeout, > 0, bounds a merged operation,
// which no single caller's context governs.
func New(next backends.Store, timeout time.Duration) (*Store, error) {
	if timeout <= 0 {
		return nil, fmt.Errorf("combine: a timeout of %v bounds nothing: must be above 0", timeout)
	}
	s := &Store{Store: next, timeout: timeout, seed: maphash.MakeSeed()}
	for i := range s.shards {
		s.shards[i].flying = map[string]*flight{}
	}
	return s, nil
}

// Apply applies b.
func (s *Store) Apply(ctx context.Context, b *backends.Batch) error {
	if b.AllOrNothing && len(b.Ops) > 1 {
		return s.Store.Apply(ctx, b)
	}
	waiters := s.takeOff(ctx, b)
	if waiters == nil { // nothing of this batch is in flight
		err := s.Store.Apply(ctx, b)
		for i := range b.Ops {
			s.land(b.Ops[i].Key)
		}
		return err
	}
	err := s.applyRest(ctx, b, waiters)
	for i, w := range waiters {
		if w == nil {
			continue
		}
		select {
		case <-w.done:
			b.Ops[i], b.Replies[i] = w.op, w.reply
			err = errors.Join(err, w.err)
		case <-ctx.Done():
			return fmt.Errorf("%w: waiting for a merged operation: %w", backends.ErrUnavailable, ctx.Err())
		}
	}
	b.Refused = b.AllOrNothing && len(b.Ops) == 1 && !b.Ops[0].Soft && b.Replies[0].Admitted < b.Ops[0].Times
	return err
}

// takeOff enters b's keys. It returns nil when none was in flight, else the
// waiters of those that were, at the indices of their operations.
func (s *Store) takeOff(ctx context.Context, b *backends.Batch) []*waiter {
	var waiters []*waiter
	for i := range b.Ops {
		sh := s.shard(b.Ops[i].Key)
		sh.mu.Lock()
		f := sh.flying[b.Ops[i].Key]
		if f == nil {
			sh.flying[b.Ops[i].Key] = flights.Get().(*flight)
			sh.mu.Unlock()
			continue
		}
		w := &waiter{ctx: ctx, op: b.Ops[i], done: make(chan struct{})}
		f.waiting = append(f.waiting, w)
		sh.mu.Unlock()
		if waiters == nil {
			waiters = make([]*waiter, len(b.Ops))
		}
		waiters[i] = w
	}
	return waiters
}

var flights = sync.Pool{New: func() any { return new(flight) }}

// applyRest applies the operations of b that do not wait.
func (s *Store) applyRest(ctx context.Context, b *backends.Batch, waiters []*waiter) error {
	var rest backends.Batch
	for i, w := range waiters {
		if w == nil {
			rest.Ops = append(rest.Ops, b.Ops[i])
		}
	}
	if len(rest.Ops) == 0 {
		return nil
	}
	rest.Replies = make([]backends.Reply, len(rest.Ops))
	err := s.Store.Apply(ctx, &rest)
	next := 0
	for i, w := range waiters {
		if w == nil {
			b.Ops[i], b.Replies[i] = rest.Ops[next], rest.Replies[next]
			next++
			s.land(b.Ops[i].Key)
		}
	}
	return err
}

func (s *Store) shard(key string) *shard {
	return &s.shards[maphash.String(s.seed, key)%uint64(len(s.shards))]
}

// land ends the flight of key, or sends off those who wait behind it.
func (s *Store) land(key string) {
	if waiting := s.next(key); waiting != nil {
		go s.flush(key, waiting)
	}
}

// next is those who wait behind key; when there are none the flight is over.
func (s *Store) next(key string) []*waiter {
	sh := s.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	f := sh.flying[key]
	waiting := f.waiting
	f.waiting = nil
	if len(waiting) == 0 {
		delete(sh.flying, key)
		flights.Put(f)
		return nil
	}
	return waiting
}

// flush sends those who wait, and those who come meanwhile, until nobody does.
func (s *Store) flush(key string, waiting []*waiter) {
	for ; waiting != nil; waiting = s.next(key) {
		groups := merge(waiting)
		b := backends.Batch{Ops: make([]backends.Op, len(groups)), Replies: make([]backends.Reply, len(groups))}
		for i := range groups {
			b.Ops[i] = groups[i].op
		}
		var err error
		if len(groups) > 0 {
			ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
			err = s.Store.Apply(ctx, &b)
			cancel()
		}
		for i := range groups {
			groups[i].deal(&b.Ops[i], &b.Replies[i], err)
		}
	}
}
