package lease

import (
	"cmp"
	"slices"
	"time"

	"example.org/rls/pkg/backends"
)

// Sweep ends leases and forgets keys that are no longer hot. It hands the work of
// giving hits back to Options.Go.
func (s *Store) Sweep() { s.enqueue(s.sweep(s.Store.Now(), false)...) }

// sweep returns the hits to give back, in the order of their keys. With all it ends
// every lease, else only the leases that are due.
func (s *Store) sweep(now int64, all bool) (jobs []job) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for stem, e := range sh.hot {
			if j := s.tend(e, now, all); j.hits > 0 {
				j.shard = sh
				jobs = append(jobs, j)
			}
			if e.out() == 0 && e.demand.expected() < hot/4 {
				delete(sh.hot, stem)
				s.keys.Add(-1)
			}
		}
		sh.mu.Unlock()
	}
	slices.SortFunc(jobs, func(a, b job) int { return cmp.Compare(a.op.Key, b.op.Key) })
	return jobs
}

// tend ends the portions of e that are due, or all of them, and returns the job that
// gives their hits back. A job without hits is nothing to do.
func (s *Store) tend(e *entry, now int64, all bool) job {
	e.demand.fold(now, e.terms.TTL)
	if e.over(now) {
		s.abandon(e, now)
	}
	e.drain(now, &s.count)
	if e.returning > 0 {
		return job{}
	}
	until := now
	if all {
		until += e.terms.TTL
	}
	hits, top := e.due(until)
	switch {
	case hits == 0:
		return job{}
	case e.op.Span == backends.FirstHit && now > e.until-max(e.terms.TTL, 4*e.trip):
		// The refund might come after the window's end and lower the next one.
		s.count.lost.Add(uint64(hits))
		return job{}
	}
	e.returning = hits
	return job{entry: e, cell: e.cells, op: e.giveBack(hits, now), hits: hits, back: true, unit: e.terms.Unit, top: top}
}

// abandon ends the lease of e's cell. Hits of a cell that still counts are given
// back.
func (s *Store) abandon(e *entry, now int64) {
	e.drain(now, &s.count)
	e.tidy()
	over := e.over(now)
	top := e.portions[0].top
	switch n := e.drop(); {
	case n == 0:
	case over:
		s.count.lost.Add(uint64(n))
	default:
		s.enqueue(job{op: e.giveBack(n, now), hits: n, back: true, unit: e.terms.Unit, top: top})
	}
}

// forget ends the leases of the cells that b has reset or granted hits to, whether
// or not the store has answered.
func (s *Store) forget(b *backends.Batch) {
	verbs := make(map[string]backends.Verb, len(b.Ops))
	for i := range b.Ops {
		if op := &b.Ops[i]; op.Verb != backends.Charge && verbs[op.Key] != backends.Reset {
			verbs[op.Key] = op.Verb
		}
	}
	now := s.Store.Now()
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for stem, e := range sh.hot {
			switch verbs[e.op.Key] {
			case backends.Charge:
				continue
			case backends.Reset:
				e.reset = e.cells
				s.count.lost.Add(uint64(e.drop()))
			case backends.Grant:
				s.abandon(e, now)
			}
			e.cells++ // jobs under way are about a cell of the past
			delete(sh.hot, stem)
			s.keys.Add(-1)
		}
		sh.mu.Unlock()
	}
}

func (s *Store) sweepOften() {
	defer close(s.swept)
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.Sweep()
		case <-s.stop:
			return
		}
	}
}

// Close gives back all leases, for which it waits at most twice the timeout, and
// closes the store below.
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
	q := &s.queue
	q.mu.Lock()
	s.doAll()
	for q.active > 0 { // a fetch under way brings hits that are to be given back
		q.idle.Wait()
	}
	q.mu.Unlock()
	jobs := s.sweep(s.Store.Now(), true)
	q.mu.Lock()
	q.jobs = append(q.jobs, jobs...)
	s.doAll()
	q.mu.Unlock()
	return s.Store.Close()
}
