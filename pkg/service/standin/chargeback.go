package standin

import (
	"context"
	"math"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
)

// batch is how many cells one call to the store charges at most, so that replicas
// do not overload a store that has just come back.
const batch = 64

// tellEvery is the least time between two lines in the log, in µs.
const tellEvery = 60_000_000

// swept is how many remembered cells a Step looks at to forget ended ones.
const swept = 1024

// sum counts cells whose hits went to the store since the last line in the log.
type sum struct {
	cells   int
	reduced int // of them, those that had not room for all hits
}

// debt is an amount that was admitted here and that the store does not have.
type debt struct {
	name string
	op   backends.Op // looks at the cell
	owed backends.Amount
	paid backends.Amount // of owed, as much as fits the limit
}

// Step charges the hits that were admitted here to the store, one call after the
// other. It returns when every cell was tried once, or when the store decided no
// operation of a call: the rest is left to the next Step. It also forgets some of
// the cells that have ended.
//
// A cell is charged only after the store has answered a look at it. So nothing is
// charged twice that waits in the buffers of a store that does not answer.
func (s *Standin) Step(ctx context.Context) {
	now := s.clock()
	s.mu.Lock()
	// A hit that waited for the store may still count in a window that has ended.
	s.table.sweep(now-backends.Skew, swept)
	left := len(s.table.queue)
	s.mu.Unlock()
	for ; left > 0 && ctx.Err() == nil; left -= batch {
		debts := s.debts(min(left, batch), now)
		if len(debts) > 0 && !s.pay(ctx, debts) {
			break
		}
	}
	s.tell(now)
}

// tell logs that the store has all hits, at most once a minute: a connection that
// loses calls now and then must not fill the log.
func (s *Standin) tell(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	since := now - s.told
	if len(s.table.queue) > 0 || s.charge.cells == 0 || since >= 0 && since < tellEvery {
		return
	}
	s.told = now
	s.log.Info("hits that were admitted while the store was away are charged to it", "keys", s.charge.cells,
		"keys_without_room_for_all", s.charge.reduced, "keys_forgotten", s.table.lost)
	s.charge, s.table.lost = sum{}, 0
}

// debts takes up to n cells off the queue and returns their debts.
func (s *Standin) debts(n int, now int64) (debts []debt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.table.dequeue(n) {
		d := debt{name: e.name}
		a := e.alone
		a.limit.Replan(&d.op, a.key, a.prev, a.at, algorithms.Charge{Now: now, AdmittedOnly: true, Patience: math.MaxInt64})
		if d.owed = a.uncharged(&d.op, e.known); d.owed != (backends.Amount{}) {
			debts = append(debts, d)
		}
	}
	return debts
}

// pay charges the debts to the store, and enqueues those that the store did not
// decide. It reports whether the store decided any.
func (s *Standin) pay(ctx context.Context, debts []debt) bool {
	decided := false
	due := debts[:0]
	for i, r := range s.apply(ctx, debts) {
		d := debts[i]
		if r.Err != nil {
			s.postpone(&d)
			continue
		}
		decided = true
		if d.paid = d.fitting(&r); d.paid == (backends.Amount{}) {
			s.settle(&d, &r)
			continue
		}
		d.op.By = d.paid
		due = append(due, d)
	}
	if len(due) == 0 {
		return decided
	}
	for i, r := range s.apply(ctx, due) {
		if r.Err != nil || r.Admitted == 0 { // or other hits came between
			s.postpone(&due[i])
			continue
		}
		s.settle(&due[i], &r)
	}
	return true
}

func (s *Standin) apply(ctx context.Context, debts []debt) []backends.Reply {
	b := backends.Batch{Ops: make([]backends.Op, len(debts)), Replies: make([]backends.Reply, len(debts))}
	for i := range debts {
		b.Ops[i] = debts[i].op
	}
	_ = s.store.Apply(ctx, &b) // its replies have the error
	return b.Replies
}

// fitting is how much of the debt fits the limit, if r is the reply to a look.
func (d *debt) fitting(r *backends.Reply) backends.Amount {
	room := d.op.Max
	if d.op.Prev != "" {
		room.Whole -= backends.Share(r.Prev, d.op.WeightNum, d.op.WeightDen)
	}
	if !r.Value.Less(room) {
		return backends.Amount{}
	}
	if room = room.Sub(r.Value, d.op.Den); room.Less(d.owed) {
		return room
	}
	return d.owed
}

// postpone leaves a debt to a later Step.
func (s *Standin) postpone(d *debt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.table.find(d.name); e != nil && e.alone != nil {
		s.enqueue(e)
	}
}

// settle notes that a debt was paid as far as it fitted, with the store's last
// reply. Hits that were admitted here meanwhile stay owed.
func (s *Standin) settle(d *debt, r *backends.Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.charge.cells++
	if d.paid.Less(d.owed) {
		s.charge.reduced++
	}
	e := s.table.find(d.name)
	if e == nil || e.alone == nil {
		return
	}
	var left backends.Amount
	if now := e.alone.uncharged(&d.op, e.known); d.owed.Less(now) {
		left = now.Sub(d.owed, d.op.Den)
	}
	s.rebase(e, e.alone.limit, &d.op, r, left)
}
