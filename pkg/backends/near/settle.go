package near

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"example.org/rls/pkg/backends"
)

const (
	// sweepEvery is the time between two sweeps.
	sweepEvery = 25 * time.Millisecond
	// maxSettled bounds the entries that are settled at once, so that replicas do not
	// overload a store that has just come back.
	maxSettled = 512
)

// New returns next with a near cache. Close settles all balances and closes next.
func New(next backends.Store, o Options) *Store {
	o.Cells = cmp.Or(o.Cells, DefaultCells)
	o.Background = cmp.Or(o.Background, next)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Replicas == nil {
		o.Replicas = func() int { return 1 }
	}
	s := &Store{Store: next, opts: o}
	s.calls, s.cancel = context.WithCancel(context.Background())
	s.each(func(sh *shard) { sh.cells = map[string]*entry{} })
	if s.running.SetLimit(maxSettled); o.Go == nil {
		s.opts.Go = s.running.TryGo
		s.running.Go(s.sweepOften)
	}
	return s
}

// Unwrap is the decorated store; see backends.ScannerOf.
func (s *Store) Unwrap() backends.Store { return s.Store }

// settle settles the balance of an entry: it fetches wanted hits, gives back surplus and
// unused hits, and charges owed hits. It returns nil.
func (s *Store) settle(sh *shard, e *entry) error {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	switch l := e.lease; {
	case l == nil:
	case s.closed.Load():
		l.yield(s.Now())
	case l.wanted > 0:
		s.fetch(sh, e)
	}
	if l := e.lease; l != nil && l.due(s.Now()) {
		s.giveBack(sh, e)
	}
	if op, owed := e.owed(s.Now()); owed != (backends.Amount{}) {
		s.pay(sh, e, op, owed)
	}
	if e.queued = false; e.lease != nil && e.lease.wanted > 0 {
		s.enqueue(sh, e)
	}
	return nil
}

// fetch charges the hits that a lease wants, or as many as fit, in at most 64 equal steps,
// which may leave out a few. Hits for a window that is over are lost.
func (s *Store) fetch(sh *shard, e *entry) {
	l, began := e.lease, s.Now()
	op, step := l.op.Bare(), (l.wanted+63)/64
	op.By, op.Times = op.Unit.Times(step, op.Den), l.wanted/step
	r := s.call(sh, op)
	now := s.Now()
	if l.wanted = 0; r.Err != nil { // nobody knows whether the hits were charged
		e.at = 0 // the next fetch is a probe
		l.retry = now + l.terms.TTL
		return
	}
	n := r.Admitted * step
	sh.leases.Leased += uint64(n)
	l.trip = (3*cmp.Or(l.trip, now-began) + now - began) / 4
	late := !s.update(sh, e, &op, &r)
	if e.lease != l || late && op.Span == backends.FirstHit && r.Until < e.known.Until-backends.Skew/2 {
		sh.leases.Lost += uint64(n)
		return
	}
	if late && r.Now > sh.steered {
		e.raise(op.Kind, e.known.Reported(&op, &r))
	}
	l.held, l.fetched = l.held+n, now
	sh.drain(e, now)
	if l.ends = now + l.terms.TTL; e.credit(&op, r.Now) {
		l.yield(now)
	}
}

// giveBack gives back the hits of a lease that are due, after a look at the cell: a frozen
// server may hold each give-back in its socket buffer, and make them all when it wakes up.
func (s *Store) giveBack(sh *shard, e *entry) {
	l := e.lease
	op := l.giveBack(0, s.Now(), 0).Look()
	r := s.call(sh, op)
	now := s.Now()
	switch {
	case e.lease != l:
		return
	case r.Err != nil: // the hits may be used until their window ends
		l.ends, l.retry = now+l.terms.TTL, now+l.terms.TTL
		return
	}
	s.update(sh, e, &op, &r)
	if l.ended(now) {
		l.surplus, l.held = l.surplus+l.held, 0
	}
	hits := l.surplus
	if op.Kind == backends.Meter && !e.credit(&op, now) { // the others have refilled
		hits = min(hits, e.ahead(now))
	}
	sh.leases.Refilled += uint64(l.surplus - hits)
	if l.surplus = hits; hits == 0 {
		return
	}
	op = l.giveBack(hits, now, e.known.Until)
	r = s.call(sh, op)
	switch l.surplus -= hits; {
	case e.lease != l: // they are counted as lost
	case r.Err != nil:
		sh.leases.Lost += uint64(hits)
		l.retry = op.Now + l.terms.TTL
	default:
		sh.leases.Returned += uint64(hits)
		s.update(sh, e, &op, &r)
	}
}

// pay charges the amount that is owed to a cell by op as far as it fits, after a look for
// the same reason as giveBack. Slots that are owed it gives back, once: an answer that is lost
// may have given them back.
func (s *Store) pay(sh *shard, e *entry, op backends.Op, owed backends.Amount) {
	local := e.local // before the call, during which e may be forgotten
	r := s.call(sh, op.Look())
	if sh.refused = r.Err != nil; sh.refused || e.local != local {
		return
	}
	room := op.Ceiling(r.Prev).Sub(r.Value, op.Den)
	switch op = of(op, owed); {
	case op.Span == backends.Sliding: // perhaps of the window before
		op.Verb = backends.Fill
	case !op.Verb.GivesBack() && room.Less(owed) && !op.Overdraws():
		op.By = room
	}
	if none := (backends.Amount{}); !none.Less(op.By) {
		op.By = none
	} else {
		paid := s.call(sh, op)
		switch took := paid.Err == nil && (paid.Admitted > 0 || op.Overdraws()); {
		case e.local != local, !took && !op.Verb.GivesBack():
			return // perhaps other hits came between
		case took:
			r = paid
		}
	}
	s.charged.Add(1)
	if op.By.Less(owed) || r.Account != nil { // or a part was cut
		s.full.Add(1)
	}
	at, now := e.owed(op.Now)
	left := backends.Amount{} // hits that were admitted here meanwhile
	if op.Oldest || owed.Less(now) {
		left = now.Sub(owed, op.Den)
	}
	s.rebase(e, op.Now, left)
	s.set(e, &at, &r)
}

// Sweep ends leases, forgets keys that are no longer hot, and has the balances settled
// that are due. While the store takes no charges of owed hits, each sweep tries one cell
// of each shard in turn.
func (s *Store) Sweep() {
	now, owing := s.Now(), false
	s.each(func(sh *shard) {
		tried := false
		if sh.refused && len(sh.busy) > 0 {
			sh.busy = append(sh.busy[1:], sh.busy[0]) // another one is tried first
		}
		sh.busy = slices.DeleteFunc(sh.busy, func(e *entry) bool {
			due := sh.tend(e, now)
			if tried && sh.refused && e.local != nil {
				owing = true
			} else if _, owed := e.owed(now); owed != (backends.Amount{}) {
				owing, due, tried = true, true, true
			}
			if due {
				s.enqueue(sh, e)
			}
			e.busy = e.lease != nil || e.local != nil
			return !e.busy
		})
	})
	if !owing {
		s.tell(now)
	}
}

// tend ends held hits that may pass no more, an idle lease, and local copies of a cell that
// has ended. It reports whether hits are to be fetched or given back.
func (sh *shard) tend(e *entry, now int64) (due bool) {
	if l := e.lease; l != nil {
		e.demand.add(now, 0, l.terms.TTL)
		sh.drain(e, now)
		if l.ended(now) && now >= l.retry && now < l.check+l.terms.TTL/4 && l.held <= 4*l.enough {
			l.ends = now + l.terms.TTL // the key is asked for, and will use what it holds
		}
		due = l.due(now) || l.wanted > 0
		if l.out() == 0 && e.demand.expected() < hot/4 {
			e.lease = nil
		}
	}
	if l := e.local; l != nil && now-backends.Skew >= max(l.mine.Until, l.divided.Until, e.known.Until) {
		e.local = nil
	}
	return due
}

// tell logs that all owed hits are charged, at most once a minute: a connection that loses
// calls now and then must not fill the log.
func (s *Store) tell(now int64) {
	since := now - s.logged.Load()
	if s.charged.Load() == 0 || since >= 0 && since < time.Minute.Microseconds() {
		return
	}
	s.logged.Store(now)
	line := fmt.Sprintf("charged %d keys for hits admitted during the outage (%d were already full)",
		s.charged.Swap(0), s.full.Swap(0))
	s.opts.Log.Info(line, "keys_forgotten", s.lost.Swap(0))
}

func (s *Store) sweepOften() error {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for !s.closed.Load() {
		<-ticker.C
		s.Sweep()
	}
	return nil
}

// Close settles all balances, for which it waits at most twice the timeout, and closes
// the store below.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return s.Store.Close()
	}
	defer time.AfterFunc(2*s.opts.Timeout, s.cancel).Stop()
	defer s.cancel()
	_ = s.running.Wait() // a fetch under way brings hits that are to be given back
	var rest []func() error
	s.each(func(sh *shard) {
		for _, e := range sh.busy {
			rest = append(rest, func() error { return s.settle(sh, e) })
		}
	})
	for _, settle := range rest {
		s.running.Go(settle)
	}
	_ = s.running.Wait()
	return s.Store.Close()
}
