package near

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.org/rls/pkg/backends"
)

const (
	// maxWorkers bounds the background calls that are under way.
	maxWorkers = 8
	// maxJobs bounds the cells of one background call, so that replicas do not overload
	// a store that has just come back.
	maxJobs = 64
	// sweepEvery is the time between two sweeps, of which one in payEvery charges owed
	// hits.
	sweepEvery, payEvery = 25 * time.Millisecond, 4
	// tellEvery is the least time between two lines in the log, in µs.
	tellEvery = 60_000_000
)

// queue is the entries that wait for a worker, each of them once.
type queue struct {
	mu      sync.Mutex
	tasks   []task
	workers int       // handed to Options.Go and not ended
	active  int       // calls of work that have begun and not ended
	idle    sync.Cond // on mu: active is 0
}

// task is an entry whose balance a worker is to settle.
type task struct {
	entry *entry
	shard *shard
}

// payments is what is known of charges of owed hits.
type payments struct {
	refused atomic.Bool  // the store decides nothing; one call at a time tries it
	turn    atomic.Int64 // the shard at which the next such call begins
	told    atomic.Int64 // when the log got its last line, µs
	// Since that line: cells whose hits went to the store, those of them that were too
	// full to take all owed hits, and entries that were evicted with hits.
	cells, reduced, lost atomic.Int64
}

// job is one operation of a worker on the cell of an entry.
type job struct {
	task
	life uint32 // of the entry when the job began; another life has another cell
	kind kind
	op   backends.Op // the fetch, the give-back, or the payment
	back portion     // the hits of a fetch or a give-back
	owed backends.Amount
}

type kind uint8

const (
	fetching kind = iota
	returning
	paying
)

// enqueue hands an entry to a worker. The lock of its shard is held.
func (s *Store) enqueue(sh *shard, e *entry) {
	if e.tasks {
		return
	}
	e.tasks = true
	q := &s.queue
	q.mu.Lock()
	q.tasks = append(q.tasks, task{e, sh})
	start := q.workers < maxWorkers && q.workers*maxJobs < len(q.tasks)
	if start {
		q.workers++
	}
	q.mu.Unlock()
	if start {
		s.opts.Go(s.worker)
	}
}

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
// a second one it gives hits back to the cells that have answered, and charges them with
// what is owed: a frozen server may still hold the first call in its socket buffer, so
// nothing is sent to it that would count twice.
func (s *Store) settle(tasks []task) {
	began := s.Store.Now()
	var jobs []job
	var ops []backends.Op
	for _, t := range tasks {
		jobs = t.jobs(jobs, began)
	}
	for i := range jobs {
		op := jobs[i].op
		if jobs[i].kind != fetching {
			op = op.Look()
		}
		ops = append(ops, op)
	}
	replies := s.call(ops)
	now := s.Store.Now()
	var second []job
	ops = ops[:0]
	pays, paid := 0, 0
	for i := range jobs {
		j, r := &jobs[i], &replies[i]
		if j.kind == paying {
			if pays++; r.Err == nil {
				paid++
			}
		}
		if j.kind == fetching {
			s.fetched(j, r, now, now-began)
		} else if s.goesOn(j, r, now) {
			second, ops = append(second, *j), append(ops, j.op)
		}
	}
	if pays > 0 && s.pay.refused.Swap(paid == 0) && paid > 0 {
		defer s.Sweep() // the store is back: charge it with the rest
	}
	replies = s.call(ops)
	for i := range second {
		s.settled(&second[i], &replies[i])
	}
}

// call applies operations on the way for background calls.
func (s *Store) call(ops []backends.Op) []backends.Reply {
	b := backends.Batch{Ops: ops, Replies: make([]backends.Reply, len(ops))}
	if len(ops) > 0 {
		ctx, cancel := context.WithTimeout(s.calls, s.opts.Timeout)
		defer cancel()
		_ = s.opts.Background.Apply(ctx, &b) // its replies have the error
	}
	return b.Replies
}

// jobs appends the jobs that settle the entry's balance at now.
func (t task) jobs(to []job, now int64) []job {
	t.shard.mu.Lock()
	defer t.shard.mu.Unlock()
	e := t.entry
	e.tasks = false
	if l := e.lease; l != nil {
		if l.wanted > 0 {
			l.fetching, l.wanted = l.wanted, 0
			to = append(to, job{task: t, life: e.life, op: l.fetch(l.fetching), back: portion{hits: l.fetching}})
		}
		if l.returning == 0 {
			if p := l.due(now); p.hits > 0 {
				l.returning = p.hits
				to = append(to, job{task: t, life: e.life, kind: returning, op: l.giveBack(&p, now), back: p})
			}
		}
	}
	if e.owes() && !e.paying {
		op := e.alone.payment(now)
		if owed := e.alone.owed(&op); owed != (backends.Amount{}) {
			e.paying = true
			to = append(to, job{task: t, life: e.life, kind: paying, op: op, owed: owed})
		}
	}
	return to
}

// goesOn takes in the look before a give-back or a payment, and reports whether the
// job's operation is to follow it.
func (s *Store) goesOn(j *job, r *backends.Reply, now int64) bool {
	j.shard.mu.Lock()
	defer j.shard.mu.Unlock()
	e := j.entry
	switch {
	case e.life != j.life: // the cell of the job was reset
		s.count.lost.Add(uint64(j.back.hits))
		return false
	case j.kind == paying && r.Err != nil:
		e.paying = false
		return false
	case j.kind == paying:
		if j.op.By = j.fitting(r); j.op.By == (backends.Amount{}) {
			s.paid(j, r)
		}
		return j.op.By != (backends.Amount{})
	case r.Err != nil: // the hits may be used until their window ends
		e.lease.returning = 0
		e.lease.fails(r.Err, now)
		j.back.ends = now + e.lease.ttl()
		e.lease.hold(j.back)
		return false
	case j.op.Kind == backends.Meter: // leave out hits that have refilled by now
		if n := j.back.ahead(&j.op, now); n < j.back.hits {
			s.count.refilled.Add(uint64(j.back.hits - n))
			j.back.hits = n
		}
		j.op = e.lease.giveBack(&j.back, now)
	}
	return true
}

// fetched takes in the answer to a fetch. Hits for a window that is over are lost.
func (s *Store) fetched(j *job, r *backends.Reply, now, took int64) {
	j.shard.mu.Lock()
	defer j.shard.mu.Unlock()
	var n int64
	if r.Err == nil {
		n = r.Admitted * (j.back.hits / j.op.Times)
		s.count.leased.Add(uint64(n))
	}
	e := j.entry
	if e.life != j.life || e.lease == nil {
		s.count.lost.Add(uint64(n))
		return
	}
	l := e.lease
	l.fetching = 0
	if l.fails(r.Err, now); l.failing { // nobody knows whether the hits were charged
		return
	}
	if l.trip == 0 {
		l.trip = took
	}
	l.trip = (3*l.trip + took) / 4
	if j.op.Span == backends.FirstHit && r.Until != e.known.Until && now < e.known.Until && e.known.Value.Whole > 0 {
		s.count.lost.Add(uint64(n))
		return
	}
	if !e.late(r, j.shard.steered) {
		s.heard(j.shard, e, &j.op, r)
	}
	p := portion{hits: n, ends: now + l.ttl(), top: r.Value, until: r.Until}
	if e.over(now) {
		s.count.lost.Add(uint64(n))
		return
	}
	if l.hold(p); e.credit(&j.op, r.Now) {
		l.yield(now)
	}
}

// settled takes in the answer to a give-back or a payment.
func (s *Store) settled(j *job, r *backends.Reply) {
	j.shard.mu.Lock()
	defer j.shard.mu.Unlock()
	e := j.entry
	if j.kind == paying {
		if e.life != j.life {
			return
		}
		if e.paying = false; r.Err == nil && r.Admitted > 0 { // else other hits came between
			s.paid(j, r)
		}
		return
	}
	if r.Err == nil {
		s.count.returned.Add(uint64(j.back.hits))
	} else {
		s.count.lost.Add(uint64(j.back.hits))
	}
	if e.life != j.life || e.lease == nil {
		return
	}
	e.lease.returning = 0
	if e.lease.fails(r.Err, j.op.Now); r.Err == nil && !e.late(r, j.shard.steered) {
		s.heard(j.shard, e, &j.op, r)
	}
}

// fails notes whether a background call for the cell had an answer.
func (l *lease) fails(err error, now int64) {
	if l.failing = err != nil; l.failing {
		l.retry = now + l.ttl()
	}
}

// payment is the operation that charges what is owed at now; By is missing. A hit that
// was admitted here waits for no turn.
func (a *alone) payment(now int64) backends.Op {
	op := a.op
	op.Lease, op.Group, op.Role, op.IfUndecided = nil, 0, backends.Firm, backends.Open
	op.Refund, op.Undo, op.ChargeDenied, op.Times = false, false, false, 1
	if op.Kind == backends.Meter && op.Furthest != backends.NoMax {
		op.Max = op.Furthest
	}
	return op.At(now)
}

// fitting is how much of what is owed fits the limit, if r is the reply to a look.
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
	e := j.entry
	if e.paying = false; e.alone == nil {
		return
	}
	var left backends.Amount
	op := e.alone.payment(j.op.Now)
	if owed := e.alone.owed(&op); j.owed.Less(owed) {
		left = owed.Sub(j.owed, op.Den)
	}
	e.saw(&op, r)
	s.rebase(j.shard, e, op.Now, left)
}

// Sweep ends leases, forgets keys that are no longer hot and cells that have ended, and
// hands the work of giving back and of charging owed hits to Options.Go.
func (s *Store) Sweep() { s.sweep(true) }

// sweep hands over the balances that are due, of debts only with pay. Of a store that
// refuses payments each sweep tries other cells.
func (s *Store) sweep(pay bool) {
	now, pays, first := s.Store.Now(), 0, 0
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
			s.tend(sh, sh.busy[i], now, &pays)
		}
		s.forgetEnded(sh, now)
		sh.mu.Unlock()
	}
	s.tell(now)
}

// tend hands over e's balance if it is due, and lets e rest when it has none.
func (s *Store) tend(sh *shard, e *entry, now int64, pays *int) {
	due := false
	if l := e.lease; l != nil {
		l.demand.fold(now, l.ttl())
		if e.over(now) {
			s.count.lost.Add(uint64(l.drop()))
		}
		l.drain(now, &s.count)
		due = l.returning == 0 && l.isDue(now)
		if l.out() == 0 && l.wanted == 0 && l.demand.expected() < hot/4 {
			s.endLease(e)
		}
	}
	if e.alone != nil && now-backends.Skew >= e.alone.until() {
		s.endDebt(e)
	}
	if e.owes() && *pays > 0 {
		*pays--
		due = true
	}
	switch {
	case due:
		s.enqueue(sh, e)
	case e.lease == nil && !e.owes():
		sh.rest(e)
	}
}

// tell logs that the store has all hits that were owed, at most once a minute: a
// connection that loses calls now and then must not fill the log.
func (s *Store) tell(now int64) {
	since := now - s.pay.told.Load()
	if s.debts.Load() > 0 || s.pay.cells.Load() == 0 || since >= 0 && since < tellEvery {
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
