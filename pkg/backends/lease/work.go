package lease

import (
	"context"
	"slices"
	"sync"

	"example.org/rls/pkg/backends"
)

const (
	// mostWorkers is how many background calls are under way at most.
	mostWorkers = 8
	// mostJobs is how many keys one background call has at most.
	mostJobs = 64
)

// job is a fetch, or hits to give back.
type job struct {
	// entry is the key, and cell the one of its cells that the job is about; the
	// entry may have another cell when the job is done. Without an entry nobody
	// needs to know how a give-back ended.
	entry *entry
	shard *shard
	cell  uint64
	op    backends.Op
	hits  int64
	back  bool // give back
	// Of hits that are given back: of one hit, and the portion's.
	unit, top backends.Amount
}

// queue is the jobs that wait for a worker.
type queue struct {
	mu      sync.Mutex
	jobs    []job
	workers int       // handed to Options.Go and not ended
	active  int       // calls of work that have begun and not ended
	idle    sync.Cond // on mu: active is 0
}

// enqueue hands a job to a worker.
func (s *Store) enqueue(jobs ...job) {
	if len(jobs) == 0 {
		return
	}
	q := &s.queue
	q.mu.Lock()
	q.jobs = append(q.jobs, jobs...)
	start := 0
	for q.workers < mostWorkers && start*mostJobs < len(jobs) {
		q.workers++
		start++
	}
	q.mu.Unlock()
	for range start {
		s.opts.Go(s.worker)
	}
}

// work is a worker. It does jobs until none waits.
func (s *Store) work() {
	q := &s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	s.doAll()
	q.workers--
}

// doAll does jobs until none waits. The lock of the queue is held, but not while
// jobs are done.
func (s *Store) doAll() {
	q := &s.queue
	q.active++
	for len(q.jobs) > 0 {
		n := min(len(q.jobs), mostJobs)
		jobs := slices.Clone(q.jobs[:n])
		q.jobs = slices.Delete(q.jobs, 0, n)
		q.mu.Unlock()
		s.do(jobs)
		q.mu.Lock()
	}
	if q.active--; q.active == 0 {
		q.idle.Broadcast()
	}
}

// do makes fetches and looks at cells in one call, and gives hits back to the
// cells that have answered in a second one.
func (s *Store) do(jobs []job) {
	first := make([]backends.Op, len(jobs))
	for i := range jobs {
		if first[i] = jobs[i].op; jobs[i].back {
			first[i] = first[i].Look()
		}
	}
	began := s.Store.Now()
	replies := s.call(first)
	now := s.Store.Now()
	var backs []job
	var refunds []backends.Op
	for i := range jobs {
		switch j := &jobs[i]; {
		case !j.back:
			s.fetched(j, &replies[i], now, now-began)
		case replies[i].Err != nil:
			s.kept(j, &replies[i], now)
		case j.forgotten():
			s.count.lost.Add(uint64(j.hits))
		default:
			j.shrink(now, &s.count)
			backs = append(backs, *j)
			refunds = append(refunds, j.op)
		}
	}
	if len(backs) == 0 {
		return
	}
	replies = s.call(refunds)
	for i := range backs {
		s.returned(&backs[i], &replies[i])
	}
}

// shrink leaves out hits of a meter that have ended by now.
func (j *job) shrink(now int64, count *counters) {
	if j.op.Kind != backends.Meter {
		return
	}
	j.op = at(j.op, now)
	if n := unitsIn(j.top.Sub(backends.Amount{Whole: now}, j.op.Den), j.op.Den, j.unit); n < j.hits {
		count.refilled.Add(uint64(j.hits - n))
		j.hits, j.op.By = n, times(j.unit, n, j.op.Den)
	}
}

func (s *Store) call(ops []backends.Op) []backends.Reply {
	ctx, cancel := context.WithTimeout(s.calls, s.opts.Timeout)
	defer cancel()
	b := backends.Batch{Ops: ops, Replies: make([]backends.Reply, len(ops))}
	_ = s.opts.Background.Apply(ctx, &b) // its replies have the error
	return b.Replies
}

// current locks the shard of the job and reports whether its entry still has the
// job's cell.
func (j *job) current() bool {
	if j.entry == nil {
		return false
	}
	j.shard.mu.Lock()
	if j.entry.cells == j.cell {
		return true
	}
	j.shard.mu.Unlock()
	return false
}

// forgotten reports whether a reset has removed the cell of the job, and with it the
// charge of its hits.
func (j *job) forgotten() bool {
	if j.entry == nil {
		return false
	}
	j.shard.mu.Lock()
	defer j.shard.mu.Unlock()
	return j.cell <= j.entry.reset
}

// fetched takes in the answer to a fetch. Hits for a cell that the entry has left
// are given back.
func (s *Store) fetched(j *job, r *backends.Reply, now, took int64) {
	var n int64
	if r.Err == nil {
		n = r.Admitted * (j.hits / j.op.Times)
		s.count.leased.Add(uint64(n))
	}
	if !j.current() {
		switch {
		case n == 0:
		case j.forgotten():
			s.count.lost.Add(uint64(n))
		default:
			back := job{op: at(j.op, now), hits: n, back: true, unit: j.unit, top: r.Value}
			back.op.By, back.op.Times = times(j.unit, n, j.op.Den), 1
			back.op = back.op.Inverse()
			s.enqueue(back)
		}
		return
	}
	defer j.shard.mu.Unlock()
	e := j.entry
	e.fetching = 0
	if e.fails(r.Err, now); e.failing { // nobody knows whether the hits were charged
		return
	}
	if e.trip == 0 {
		e.trip = took
	}
	e.trip = (3*e.trip + took) / 4
	e.saw(r)
	e.hold(n, now+e.terms.TTL, r.Value)
}

// kept puts hits back into the lease, because the store does not answer. They may
// be used until their window ends.
func (s *Store) kept(j *job, r *backends.Reply, now int64) {
	if !j.current() {
		s.count.lost.Add(uint64(j.hits))
		return
	}
	defer j.shard.mu.Unlock()
	e := j.entry
	e.returning = 0
	e.fails(r.Err, now)
	e.hold(j.hits, now+e.terms.TTL, j.top)
}

// returned takes in the answer to a refund.
func (s *Store) returned(j *job, r *backends.Reply) {
	if r.Err == nil {
		s.count.returned.Add(uint64(j.hits))
	} else {
		s.count.lost.Add(uint64(j.hits))
	}
	if !j.current() {
		return
	}
	defer j.shard.mu.Unlock()
	j.entry.returning = 0
	if j.entry.fails(r.Err, j.op.Now); !j.entry.failing {
		j.entry.saw(r)
	}
}
