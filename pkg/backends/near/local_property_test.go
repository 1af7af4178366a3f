package near_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
)

// seeds is how many random histories each test plays.
const seeds = 300

// anyLimit is a random limit per minute, by strategy.
func anyLimit(t *testing.T, rnd *rand.Rand, s algorithms.Strategy) *algorithms.Limit {
	spec := algorithms.Spec{Strategy: s, Requests: 1 + rnd.Uint32N(40)}
	switch s {
	case algorithms.TokenBucket, algorithms.GCRA, algorithms.LeakyBucket:
		spec.Burst = rnd.Uint32N(60)
	case algorithms.FixedWindow:
		spec.FromFirstHit = rnd.IntN(2) == 0
	case algorithms.SlidingWindow:
		if rnd.IntN(2) == 0 {
			spec.Precision = 2 + rnd.Uint32N(59)
		}
	}
	if (s == algorithms.FixedWindow || s.HasBurst()) && !spec.FromFirstHit && rnd.IntN(2) == 0 {
		spec.Overdraft = []uint64{algorithms.FullOverdraft, 1 + rnd.Uint64N(20)}[rnd.IntN(2)]
	}
	return limit(t, spec)
}

// eachStrategy runs play with seeds random numbers for each strategy.
func eachStrategy(t *testing.T, play func(t *testing.T, rnd *rand.Rand, s algorithms.Strategy)) {
	for i, name := range algorithms.Names() {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(seeds) {
				play(t, rand.New(rand.NewPCG(seed, uint64(i))), algorithms.Strategy(i))
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

// TestNeverMoreThanRemained: within one window the replicas together admit at most
// what remained when the server went away, and one hit less than there are replicas
// beyond it. What remains grows as a bucket fills and as old hits leave.
func TestNeverMoreThanRemained(t *testing.T) {
	eachStrategy(t, func(t *testing.T, rnd *rand.Rand, s algorithms.Strategy) {
		srv := newServer(t)
		l := anyLimit(t, rnd, s)
		n := 1 + rnd.IntN(7)
		replicas := make([]*replica, n)
		for i := range replicas {
			replicas[i] = newReplica(t, srv, n)
		}
		if rnd.IntN(4) > 0 { // else nothing is known
			for range rnd.IntN(60) {
				srv.pass(time.Duration(rnd.IntN(4)) * time.Second)
				replicas[rnd.IntN(n)].ask(l, "k", algorithms.Charge{Cost: 1, AdmittedOnly: true})
			}
			if rnd.IntN(2) == 0 { // begin in a window that has none of these hits
				srv.clock.Store((srv.clock.Load()/minute + 1) * minute)
			}
			for _, r := range replicas {
				r.left(l, "k")
			}
		}
		remained := int(replicas[0].left(l, "k"))
		began := srv.clock.Load()
		window := began / minute
		srv.away.Store(true)
		admitted := 0
		for range 150 {
			srv.pass(time.Duration(rnd.IntN(500)) * time.Millisecond)
			now := srv.clock.Load()
			if now/minute != window && !l.FromFirstHit || now >= began+minute {
				break
			}
			if l.FromFirstHit && remaining(srv, l, "k") > remained {
				break // the window has ended
			}
			cost := 1 + rnd.Uint64N(3)
			if l.Overdraft > 0 { // it passes while a hit remains, whatever it costs
				cost = 1
			}
			if replicas[rnd.IntN(n)].ask(l, "k", algorithms.Charge{Cost: cost, AdmittedOnly: true}).Allowed {
				admitted += int(cost)
			}
			room := remained
			switch s {
			case algorithms.TokenBucket, algorithms.GCRA, algorithms.LeakyBucket:
				room += int((now-began)*int64(l.Requests)/minute) + 1 // with a part of a hit
			case algorithms.SlidingWindow, algorithms.SlidingLog, algorithms.Concurrency:
				room = max(room, remaining(srv, l, "k"))
			}
			if admitted > room+n-1 {
				t.Fatalf("%d replicas admitted %d, and %d remained: %+v", n, admitted, room, l.Spec)
			}
		}
	})
}

// remaining is what remains in the server's cell, whether or not it is away.
func remaining(srv *server, l *algorithms.Limit, key string) int {
	b := backends.Batch{Ops: make([]backends.Op, 1), Replies: make([]backends.Reply, 1)}
	l.Plan(&b.Ops[0], algorithms.Identity{ID: []byte(key)}, algorithms.Charge{Now: srv.clock.Load()})
	_ = srv.Store.Apply(context.Background(), &b)
	return int(l.Judge(&b.Ops[0], &b.Replies[0]).Remaining)
}

// TestAsIfNothingHadHappened: a single replica decides through several outages as
// one whose server was never away, and the server ends with the same counters. The
// times of a log's hits before an outage are not known: there fewer hits may pass.
// Windows that begin at a hit are left out: on the server they begin when it is
// told, so neither side is an oracle for the other.
func TestAsIfNothingHadHappened(t *testing.T) {
	eachStrategy(t, func(t *testing.T, rnd *rand.Rand, s algorithms.Strategy) {
		srv, oracle := newServer(t), newServer(t)
		l := anyLimit(t, rnd, s)
		if l.FromFirstHit {
			return
		}
		r, right := newReplica(t, srv, 1), newReplica(t, oracle, 1)
		exact := s != algorithms.SlidingLog && s != algorithms.Concurrency && l.Precision == 0
		history := ""
		for range 200 {
			d := time.Duration(rnd.IntN(20_000)) * time.Millisecond / time.Duration(1+rnd.IntN(20))
			srv.pass(d)
			oracle.pass(d)
			if rnd.IntN(8) == 0 {
				if srv.away.Load() {
					srv.away.Store(false)
					r.Step()
					r.Step()
				} else {
					srv.away.Store(true)
				}
				history += fmt.Sprintf("%v away %v\n", srv.clock.Load()-start, srv.away.Load())
			}
			c := algorithms.Charge{Cost: rnd.Uint64N(4), AdmittedOnly: true}
			got := r.ask(l, "k", c)
			if !exact {
				if !got.Allowed {
					continue
				}
				if want := right.ask(l, "k", c); !want.Allowed {
					t.Fatalf("%+v: a cost of %d passed: %+v, want %+v", l.Spec, c.Cost, got, want)
				}
				continue
			}
			want := right.ask(l, "k", c)
			history += fmt.Sprintf("%v cost %d: %v, %d remain; want %v, %d\n", srv.clock.Load()-start, c.Cost, got.Allowed, got.Remaining, want.Allowed, want.Remaining)
			if got.Allowed != want.Allowed || got.Remaining != want.Remaining || l.Overdraft > 0 && got.RetryAfter != want.RetryAfter {
				t.Fatalf("%+v: a cost of %d: %+v, want %+v\n%s", l.Spec, c.Cost, got, want, history)
			}
		}
	})
}

// TestLostAnswers: hits whose answer was lost may count twice, never not at all.
func TestLostAnswers(t *testing.T) {
	eachStrategy(t, func(t *testing.T, rnd *rand.Rand, s algorithms.Strategy) {
		srv := newServer(t)
		srv.rnd, srv.percent = rnd, 44 // half of them questions, half answers
		l := anyLimit(t, rnd, s)
		r := newReplica(t, srv, 1)
		admitted := 0
		for range 60 {
			srv.away.Store(rnd.IntN(3) == 0)
			cost := rnd.IntN(3)
			if r.ask(l, "k", algorithms.Charge{Cost: uint64(cost), AdmittedOnly: true}).Allowed {
				admitted += cost
			}
			if rnd.IntN(4) == 0 {
				r.Step()
			}
		}
		srv.away.Store(false)
		srv.percent = 0
		r.Step()
		full := remaining(srv, l, "unused")
		if used := full - remaining(srv, l, "k"); used < min(full, admitted) {
			t.Errorf("the server has %d hits of %d that were admitted: %+v", used, admitted, l.Spec)
		}
	})
}
