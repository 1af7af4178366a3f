package testenv

import (
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/procfs"
)

// Stalls are the times in which a process was ready to run and did not, because the
// machine was busy. A test that judges how long something took subtracts them: then
// other work on the machine does not make it fail, and its bound need not be so wide
// that a defect fits into it.
type Stalls struct {
	pids []int

	mu sync.Mutex
	// Each is in order, and its stalls do not overlap.
	late   []stall // timers of this process fired late
	queued []stall // threads of the processes waited for a processor

	ticked time.Time             // the last look at the timer
	looked time.Time             // the last look at the threads
	waited map[int]time.Duration // by thread: its wait until then
}

// stall is a time of which some was lost.
type stall struct {
	from, to time.Time
	lost     time.Duration // by the thread that lost most
	all      time.Duration // by all threads together
}

const (
	timerPace  = time.Millisecond
	threadPace = 10 * time.Millisecond
	// A timer that fires later than this was held up.
	lateTimer = 5 * time.Millisecond
)

// WatchStalls watches timers of this process, and the threads of the processes with
// these ids, until the test ends. Where the kernel does not say how long threads wait
// for a processor, it watches timers only.
func WatchStalls(t testing.TB, pids ...int) *Stalls {
	s, stop := watchStalls(pids)
	t.Cleanup(stop)
	return s
}

func watchStalls(pids []int) (s *Stalls, stop func()) {
	now := time.Now()
	s = &Stalls{pids: pids, ticked: now, looked: now, waited: queued(pids)}
	var ended atomic.Bool
	var watching sync.WaitGroup
	watching.Go(func() {
		for tick := time.NewTicker(timerPace); !ended.Load(); <-tick.C {
			s.look(threadPace)
		}
	})
	return s, func() {
		ended.Store(true)
		watching.Wait()
	}
}

// Within polls cond as Eventually does, and fails the test with msg if cond has become
// true later than limit, apart from stalls of this process and of the processes with
// these ids. The log of the test says so if only stalls were the reason. A cond that
// has not become true after half a minute ends the test.
func Within(t testing.TB, limit time.Duration, cond func() bool, msg string, pids ...int) {
	t.Helper()
	const patience = 30 * time.Second
	s, stop := watchStalls(append(pids, os.Getpid()))
	defer stop()
	began := time.Now()
	held := Poll(limit+patience, cond)
	took, stalled := time.Since(began), s.Since(began)
	switch {
	case !held:
		t.Fatalf("not within %v: %s", took, msg)
	case took-stalled > limit:
		t.Errorf("only after %v, of which the machine stalled for %v, want %v: %s", took, stalled, limit, msg)
	case took > limit:
		t.Logf("not measured, because the machine stalled for %v of %v: %s", stalled, took, msg)
	}
}

// look records the time that was lost since the last look. It looks at the threads if at
// least pace has passed since it last looked at them.
func (s *Stalls) look(pace time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if lost := now.Sub(s.ticked) - timerPace; lost > lateTimer {
		s.late = append(s.late, stall{s.ticked, now, lost, lost})
	}
	s.ticked = now
	if now.Sub(s.looked) < pace {
		return
	}
	waited, one := queued(s.pids), stall{from: s.looked, to: now}
	for thread, w := range waited {
		lost := w - s.waited[thread]
		one.lost = max(one.lost, min(lost, now.Sub(s.looked)))
		one.all += lost
	}
	if one.all > 0 {
		s.queued = append(s.queued, one)
	}
	s.looked, s.waited = now, waited
}

// queued returns how long each thread of some processes has waited for a processor
// since it began; see sched-stats in the kernel's documentation.
func queued(pids []int) map[int]time.Duration {
	all := map[int]time.Duration{}
	for _, pid := range pids {
		threads, _ := procfs.AllThreads(pid) // none if the process has ended
		for _, thread := range threads {
			if stat, err := thread.Schedstat(); err == nil { // else the thread has ended
				all[thread.PID] = time.Duration(stat.WaitingNanoseconds)
			}
		}
	}
	return all
}

// Between returns how much of the time between two moments was lost by a timer, or by
// the thread that at each time lost most. Stalls that lie partly in it count wholly.
func (s *Stalls) Between(from, to time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(lost(overlap(s.late, from, to)), lost(overlap(s.queued, from, to)))
}

// Since is Between a moment and now.
func (s *Stalls) Since(from time.Time) time.Duration {
	s.look(threadPace)
	return s.Between(from, time.Now())
}

// Calm reports whether no timer was late between two moments, and fewer than one thread
// of the processes waited on average. Ask it some time after the second moment: it sees
// a stall at the stall's end.
func (s *Stalls) Calm(from, to time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(overlap(s.late, from, to)) == 0 &&
		!slices.ContainsFunc(overlap(s.queued, from, to), func(one stall) bool { return one.all >= one.to.Sub(one.from) })
}

// overlap returns the part of a list of stalls that overlaps with the time between two
// moments.
func overlap(all []stall, from, to time.Time) []stall {
	first, _ := slices.BinarySearchFunc(all, from, func(one stall, t time.Time) int { return one.to.Compare(t) })
	end := first
	for end < len(all) && all[end].from.Before(to) {
		end++
	}
	return all[first:end]
}

func lost(in []stall) (total time.Duration) {
	for _, one := range in {
		total += one.lost
	}
	return total
}
