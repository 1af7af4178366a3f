package near

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"example.org/rls/pkg/backends"
)

const (
	// sweepEvery is the time between two sweeps, of which one in payEvery charges owed
	// hits.
	sweepEvery, payEvery = 25 * time.Millisecond, 4
	// tries is how many debts a sweep tries to charge while the store takes none.
	tries = 64
	// tellEvery is the least time between two lines in the log, in µs.
	tellEvery = 60_000_000
	// maxSettled bounds the entries that are settled at once, so that replicas do not
	// overload a store that has just come back.
	maxSettled = 512
)

// debts is what is known of charges of owed hits.
type debts struct {
	taken atomic.Bool  // the store has taken such a charge since the last sweep
	tried atomic.Int64 // the debts that sweeps have tried since they began anew
	told  atomic.Int64 // when the log got its last line, µs
	// Since that line: cells whose hits went to the store, those of them that were too
	// full to take all owed hits, and entries that were evicted with hits.
	cells, reduced, lost atomic.Int64
}

// New returns a store with a near cache of next. Close settles all balances and closes
// next.
func New(next backends.Store, o Options) (*Store, error) {
	switch {
	case o.Timeout <= 0:
		return nil, fmt.Errorf("near: a timeout of %v bounds nothing: must be above 0", o.Timeout)
	case o.Cells < 0:
		return nil, fmt.Errorf("near: %d cells: must be 0 or more", o.Cells)
	case o.Cells == 0:
		o.Cells = DefaultCells
	}
	if o.Background == nil {
		o.Background = next
	}
	if o.Replicas == nil {
		o.Replicas = func() int { return 1 }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{Store: next, opts: o, stop: make(chan struct{})}
	s.calls, s.cancel = context.WithCancel(context.Background())
	for i := range s.shards {
		s.shards[i].cells = map[string]*entry{}
	}
	if s.running.SetLimit(maxSettled); o.Go == nil {
		s.running.Go(s.sweepOften)
	}
	return s, nil
}

// Unwrap is the decorated store; see backends.ScannerOf.
func (s *Store) Unwrap() backends.Store { return s.Store }

// enqueue has an entry settled in the background, each entry once at a time. When too many
// are settled, the next sweep tries again. The lock of the shard is held.
func (s *Store) enqueue(sh *shard, e *entry) {
	switch {
	case e.queued, s.closed.Load():
	case s.opts.Go != nil:
		e.queued = true
		s.opts.Go(func() { s.settle(sh, e) })
	default:
		e.queued = s.running.TryGo(func() error {
			s.settle(sh, e)
			return nil
		})
	}
}

// settle fetches the hits that an entry wants, gives back those that nobody may use, and
// charges those that are owed.
func (s *Store) settle(sh *shard, e *entry) {
	sh.mu.Lock()
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
	back := s.pay(sh, e)
	if e.queued = false; e.lease != nil && e.lease.wanted > 0 {
		s.enqueue(sh, e)
	}
	sh.mu.Unlock()
	if back {
		s.sweep(math.MaxInt)
	}
}

// call has the store decide op in the background. The lock of the shard is held, but not
// during the call: afterwards the entry may have been forgotten.
func (s *Store) call(sh *shard, op backends.Op) backends.Reply {
	sh.mu.Unlock()
	defer sh.mu.Lock()
	b := backends.Batch{Ops: []backends.Op{op}, Replies: make([]backends.Reply, 1)}
	ctx, cancel := context.WithTimeout(s.calls, s.opts.Timeout)
	defer cancel()
	_ = s.opts.Background.Apply(ctx, &b) // the reply has the error
	return b.Replies[0]
}

// fetch charges the hits that a lease wants. Hits for a window that is over are lost.
func (s *Store) fetch(sh *shard, e *entry) {
	l, began := e.lease, s.Now()
	op := l.fetch(l.wanted)
	l.fetching, l.wanted = l.wanted, 0
	r := s.call(sh, op)
	now := s.Now()
	if l.fetching = 0; r.Err != nil { // nobody knows whether the hits were charged
		e.at = unheard // the next fetch is a probe
		l.retry = now + l.ttl()
		return
	}
	n := r.Admitted * op.By.Units(op.Unit, op.Den)
	sh.leases.Leased += uint64(n)
	if l.trip == 0 {
		l.trip = now - began
	}
	l.trip = (3*l.trip + now - began) / 4
	late := !s.report(sh, e, &op, &r)
	if e.lease != l || e.over(now) || late && op.Span == backends.FirstHit && r.Until < e.known.Until-backends.Skew/2 {
		sh.leases.Lost += uint64(n)
		return
	}
	l.held += n
	if l.ends = now + l.ttl(); e.credit(&op, r.Now) {
		l.yield(now)
	}
}

// giveBack gives back the hits of a lease that are due. It looks at the cell first: a
// frozen server may still hold a give-back in its socket buffer, and would give the hits
// back once for each call when it wakes up.
func (s *Store) giveBack(sh *shard, e *entry) {
	l := e.lease
	op := l.giveBack(0, s.Now(), 0).Look()
	r := s.call(sh, op)
	now := s.Now()
	switch {
	case e.lease != l:
		return
	case r.Err != nil: // the hits may be used until their window ends
		l.ends, l.retry = now+l.ttl(), now+l.ttl()
		return
	}
	s.report(sh, e, &op, &r)
	hits := l.expire(now)
	if op.Kind == backends.Meter && !e.credit(&op, now) { // leave out hits that have refilled
		n := min(hits, e.ahead(now))
		sh.leases.Refilled += uint64(hits - n)
		hits = n
	}
	if hits == 0 {
		return
	}
	l.returning, op = hits, l.giveBack(hits, now, e.known.Until)
	r = s.call(sh, op)
	if l.returning = 0; r.Err != nil {
		sh.leases.Lost += uint64(hits)
		l.retry = op.Now + l.ttl()
		return
	}
	sh.leases.Returned += uint64(hits)
	s.report(sh, e, &op, &r)
}

// pay charges the hits that are owed to a cell as far as they fit, after a look for the
// same reason as giveBack. It reports whether the store takes charges again.
func (s *Store) pay(sh *shard, e *entry) (back bool) {
	op, owed := e.owed(s.Now())
	if owed == (backends.Amount{}) {
		return false
	}
	r := s.call(sh, op.Look())
	if r.Err != nil || e.alone == nil {
		return false
	}
	back = !s.owed.taken.Swap(true)
	if op.By = room(&op, r.Value, r.Prev); owed.Less(op.By) {
		op.By = owed
	}
	if (backends.Amount{}).Less(op.By) {
		if r = s.call(sh, op); r.Err != nil || r.Admitted == 0 { // other hits came between
			return back
		}
	} else {
		op.By = backends.Amount{}
	}
	s.owed.cells.Add(1)
	if op.By.Less(owed) {
		s.owed.reduced.Add(1)
	}
	at, now := e.owed(op.Now)
	if e.alone == nil {
		return back
	}
	left := backends.Amount{} // hits that were admitted here meanwhile
	if owed.Less(now) {
		left = now.Sub(owed, op.Den)
	}
	e.saw(&at, &r)
	s.rebase(e, op.Now, left)
	return back
}

// Sweep ends leases, forgets keys that are no longer hot, and hands the work of giving
// back and of charging owed hits to Options.Go. Of a store that takes no charges each
// sweep tries other cells.
func (s *Store) Sweep() {
	if s.owed.taken.Swap(false) {
		s.sweep(math.MaxInt)
	} else {
		s.sweep(tries)
	}
}

// sweep hands over the balances that are due, and up to that number of debts. first is
// where the debts begin that earlier sweeps have not tried.
func (s *Store) sweep(pays int) {
	now, debts := s.Now(), 0
	first := int(s.owed.tried.Load())
	s.each(func(sh *shard) {
		sh.busy = slices.DeleteFunc(sh.busy, func(e *entry) bool {
			due := sh.tend(e, now)
			if pays > 0 {
				if _, owed := e.owed(now); owed != (backends.Amount{}) {
					due = due || pays == math.MaxInt || first <= debts && debts < first+pays
					debts++
				}
			}
			if due {
				s.enqueue(sh, e)
			}
			e.busy = e.lease != nil || e.alone != nil
			return !e.busy
		})
	})
	if pays > 0 && debts == 0 {
		s.tell(now)
	}
	if first += tries; pays == tries && first < debts {
		s.owed.tried.Store(int64(first))
	} else if pays > 0 {
		s.owed.tried.Store(0)
	}
}

// tend drops the hits of windows that are over, ends what is no longer needed, and
// reports whether hits are to be given back.
func (sh *shard) tend(e *entry, now int64) (due bool) {
	if l := e.lease; l != nil {
		l.demand.fold(now, l.ttl())
		if e.over(now) {
			sh.lose(l)
		}
		sh.drain(e, now)
		due = l.due(now) || l.wanted > 0
		if l.out() == 0 && l.wanted == 0 && l.demand.expected() < hot/4 {
			sh.endLease(e)
		}
	}
	if e.alone != nil && now-backends.Skew >= e.alone.until() {
		e.alone = nil
	}
	return due
}

// tell logs that the store has all hits that were owed, at most once a minute: a
// connection that loses calls now and then must not fill the log.
func (s *Store) tell(now int64) {
	since := now - s.owed.told.Load()
	if s.owed.cells.Load() == 0 || since >= 0 && since < tellEvery {
		return
	}
	s.owed.told.Store(now)
	s.opts.Log.Info("hits that were admitted while the store was away are charged to it", "keys", s.owed.cells.Swap(0),
		"keys_without_room_for_all", s.owed.reduced.Swap(0), "keys_forgotten", s.owed.lost.Swap(0))
}

func (s *Store) sweepOften() error {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-s.stop:
			return nil
		case <-ticker.C:
		}
		if n%payEvery == 0 {
			s.Sweep()
		} else {
			s.sweep(0)
		}
	}
}

// Close settles all balances, for which it waits at most twice the timeout, and closes
// the store below.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return s.Store.Close()
	}
	late := time.AfterFunc(2*s.opts.Timeout, s.cancel)
	defer late.Stop()
	defer s.cancel()
	close(s.stop)
	var rest []func() error
	s.each(func(sh *shard) {
		for _, e := range sh.busy {
			rest = append(rest, func() error {
				s.settle(sh, e)
				return nil
			})
		}
	})
	_ = s.running.Wait() // a fetch under way brings hits that are to be given back
	var last errgroup.Group
	last.SetLimit(maxSettled)
	for _, settle := range rest {
		last.Go(settle)
	}
	_ = last.Wait()
	return s.Store.Close()
}
