package near

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"example.org/rls/pkg/backends"
)

const (
	// sweepEvery is the time between two sweeps, of which one in payEvery charges owed
	// hits.
	sweepEvery, payEvery = 25 * time.Millisecond, 4
	// tellEvery is the least time between two lines in the log, in µs.
	tellEvery = 60_000_000
)

// job is one operation of a worker on the cell of an entry.
type job struct {
	task
	begun uint32 // entry.life when the job began; another life has another cell
	kind  kind
	op    backends.Op // the fetch, the give-back, or the payment
	hits  int64       // of a fetch or a give-back
	owed  backends.Amount
}

type kind uint8

const (
	toFetch kind = iota
	toReturn
	toPay
)

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
	s := &Store{Store: next, opts: o}
	s.calls, s.giveUp = context.WithCancel(context.Background())
	s.worker, s.queue.idle.L = s.work, &s.queue.mu
	for i := range s.shards {
		s.shards[i].cells = map[string]*entry{}
	}
	if o.Go == nil {
		s.opts.Go = func(work func()) { go work() }
		s.stop, s.swept = make(chan struct{}), make(chan struct{})
		go s.sweepOften()
	}
	return s, nil
}

// Unwrap is the decorated store; see backends.ScannerOf.
func (s *Store) Unwrap() backends.Store { return s.Store }

// work is a worker. It settles entries until none waits.
func (s *Store) work() {
	q := &s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	s.settleAll()
	q.workers--
}

// settleAll settles entries until none waits. The lock of the queue is held, but not
// during calls.
func (s *Store) settleAll() {
	q := &s.queue
	q.active++
	for len(q.tasks) > 0 {
		n := min(len(q.tasks), maxJobs)
		tasks := slices.Clone(q.tasks[:n])
		q.tasks = slices.Delete(q.tasks, 0, n)
		q.mu.Unlock()
		s.settle(tasks)
		q.mu.Lock()
	}
	if q.active--; q.active == 0 {
		q.idle.Broadcast()
	}
}

// settle fetches the hits that are wanted and looks at the other cells in one call. In
// a second one it gives hits back to the cells that have answered, and charges the owed
// hits: a frozen server may still hold the first call in its socket buffer, and would
// charge the hits once for each call when it wakes up.
func (s *Store) settle(tasks []task) {
	began := s.Store.Now()
	var jobs []job
	for _, t := range tasks {
		jobs = t.jobs(jobs, began)
	}
	replies := s.call(jobs, true)
	now := s.Store.Now()
	var second []job
	paid, refused := 0, 0
	for i := range jobs {
		j := &jobs[i]
		if j.kind == toPay && replies[i].Err == nil {
			paid++
		} else if j.kind == toPay {
			refused++
		}
		if s.looked(j, &replies[i], now, now-began) {
			second = append(second, *j)
		}
	}
	if paid+refused > 0 && s.pay.refused.Swap(paid == 0) && paid > 0 {
		defer s.Sweep() // the store is back: charge it with the rest
	}
	for i, r := range s.call(second, false) {
		s.settled(&second[i], &r)
	}
}

// call applies the operations of jobs on the way for background calls; first, only looks
// at the cells but for fetches.
func (s *Store) call(jobs []job, first bool) []backends.Reply {
	if len(jobs) == 0 {
		return nil
	}
	b := backends.Batch{Ops: make([]backends.Op, len(jobs)), Replies: make([]backends.Reply, len(jobs))}
	for i := range jobs {
		if b.Ops[i] = jobs[i].op; first && jobs[i].kind != toFetch {
			b.Ops[i] = b.Ops[i].Look()
		}
	}
	ctx, cancel := context.WithTimeout(s.calls, s.opts.Timeout)
	defer cancel()
	_ = s.opts.Background.Apply(ctx, &b) // its replies have the error
	return b.Replies
}

// jobs appends the jobs that settle the entry's balance at now.
func (t task) jobs(to []job, now int64) []job {
	t.shard.mu.Lock()
	defer t.shard.mu.Unlock()
	t.queued = false
	if l := t.lease; l != nil {
		if l.wanted > 0 {
			l.fetching, l.wanted = l.wanted, 0
			to = append(to, job{task: t, begun: t.life, op: l.fetch(l.fetching), hits: l.fetching})
		}
		if l.due(now) {
			l.looking = true
			to = append(to, job{task: t, begun: t.life, kind: toReturn, op: l.giveBack(0, now, 0)})
		}
	}
	if op, owed := t.owed(now); owed != (backends.Amount{}) && !t.paying {
		t.paying = true
		to = append(to, job{task: t, begun: t.life, kind: toPay, op: op, owed: owed})
	}
	return to
}

// looked takes in the answer to the first call, and reports whether the job's operation
// is to follow it. took is the time of the call.
func (s *Store) looked(j *job, r *backends.Reply, now, took int64) bool {
	j.shard.mu.Lock()
	defer j.shard.mu.Unlock()
	l := j.lease
	switch {
	case j.life != j.begun || j.kind != toPay && l == nil: // the cell was reset
		if j.kind == toFetch && r.Err == nil {
			j.shard.leases.Lost += uint64(r.Admitted * (j.hits / j.op.Times))
		}
		return false
	case j.kind == toFetch:
		s.fetched(j, r, now, took)
		return false
	case j.kind == toPay:
		if j.paying = false; r.Err != nil {
			return false
		}
		if j.op.By = j.fitting(r); j.op.By == (backends.Amount{}) {
			s.paid(j, r)
		}
		j.paying = j.op.By != (backends.Amount{})
		return j.paying
	}
	l.looking = false
	if l.failed(r.Err, now) { // the hits may be used until their window ends
		for i := range l.portions {
			l.portions[i].ends = now + l.ttl()
		}
		return false
	}
	if !j.late(r, j.shard.steered) {
		s.heard(j.entry, &j.op, r)
	}
	if j.hits = l.expire(now); j.op.Kind == backends.Meter && !j.credit(&j.op, now) { // leave out hits that have refilled
		n := min(j.hits, j.ahead(now))
		j.shard.leases.Refilled += uint64(j.hits - n)
		j.hits = n
	}
	l.returning, j.op = j.hits, l.giveBack(j.hits, now, j.known.Until)
	return j.hits > 0
}

// fetched takes in the answer to a fetch. Hits for a window that is over are lost.
func (s *Store) fetched(j *job, r *backends.Reply, now, took int64) {
	l := j.lease
	l.fetching = 0
	if l.failed(r.Err, now) { // nobody knows whether the hits were charged
		j.at = unheard // the next fetch is a probe
		return
	}
	n := r.Admitted * (j.hits / j.op.Times)
	j.shard.leases.Leased += uint64(n)
	if l.trip == 0 {
		l.trip = took
	}
	l.trip = (3*l.trip + took) / 4
	late := j.late(r, j.shard.steered)
	if !late {
		s.heard(j.entry, &j.op, r)
	}
	if j.over(now) || late && j.op.Span == backends.FirstHit && r.Until < j.known.Until-backends.Skew/2 {
		j.shard.leases.Lost += uint64(n)
		return
	}
	if l.hold(n, now+l.ttl()); j.credit(&j.op, r.Now) {
		l.yield(now)
	}
}

// settled takes in the answer to a give-back or a payment.
func (s *Store) settled(j *job, r *backends.Reply) {
	j.shard.mu.Lock()
	defer j.shard.mu.Unlock()
	if r.Err == nil {
		j.shard.leases.Returned += uint64(j.hits)
	} else {
		j.shard.leases.Lost += uint64(j.hits)
	}
	switch {
	case j.life != j.begun:
	case j.kind == toPay:
		if j.paying = false; r.Err == nil && r.Admitted > 0 { // else other hits came between
			s.paid(j, r)
		}
	case j.lease != nil:
		j.lease.returning = 0
		if !j.lease.failed(r.Err, j.op.Now) && !j.late(r, j.shard.steered) {
			s.heard(j.entry, &j.op, r)
		}
	}
}

// fitting is the part of the debt that fits the limit, if r is the reply to a look.
func (j *job) fitting(r *backends.Reply) backends.Amount {
	room := j.op.Max
	if j.op.Prev != "" {
		room.Whole -= backends.Weighted(r.Prev, j.op.WeightNum, j.op.WeightDen)
	}
	if !r.Value.Less(room) {
		return backends.Amount{}
	}
	if room = room.Sub(r.Value, j.op.Den); room.Less(j.owed) {
		return room
	}
	return j.owed
}

// paid notes that a debt was charged as far as it fitted, with the store's last reply.
// Hits that were admitted here meanwhile stay owed.
func (s *Store) paid(j *job, r *backends.Reply) {
	s.pay.cells.Add(1)
	if j.op.By.Less(j.owed) {
		s.pay.reduced.Add(1)
	}
	op, owed := j.entry.owed(j.op.Now)
	if j.alone == nil {
		return
	}
	left := backends.Amount{}
	if j.owed.Less(owed) {
		left = owed.Sub(j.owed, op.Den)
	}
	j.saw(&op, r)
	s.rebase(j.entry, op.Now, left)
}

// Sweep ends leases, forgets keys that are no longer hot and cells that have ended, and
// hands the work of giving back and of charging owed hits to Options.Go.
func (s *Store) Sweep() { s.sweep(true) }

// sweep hands over the balances that are due, of debts only with pay. Of a store that
// refuses payments each sweep tries other cells.
func (s *Store) sweep(pay bool) {
	now, pays, first, debts := s.Store.Now(), 0, 0, 0
	switch {
	case !pay:
	case s.pay.refused.Load():
		pays, first = maxJobs, int(s.pay.turn.Add(1))
	default:
		pays = math.MaxInt
	}
	for i := range s.shards {
		sh := &s.shards[(first+i)%shardCount]
		sh.mu.Lock()
		for i := len(sh.busy) - 1; i >= 0; i-- {
			e := sh.busy[i]
			due := sh.tend(e, now)
			if pay {
				if _, owed := e.owed(now); owed != (backends.Amount{}) {
					debts++
					due = due || debts <= pays
				}
			}
			if due {
				s.enqueue(sh, e)
			}
		}
		sh.forgetEnded(now)
		sh.mu.Unlock()
	}
	if pay && debts == 0 {
		s.tell(now)
	}
}

// tend drops the hits of windows that are over, lets e rest if it has no balance, and
// reports whether hits are to be given back.
func (sh *shard) tend(e *entry, now int64) (due bool) {
	if l := e.lease; l != nil {
		l.demand.fold(now, l.ttl())
		if e.over(now) {
			sh.leases.Lost += uint64(l.spend(l.held()))
		}
		sh.drain(e, now)
		due = l.due(now)
		if l.out() == 0 && l.wanted == 0 && l.demand.expected() < hot/4 {
			sh.endLease(e)
		}
	}
	if e.alone != nil && now-backends.Skew >= e.alone.until() {
		e.alone = nil
	}
	if e.lease == nil && e.alone == nil {
		sh.rest(e)
	}
	return due
}

// tell logs that the store has all hits that were owed, at most once a minute: a
// connection that loses calls now and then must not fill the log.
func (s *Store) tell(now int64) {
	since := now - s.pay.told.Load()
	if s.pay.cells.Load() == 0 || since >= 0 && since < tellEvery {
		return
	}
	s.pay.told.Store(now)
	s.opts.Log.Info("hits that were admitted while the store was away are charged to it", "keys", s.pay.cells.Swap(0),
		"keys_without_room_for_all", s.pay.reduced.Swap(0), "keys_forgotten", s.pay.lost.Swap(0))
}

func (s *Store) sweepOften() {
	defer close(s.swept)
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-ticker.C:
			s.sweep(n%payEvery == 0)
		case <-s.stop:
			return
		}
	}
}

// Close settles all balances, for which it waits at most twice the timeout, and closes
// the store below.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return s.Store.Close()
	}
	if s.stop != nil {
		close(s.stop)
		<-s.swept
	}
	late := time.AfterFunc(2*s.opts.Timeout, s.giveUp)
	defer late.Stop()
	defer s.giveUp()
	s.finish()
	now := s.Store.Now()
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for _, e := range sh.busy {
			if e.lease != nil {
				e.lease.yield(now)
			}
		}
		sh.mu.Unlock()
	}
	s.pay.refused.Store(false)
	s.Sweep()
	s.finish()
	return s.Store.Close()
}

// finish settles what waits, and waits for workers: a fetch under way brings hits that
// are to be given back.
func (s *Store) finish() {
	q := &s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	s.settleAll()
	for q.active > 0 {
		q.idle.Wait()
	}
}
