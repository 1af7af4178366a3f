package stack

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"example.org/rls/pkg/backends"
)

// combine is another store with merged operations.
type combine struct {
	backends.Store
	spread  backends.Spread    // the same store, if it is one
	decided func(*backends.Op) // s.decide, made once
	timeout time.Duration
	waiters sync.Pool     // *waiter. Not shared by stores: a channel must not leave its synctest bubble
	pace    backends.Pace // of the operations on one key
	seed    maphash.Seed
	shards  [64]shard
}

type shard struct {
	mu   sync.Mutex
	busy map[string]*queue
	_    [40]byte // keeps neighbours off this shard's cache line
}

// queue is a busy key.
type queue struct {
	batch   *backends.Batch // has made the key busy; nil while merged operations are with the store
	ops     int             // operations on the key that are with the store
	sent    int64           // Op.Now of an operation that was sent last
	waiting []*waiter
}

// maxSent bounds the operations on one key that are with the store.
const maxSent = 8

var queues = sync.Pool{New: func() any { return new(queue) }}

// Combine returns a store that merges the operations of several callers on one hot key before it passes
// them to next. A merged operation ends after timeout, > 0, because the contexts of its callers
// do not end it.
//
// While an operation on a key is with the store, the key is busy: further
// operations on it wait. When the answer has come, the waiting operations are
// sent together, equal operations as one with Op.Times, and each caller gets the
// reply that it would have got in the order of arrival. So a hot key costs the
// store one operation per round trip and process, not one per request. With a store
// that is [backends.Spread], a key is free when its own server has answered.
//
// If the store is distant, callers do not wait for the round trip of others: an
// operation that comes 2 ms after the last one was sent, or later, goes at once,
// together with the operations that wait, and the key stays busy until all answers
// have come. The more operations are unanswered beyond the usual round trip, the
// longer is the time to the next, and at most 8 of a key are with the store: a store
// that is silent gets no call for each caller of a hot key.
//
// Three kinds of operations pass through without waiting and without being
// merged: groups, all-or-nothing batches of several operations, and every
// operation on a key that is not busy.
func Combine(next backends.Store, timeout time.Duration) backends.Store {
	s := &combine{Store: next, timeout: timeout, seed: maphash.MakeSeed()}
	s.pace.Max, s.pace.Least = maxSent, backends.Nearby
	s.spread, _ = next.(backends.Spread)
	s.decided = s.decide
	for i := range s.shards {
		s.shards[i].busy = map[string]*queue{}
	}
	return s
}

// Unwrap is the decorated store; see backends.ScannerOf.
func (s *combine) Unwrap() backends.Store { return s.Store }

// Apply implements backends.Store.
func (s *combine) Apply(ctx context.Context, b *backends.Batch) error {
	if len(b.Ops) > 1 && b.AllOrNothing {
		return s.Store.Apply(ctx, b)
	}
	var room [8]*waiter
	waiters, waiting := room[:0], 0 // an element for each operation: its waiter, or nil
	for i := range b.Ops {
		var w *waiter
		if op := &b.Ops[i]; op.Group == 0 {
			w = s.queue(ctx, b, op)
		}
		if waiters = append(waiters, w); w != nil {
			waiting++
		}
	}
	if waiting == 0 {
		return s.ask(ctx, b)
	}
	if waiting < len(b.Ops) {
		var rest backends.Part // the operations that do not wait
		for i, w := range waiters {
			if w == nil {
				rest.Add(b, i)
			}
		}
		_ = s.ask(ctx, &rest.Batch) // its replies have the error
		rest.Answer(b)
	}
	for i, w := range waiters {
		if w != nil {
			s.wait(ctx, w, &b.Replies[i])
		}
	}
	b.Decide()
	return b.Err()
}

// queue makes op's key busy with b. If the key was busy before, queue returns op's
// waiter, else nil.
func (s *combine) queue(ctx context.Context, b *backends.Batch, op *backends.Op) *waiter {
	sh := s.shard(op.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	q := sh.busy[op.Key]
	switch {
	case q == nil:
		q = queues.Get().(*queue)
		q.batch, q.ops, q.sent = b, 1, op.Now
		sh.busy[op.Key] = q
	case q.batch == b:
		q.ops++
	default:
		w, _ := s.waiters.Get().(*waiter)
		if w == nil {
			w = &waiter{done: make(chan struct{}, 1)}
		}
		w.ctx, w.op = ctx, *op
		q.waiting = append(q.waiting, w)
		if q.ops < maxSent && op.Now-q.sent > s.pace.Between(q.ops).Microseconds() {
			waiting := q.waiting
			q.ops, q.sent, q.waiting = q.ops+1, op.Now, nil
			go s.send(op.Key, waiting)
		}
		return w
	}
	return nil
}

// wait puts the answer to w into r, or an error if ctx ends first. A waiter whose caller
// has gone is still in a queue, so it is not used again.
func (s *combine) wait(ctx context.Context, w *waiter, r *backends.Reply) {
	if backends.Wait(ctx, w.done) != nil {
		*r = backends.Reply{Err: gaveUp(ctx)}
		return
	}
	*r = w.reply
	w.ctx, w.op, w.reply = nil, backends.Op{}, backends.Reply{}
	s.waiters.Put(w)
}

// ask has the store apply b, whose keys are busy, and frees each key when its
// operations are decided.
func (s *combine) ask(ctx context.Context, b *backends.Batch) error {
	if s.spread != nil && len(b.Ops) > 1 {
		return s.spread.ApplyEach(ctx, b, s.decided)
	}
	err := s.Store.Apply(ctx, b)
	b.Each(s.decided)
	return err
}

// decide frees the key of an operation that has been decided.
func (s *combine) decide(op *backends.Op) {
	if op.Group > 0 {
		return
	}
	if waiting := s.next(op.Key); waiting != nil {
		go s.send(op.Key, waiting)
	}
}

func (s *combine) shard(key string) *shard {
	return &s.shards[maphash.String(s.seed, key)%uint64(len(s.shards))]
}

// next notes that an operation on key has been decided. If it was the last one and callers
// wait for the key, which stays busy, next returns their waiters, else nil.
func (s *combine) next(key string) []*waiter {
	sh := s.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	q := sh.busy[key]
	if q.ops--; q.ops > 0 {
		return nil
	}
	waiting := q.waiting
	q.batch, q.ops, q.waiting = nil, 1, nil
	if len(waiting) == 0 {
		delete(sh.busy, key)
		queues.Put(q)
		return nil
	}
	q.sent = waiting[len(waiting)-1].op.Now
	return waiting
}

// send asks the store for the waiting operations on key, and for the operations
// that come meanwhile, until no operation waits.
func (s *combine) send(key string, waiting []*waiter) {
	for ; waiting != nil; waiting = s.next(key) {
		all := merge(waiting)
		b := backends.Batch{Ops: make([]backends.Op, len(all)), Replies: make([]backends.Reply, len(all))}
		for i := range all {
			b.Ops[i] = all[i].op
		}
		if len(all) > 0 {
			s.applyMerged(&b)
		}
		for i := range all {
			all[i].answer(&b.Replies[i])
		}
	}
}

// applyMerged has the store apply b, whose replies have the error, and measures the time.
func (s *combine) applyMerged(b *backends.Batch) {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	start := time.Now()
	if s.Store.Apply(ctx, b) == nil {
		s.pace.Answered(time.Since(start))
	}
}

// waiter is an operation whose key is busy.
type waiter struct {
	ctx   context.Context
	op    backends.Op
	reply backends.Reply // written before done
	done  chan struct{}  // buffered; receives once when reply is set
}

func gaveUp(ctx context.Context) error {
	return fmt.Errorf("wait behind other operations on the key: %w: %w", backends.ErrUnavailable, ctx.Err())
}

// merged is one operation for the equal operations of several callers.
type merged struct {
	op      backends.Op
	callers []*waiter // in their order of arrival
}

// merge makes one operation of neighbours that are equal but for their time. It
// leaves out callers whose context has ended: they are not charged.
func merge(waiting []*waiter) []merged {
	var all []merged
	for _, w := range waiting {
		if w.ctx.Err() != nil {
			w.reply.Err = backends.NotSent(gaveUp(w.ctx))
			w.done <- struct{}{}
			continue
		}
		if n := len(all); n > 0 && all[n-1].takes(&w.op) {
			all[n-1].add(w)
			continue
		}
		all = append(all, merged{op: w.op, callers: []*waiter{w}})
	}
	return all
}

// takes reports whether op equals m's operation at op's time. Resets, grants, and operations that
// overdraw, charge a part or have a reservation stay alone.
func (m *merged) takes(op *backends.Op) bool {
	a := m.op
	apart := a.Hold != nil || a.Verb == backends.Fill || a.Verb.Operates() || a.Overdraws()
	if apart || a.Times != int64(len(m.callers)) || op.Times != 1 || a.Times == backends.MaxTimes {
		return false
	}
	switch {
	case a.Kind == backends.List:
		a.Until = op.Until // lists have none
	case a.Kind == backends.Meter || a.Span != backends.Fixed:
		a = a.At(op.Now)
	}
	if a.Limit != op.Limit && *a.Limit == *op.Limit { // of an override, or of rules that were loaded again
		a.Limit = op.Limit
	}
	a.Now, a.Times = op.Now, op.Times
	a.Role, a.IfUndecided = op.Role, op.IfUndecided // do not matter to an operation that is charged alone
	return a == *op
}

// add adds a caller. The operation is decided at the latest Now of its callers,
// which Reply.Now tells each of them.
func (m *merged) add(w *waiter) {
	times := m.op.Times + 1
	if w.op.Now > m.op.Now {
		m.op = w.op
	}
	m.op.Times = times
	m.callers = append(m.callers, w)
}

// answer gives each caller its part of the reply. The first callers fit, as many as the
// store has admitted. Each sees the cell as it was after its own charge.
func (m *merged) answer(r *backends.Reply) {
	value := r.Value
	for i := len(m.callers) - 1; i >= 0; i-- {
		w := m.callers[i]
		w.reply = *r
		if r.Err == nil && len(m.callers) > 1 {
			w.reply.Admitted = min(max(r.Admitted-int64(i), 0), 1)
			if w.reply.Admitted == 1 || m.op.Verb == backends.Count {
				w.reply.Value = value
				if !m.op.Verb.GivesBack() {
					value = value.Sub(m.op.By, m.op.Den)
				}
			}
		}
		w.done <- struct{}{}
	}
}
