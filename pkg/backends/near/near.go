// Package near is a near cache: the only memory that this process has of cells which
// other processes share. Its Store decides operations from that memory where it can, and
// asks the store below for the others.
//
// An entry is a cell as the store last reported it, and the balance of this process with
// the store (ADR 2):
//
//   - No room: for up to a second after a denial the memory denies, and does not charge,
//     what cannot fit before the cell ends (Options.Deny).
//   - Hits held: the process charges the store for several hits at once, a lease, and takes
//     the next hits from it (Limit.Lease). Unused hits are given back.
//   - Hits owed: while the store leaves operations with IfUndecided Local undecided, the
//     process decides them on its own copies of the cells, as one of Options.Replicas, and
//     charges the admitted hits when the store is back. A refund gives back at most those.
//
// Replies have a cell's value as the store last reported it, less the hits held here.
// Groups and all-or-nothing batches take nothing from leases; memory denies one that is
// certain to be refused. Resets and grants go to the store, and end the balance.
package near

import (
	"context"
	"errors"
	"slices"
	"strings"

	"example.org/rls/pkg/backends"
)

// way says how an operation of a batch is decided.
type way uint8

const (
	store                way = iota // by the store
	storeUnconditionally            // by the store, which charges it also if it does not fit; see cheap
	storeUnlessRefused              // by the store, unless memory refuses the batch: then the reply holds
	denied                          // from memory
	leased                          // from memory: by a lease
)

// Apply implements backends.Store. It waits for no background call.
func (s *Store) Apply(ctx context.Context, b *backends.Batch) error {
	if s.closed.Load() {
		return s.Store.Apply(ctx, b)
	}
	var room [16]way
	var count [leased + 1]int
	ways, together := room[:0], b.Together()
	for i := range b.Ops {
		w := store
		if !changedBefore(b, ways, i) {
			w = s.recall(&b.Ops[i], &b.Replies[i], together)
		}
		ways = append(ways, w)
		count[w]++
	}
	recalled, asked := count[denied]+count[leased], count[store]+count[storeUnconditionally]
	decided := asked == 0 && recalled > 0 && refusedByMemory(b, ways)
	if together && !decided {
		clear(ways)
		count[denied] = 0
	}
	if s.opts.Deny {
		s.hits.Add(uint64(count[denied]))
		s.misses.Add(uint64(len(ways) - count[denied]))
	}
	var err error
	switch {
	case decided:
		return nil
	case together, count[store] == len(ways):
		err = s.Store.Apply(ctx, b)
	default:
		err = s.askRest(ctx, b, ways)
	}
	for i := range ways {
		if ways[i] < denied {
			s.reported(b, i, ways[i], together)
		}
	}
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) && s.decideLocal(b) {
		err = b.Err()
	}
	return err
}

// changedBefore reports whether an operation of b before the one at i goes to the store
// with the same key: it may change the cell.
func changedBefore(b *backends.Batch, ways []way, i int) bool {
	for j := range i {
		if b.Ops[j].Key == b.Ops[i].Key && ways[j] < denied {
			return true
		}
	}
	return false
}

// refunded reports whether b gives hits back to the cell at key. A store may do so after it has
// decided the other operations of b.
func refunded(b *backends.Batch, key string) bool {
	return slices.ContainsFunc(b.Ops, func(op backends.Op) bool { return op.Key == key && op.Verb.GivesBack() })
}

// refusedByMemory decides b by the replies from memory, and reports whether no operation passes
// that the store would charge.
func refusedByMemory(b *backends.Batch, ways []way) bool {
	b.Decide()
	for i := range b.Ops {
		if ways[i] == storeUnlessRefused && b.Charged(i) {
			return false
		}
	}
	return true
}

// askRest has the store decide what memory has not decided.
func (s *Store) askRest(ctx context.Context, b *backends.Batch, ways []way) error {
	var rest backends.Part
	for i := range b.Ops {
		if ways[i] < denied {
			op := rest.Add(b, i)
			if ways[i] == storeUnconditionally {
				op.Verb = backends.Count
			}
		}
	}
	err := s.Store.Apply(ctx, &rest.Batch)
	rest.Answer(b)
	b.Decide()
	return err
}

// recall decides op from memory, or says how the store is to decide it.
func (s *Store) recall(op *backends.Op, r *backends.Reply, together bool) way {
	if op.Max == backends.NoRoom && op.Verb != backends.Count && !op.Identified() { // a limit of 0
		*r = op.Unused()
		return denied
	}
	leases := op.Lease != nil && !together && !op.Verb.Operates() && op.Times == 1
	if !leases && !s.opts.Deny {
		return store
	}
	stem, sh := s.lock(op)
	defer sh.mu.Unlock()
	e := sh.find(stem, op)
	switch {
	case s.opts.Deny && s.denies(e, op, r):
		return denied
	case leases:
		return s.spend(sh, stem, e, op, r)
	case together && e != nil && op.StaysFull() && e.try(op, r):
		return storeUnlessRefused
	}
	return store
}

// denies answers op if its cell was reported full a moment ago and has no room for it.
func (s *Store) denies(e *entry, op *backends.Op, r *backends.Reply) bool {
	switch {
	case e == nil || !e.full || !op.StaysFull():
		return false
	case op.Now >= e.known.Until:
		s.expired.Add(1)
		e.full = false
		return false
	}
	return e.try(op, r) && r.Admitted == 0
}

// spend decides op by the lease of its cell, if it can. It notes the demand for the key, and
// asks for a fetch when one is due. e may be nil.
func (s *Store) spend(sh *shard, stem string, e *entry, op *backends.Op, r *backends.Reply) way {
	if e == nil {
		e = s.entryOf(sh, stem, op)
		sh.inherit(e, op)
	}
	switch {
	case e.lease == nil:
		if sh.warm(e, op); e.cheap(op) {
			return storeUnconditionally
		}
	case e.lease.terms == *op.Lease && s.take(sh, e, op): // else another limit leases the cell
		e.reply(op, r)
		return leased
	}
	return store
}

// take decides op from the lease of its cell, and reports whether it did.
func (s *Store) take(sh *shard, e *entry, op *backends.Op) (took bool) {
	l := e.lease
	sh.drain(e, op.Now)
	hits := op.By.Units(op.Unit, op.Den)
	if op.Verb.GivesBack() || hits > l.terms.Share { // no lease is as large
		return false
	}
	e.demand.add(op.Now, hits, l.terms.TTL)
	if took = l.held >= max(hits, 1); took {
		l.held -= hits
		sh.leases.Used += uint64(hits)
	}
	if l.wanted == 0 && (l.held <= l.enough || op.Now >= l.check) {
		if l.wanted = e.want(op); l.wanted > 0 {
			l.op = *op
			s.enqueue(sh, e)
		}
	}
	return took
}

// reported takes in the store's reply to the operation of b at i, which memory has not
// decided, and makes the reply truthful.
func (s *Store) reported(b *backends.Batch, i int, w way, together bool) {
	op, r := &b.Ops[i], &b.Replies[i]
	switch op.Verb {
	case backends.Reset:
		s.Forget(op)
		return
	case backends.Grant:
		s.granted(op, r)
		return
	}
	stem, sh := s.lock(op)
	defer sh.mu.Unlock()
	e := sh.find(stem, op)
	if r.Err != nil { // perhaps the caller had no time
		if e != nil && op.Verb.GivesBack() {
			e.full = false
		}
		return
	}
	denied, hits := r.Admitted < op.Times, op.By.Units(op.Unit, op.Den)
	if e == nil {
		full := s.opts.Deny && (!b.Passes(i) || denied && op.StaysFull())
		if local := op.IfUndecided == backends.Local && r.Until > r.Now; !full && !local && w != storeUnconditionally {
			return
		}
		e = s.entryOf(sh, stem, op)
	}
	updated := s.update(sh, e, op, r)
	if updated {
		if e.full && denied {
			s.overwritten.Add(1)
		}
		if !op.ReadOnly() {
			e.full = denied && !refunded(b, op.Key)
		}
		if (together || op.ReadOnly()) && op.MayBound(r) {
			e.at = 0
		}
	}
	if w == storeUnconditionally && denied {
		s.giveUp(sh, e, op, hits)
	}
	if l := e.lease; l != nil {
		if denied && (together || hits > 1) {
			l.yield(op.Now)
		}
		look := op.ReadOnly() && op.Lease == nil // an operator wants to know the store's cell
		if updated && !look && !op.Precedes(r) {
			r.Value = e.view(op, r.Now)
		}
	}
}

// granted takes in a grant, whether or not the store has answered.
func (s *Store) granted(op *backends.Op, r *backends.Reply) {
	stem, sh := s.lock(op)
	defer sh.mu.Unlock()
	sh.steered = s.Now()
	e := s.entryOf(sh, stem, op)
	if r.Err == nil {
		look := op.Look()
		s.set(e, &look, r)
	}
	if e.full = false; e.lease != nil {
		e.lease.yield(op.Now)
	}
}

// Forget implements backends.Memory.
func (s *Store) Forget(op *backends.Op) {
	stem, sh := s.lock(op)
	defer sh.mu.Unlock()
	sh.steered = s.Now()
	key := backends.ShortKey(op.Key, maxName)
	for e := sh.cells[stem]; e != nil; e = e.older {
		if e.name == key {
			sh.forget(e)
		}
	}
}

// ForgetAmong implements backends.Memory.
func (s *Store) ForgetAmong(prefix string, among func(keys []string) []backends.Op) {
	var keys []string
	s.each(func(sh *shard) {
		sh.steered = s.Now()
		for _, e := range sh.cells {
			for ; e != nil; e = e.older {
				switch key := e.key(); {
				case key == "" && e.local == nil:
					sh.forget(e)
				case strings.HasPrefix(key, prefix):
					keys = append(keys, key)
				}
			}
		}
	})
	for _, op := range among(keys) {
		s.Forget(&op)
	}
}

// decideLocal decides the operations of b that the store left undecided and that this
// process may decide (Local), and reports whether there are any. If a group or the
// batch is refused now, the charges of its operations are given back.
func (s *Store) decideLocal(b *backends.Batch) (any bool) {
	charged := make([]bool, len(b.Ops))
	b.Decide()
	for i := range b.Ops {
		charged[i] = b.Charged(i)
	}
	b.ApplyTogether(func(i int) backends.Reply {
		op, r := &b.Ops[i], b.Replies[i]
		if r.Err != nil && op.IfUndecided == backends.Local {
			s.stand(op, &r)
			any, charged[i] = true, r.Admitted > 0
		}
		return r
	}, func(first, end int) {
		for i := first; i < end; i++ {
			if charged[i] && !b.Charged(i) {
				s.takeBack(&b.Ops[i], &b.Replies[i])
				charged[i] = false
			}
		}
	}, func(i int, _ *backends.Op) backends.Reply { return b.Replies[i] })
	return any
}

// takeBack gives back a charge of op, whose group or batch does not pass.
func (s *Store) takeBack(op *backends.Op, r *backends.Reply) {
	switch {
	case op.Verb.GivesBack() || op.By == (backends.Amount{}):
	case r.Replicas > 0:
		back := op.Inverse(r.Until)
		back.Hold = nil
		s.stand(&back, &backends.Reply{})
	default:
		s.unwind(op, r)
	}
}

// stand decides op on this process's copy of its cell.
func (s *Store) stand(op *backends.Op, r *backends.Reply) {
	stem, sh := s.lock(op)
	defer sh.mu.Unlock()
	e, replicas := s.entryOf(sh, stem, op), int64(s.opts.Replicas())
	if e.local == nil {
		e.local = newLocal(op, e.known, backends.Amount{}, replicas)
		e.local.divided.Cell = e.follows(op, e.local.divided.Cell)
		sh.watch(e)
	}
	*r = e.decide(op, replicas)
	sh.refused = true
}

// follows is the cell c of a sliding window, which may have begun since the store answered, after
// the window before it as this process knows that.
func (e *entry) follows(op *backends.Op, c backends.Cell) backends.Cell {
	if p := e.older; op.Span == backends.Sliding && p != nil && p.known.Window == e.known.Window-1 {
		before := p.known.Value.Whole
		if p.local != nil {
			before = p.local.divided.Value.Whole
		}
		c.Prev = max(c.Prev, before)
	}
	return c
}

// unwind gives back a charge of the store, because its group or batch is refused; a
// reservation with its record, which stays if the store does not answer.
func (s *Store) unwind(op *backends.Op, r *backends.Reply) {
	stem, sh := s.lock(op)
	defer sh.mu.Unlock()
	if back := op.Inverse(r.Until); r.HoldState() == backends.Held {
		back.Group, back.Role, back.IfUndecided = 0, backends.Firm, backends.Open
		s.opts.Go(func() error {
			sh.mu.Lock()
			defer sh.mu.Unlock()
			s.call(sh, back)
			return nil
		})
	} else {
		s.giveUp(sh, s.entryOf(sh, stem, op), op, op.By.Units(op.Unit, op.Den))
	}
	r.Value = r.Value.Sub(op.By, op.Den)
}
