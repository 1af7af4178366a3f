package near_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/rls/pkg/algorithms"
)

// strategies are limits of n hits a minute, of each strategy.
func strategies(t testing.TB, n uint32) map[string]*algorithms.Limit {
	t.Helper()
	return map[string]*algorithms.Limit{
		"fixed window":                limit(t, algorithms.Spec{Requests: n}),
		"fixed window from first hit": limit(t, algorithms.Spec{Requests: n, FromFirstHit: true}),
		"fixed window extended":       limit(t, algorithms.Spec{Requests: n, FromFirstHit: true, Extend: true}),
		"sliding window":              limit(t, algorithms.Spec{Requests: n, Strategy: algorithms.SlidingWindow}),
		"sliding log":                 limit(t, algorithms.Spec{Requests: n, Strategy: algorithms.SlidingLog}),
		"token bucket":                limit(t, algorithms.Spec{Requests: n, Strategy: algorithms.TokenBucket}),
		"gcra":                        limit(t, algorithms.Spec{Requests: 30, Burst: n, Strategy: algorithms.GCRA}),
		"leaky bucket":                limit(t, algorithms.Spec{Requests: n, Strategy: algorithms.LeakyBucket}),
	}
}

// TestShare: while the server is away each replica admits what remained, divided by
// the replicas and rounded up, and the server gets those hits when it is back.
func TestShare(t *testing.T) {
	for _, c := range []struct {
		limit          uint32
		used, replicas int
		each           int // admitted by each replica
		left           int64
	}{
		{limit: 20, used: 10, replicas: 2, each: 5, left: 0},
		{limit: 20, used: 0, replicas: 2, each: 10, left: 0},
		{limit: 20, used: 20, replicas: 2, each: 0, left: 0},
		{limit: 20, used: 19, replicas: 3, each: 1, left: 0}, // 3 hits for 1 that remained
		{limit: 10, used: 3, replicas: 1, each: 7, left: 0},
		{limit: 10, used: 0, replicas: 3, each: 4, left: 0},
		{limit: 1, used: 0, replicas: 10, each: 1, left: 0},
		{limit: 0, used: 0, replicas: 2, each: 0, left: 0},
	} {
		for name, l := range strategies(t, c.limit) {
			if name == "gcra" && c.limit == 0 {
				continue // a burst of 0 is the default of 1
			}
			t.Run(fmt.Sprintf("%s, %d of %d used, %d replicas", name, c.used, c.limit, c.replicas), func(t *testing.T) {
				srv := newServer(t)
				var replicas []*replica
				for range c.replicas {
					replicas = append(replicas, newReplica(t, srv, c.replicas))
				}
				replicas[0].hits(l, "k", c.used)
				for _, r := range replicas {
					r.left(l, "k") // everybody knows the cell
				}
				srv.away.Store(true)
				for i, r := range replicas {
					d := r.ask(l, "k", algorithms.Charge{})
					if got := int(d.Remaining); got != c.each {
						t.Errorf("replica %d: %d remain, want %d", i, got, c.each)
					}
					if got := r.hits(l, "k", int(c.limit)+5); got != c.each {
						t.Errorf("replica %d admitted %d, want %d", i, got, c.each)
					}
				}
				srv.away.Store(false)
				for _, r := range replicas {
					r.Step()
				}
				if got := replicas[0].left(l, "k"); got != c.left {
					t.Errorf("%d remain in the server, want %d", got, c.left)
				}
			})
		}
	}
}

// TestTimeline: the copy of a cell moves with the clock as the cell does.
func TestTimeline(t *testing.T) {
	type at struct {
		after time.Duration // since the step before
		admit int           // of many hits
	}
	for name, c := range map[string]struct {
		spec  algorithms.Spec
		used  int // when the server goes away
		steps []at
	}{
		"a window ends": {algorithms.Spec{Requests: 20}, 20, []at{{0, 0}, {59 * time.Second, 0}, {time.Second, 10}, {time.Minute, 10}}},
		"a window that began at a hit ends": {algorithms.Spec{Requests: 20, FromFirstHit: true}, 20,
			[]at{{59 * time.Second, 0}, {time.Second, 10}, {30 * time.Second, 0}, {30 * time.Second, 10}}},
		// Half of the 20 hits of the last window still count in its middle.
		"a window slides": {algorithms.Spec{Requests: 20, Strategy: algorithms.SlidingWindow}, 20,
			[]at{{0, 0}, {90 * time.Second, 5}, {30 * time.Second, 5}}},
		"a log's charges leave": {algorithms.Spec{Requests: 20, Strategy: algorithms.SlidingLog}, 10,
			[]at{{30 * time.Second, 5}, {30 * time.Second, 5}, {30 * time.Second, 5}}},
		// 20 a minute are 1 in 3 s, for both replicas together.
		"a bucket fills": {algorithms.Spec{Requests: 20, Strategy: algorithms.TokenBucket}, 20,
			[]at{{0, 0}, {3 * time.Second, 1}, {5 * time.Second, 0}, {time.Second, 1}, {30 * time.Second, 5}, {time.Hour, 10}}},
		"an even rate": {algorithms.Spec{Requests: 60, Strategy: algorithms.GCRA}, 1,
			[]at{{0, 0}, {time.Second, 1}, {time.Second, 0}, {time.Second, 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			srv := newServer(t)
			r, l := newReplica(t, srv, 2), limit(t, c.spec)
			r.hits(l, "k", c.used)
			srv.away.Store(true)
			for i, s := range c.steps {
				srv.pass(s.after)
				if got := r.hits(l, "k", 2*int(c.spec.Requests)); got != s.admit {
					t.Errorf("step %d, %v later: admitted %d, want %d", i, s.after, got, s.admit)
				}
			}
		})
	}
}

// TestQueue: two replicas let the hits of one queue out at half its rate each.
func TestQueue(t *testing.T) {
	srv := newServer(t)
	r := newReplica(t, srv, 2)
	l := limit(t, algorithms.Spec{Requests: 60, Strategy: algorithms.LeakyBucket, MaxDelay: 5 * time.Second})
	srv.away.Store(true)
	for i, want := range []time.Duration{0, 2 * time.Second, 4 * time.Second, -1} {
		d := r.ask(l, "k", algorithms.Charge{Cost: 1, Patience: minute})
		if want < 0 && d.Allowed || want >= 0 && (!d.Allowed || d.Delay != want) {
			t.Errorf("hit %d: %+v, want a delay of %v", i, d, want)
		}
	}
	srv.away.Store(false)
	r.Step()
	if d := r.ask(l, "k", algorithms.Charge{Cost: 1, Patience: minute}); d.Delay != 3*time.Second {
		t.Errorf("the server's queue has a delay of %v, want 3s", d.Delay)
	}
}

func TestDecision(t *testing.T) {
	srv := newServer(t)
	srv.away.Store(true)
	r := newReplica(t, srv, 2)
	l := limit(t, algorithms.Spec{Requests: 10})
	srv.pass(20 * time.Second)
	if d := r.ask(l, "k", algorithms.Charge{Cost: 3}); !d.Allowed || d.Remaining != 2 || d.Reset != 40*time.Second {
		t.Errorf("3 of a share of 5: %+v", d)
	}
	if d := r.ask(l, "k", algorithms.Charge{Cost: 3, AdmittedOnly: true}); d.Allowed || d.RetryAfter != 40*time.Second {
		t.Errorf("3 more: %+v", d)
	}
	if d := r.ask(l, "k", algorithms.Charge{Cost: 0}); !d.Allowed || d.Remaining != 2 {
		t.Errorf("a check: %+v", d)
	}
	if d := r.ask(l, "k", algorithms.Charge{Cost: 1, Refund: true}); !d.Allowed || d.Remaining != 3 {
		t.Errorf("a refund: %+v", d)
	}
	if d := r.ask(l, "k", algorithms.Charge{Cost: 100, Refund: true}); d.Remaining != 5 {
		t.Errorf("a refund of more than was admitted: %+v", d)
	}
	gcra := limit(t, algorithms.Spec{Requests: 60, Strategy: algorithms.GCRA})
	if d := r.ask(gcra, "k", algorithms.Charge{Cost: 1}); !d.Allowed || d.Delay != 0 {
		t.Errorf("an even rate: %+v", d)
	}
	if d := r.ask(gcra, "k", algorithms.Charge{Cost: 1}); d.Allowed || d.RetryAfter != 2*time.Second {
		t.Errorf("an even rate, the next hit: %+v", d)
	}
}

// TestReplicas: a replica that is left alone takes over its neighbours' shares,
// less what they may have admitted.
func TestReplicas(t *testing.T) {
	srv := newServer(t)
	r, l := newReplica(t, srv, 2), limit(t, algorithms.Spec{Requests: 20})
	r.hits(l, "k", 4)
	srv.away.Store(true)
	if got := r.hits(l, "k", 3); got != 3 {
		t.Fatalf("admitted %d, want 3", got)
	}
	r.count.Store(1)
	if got := r.hits(l, "k", 20); got != 10 {
		t.Errorf("alone it admitted %d, want 10: 4 were used, 3 and 3 admitted", got)
	}
}

// TestFlapping: hits that the server has not got yet count beside those that it
// reports.
func TestFlapping(t *testing.T) {
	for name, l := range strategies(t, 20) {
		t.Run(name, func(t *testing.T) {
			srv := newServer(t)
			r := newReplica(t, srv, 2)
			r.hits(l, "k", 10)
			srv.away.Store(true)
			r.hits(l, "k", 2)
			srv.away.Store(false)
			r.hits(l, "k", 2) // the server has 12, and 2 more are to come
			srv.away.Store(true)
			if got := r.hits(l, "k", 20); got != 2 {
				t.Errorf("admitted %d, want 2: half of 8 less 2", got)
			}
			srv.away.Store(false)
			r.Step()
			if got := r.left(l, "k"); got != 4 {
				t.Errorf("%d remain in the server, want 4", got)
			}
			srv.away.Store(true)
			if got := r.hits(l, "k", 20); got != 2 {
				t.Errorf("in the next outage admitted %d, want 2", got)
			}
		})
	}
}

// TestParallel: hits, refunds and charges at once lose nothing. Run it with -race.
func TestParallel(t *testing.T) {
	for name, l := range strategies(t, 10_000) {
		t.Run(name, func(t *testing.T) {
			srv := newServer(t)
			r := newReplica(t, srv, 1)
			var admitted atomic.Int64
			var done sync.WaitGroup
			for range 4 {
				done.Go(func() {
					for range 300 {
						if r.ask(l, "k", algorithms.Charge{Cost: 1}).Allowed {
							admitted.Add(1)
						}
					}
				})
			}
			done.Go(func() {
				for i := range 200 {
					srv.away.Store(i%2 == 0)
					r.Step()
				}
			})
			done.Wait()
			srv.away.Store(false)
			r.Step()
			full := newReplica(t, newServer(t), 1).left(l, "k")
			if used := full - r.left(l, "k"); used < admitted.Load() {
				t.Errorf("the server has %d hits of %d that were admitted", used, admitted.Load())
			}
		})
	}
}

// TestReset: a reset forgets the cell, and the hits that were admitted while the server
// was away.
func TestReset(t *testing.T) {
	for name, l := range strategies(t, 10) {
		t.Run(name, func(t *testing.T) {
			server := newServer(t)
			r := newReplica(t, server, 1)
			if got := r.hits(l, "k", 6); got != 6 {
				t.Fatalf("%d hits pass", got)
			}
			server.away.Store(true)
			r.hits(l, "k", 3)
			server.away.Store(false)
			r.steer(l, "k", 0)
			r.Step()
			if left := r.left(l, "k"); left != 10 {
				t.Errorf("%d hits remain in the server's cell, want 10", left)
			}
			server.away.Store(true)
			if got := r.hits(l, "k", 11); got != 10 {
				t.Errorf("%d hits pass while the server is away, want 10", got)
			}
		})
	}
}

// TestAResetWhileTheChargeIsLookedFor: the hits that were admitted while the server was away are
// forgotten, also if the process has begun to charge them.
func TestAResetWhileTheChargeIsLookedFor(t *testing.T) {
	all := strategies(t, 10)
	all["concurrency"] = limit(t, algorithms.Spec{Strategy: algorithms.Concurrency, Requests: 10})
	for name, l := range all {
		t.Run(name, func(t *testing.T) {
			server := newServer(t)
			r := newReplica(t, server, 1)
			r.hits(l, "k", 6)
			server.away.Store(true)
			r.hits(l, "k", 3)
			server.away.Store(false)
			server.after = func() {
				server.after = nil
				r.steer(l, "k", 0)
			}
			r.Step()
			if server.after != nil {
				t.Fatal("nothing was asked")
			}
			if left := r.left(l, "k"); left != 10 {
				t.Errorf("%d hits remain in the server's cell, want 10", left)
			}
		})
	}
}

// TestGrant: hits that were admitted while the server was away are charged after a
// grant, too, and later outages know of the grant.
func TestGrant(t *testing.T) {
	for name, l := range strategies(t, 10) {
		t.Run(name, func(t *testing.T) {
			server := newServer(t)
			r := newReplica(t, server, 1)
			r.hits(l, "k", 6)
			server.away.Store(true)
			r.hits(l, "k", 3)
			server.away.Store(false)
			r.steer(l, "k", 20)
			r.Step()
			if left := r.left(l, "k"); left != 21 {
				t.Errorf("%d hits remain in the server's cell, want 21", left)
			}
			server.away.Store(true)
			if got := r.hits(l, "k", 30); got != 21 {
				t.Errorf("%d hits pass while the server is away, want 21", got)
			}
			server.away.Store(false)
			r.Step()
			if left := r.left(l, "k"); left != 0 {
				t.Errorf("%d hits remain in the server's cell afterwards, want 0", left)
			}
		})
	}
}
