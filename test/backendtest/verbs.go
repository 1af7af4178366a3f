package backendtest

import (
	"testing"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
)

// steered are limits of every strategy, of 10 hits a minute.
var steered = map[string]algorithms.Spec{
	"fixed window":                    {},
	"fixed window from the first hit": {FromFirstHit: true},
	"fixed window extended":           {FromFirstHit: true, Extend: true},
	"sliding window":                  {Strategy: algorithms.SlidingWindow},
	"sliding log":                     {Strategy: algorithms.SlidingLog},
	"token bucket":                    {Strategy: algorithms.TokenBucket},
	"token bucket with burst 20":      {Strategy: algorithms.TokenBucket, Burst: 20},
	"GCRA":                            {Strategy: algorithms.GCRA},
	"leaky bucket":                    {Strategy: algorithms.LeakyBucket, Burst: 3},
	"queue":                           {Strategy: algorithms.LeakyBucket, MaxDelay: 20 * time.Second},
}

// testVerbs resets cells and grants hits, as an operator does.
func testVerbs(t *testing.T, s backends.Store) {
	for name, spec := range steered {
		spec.Requests, spec.Window = 10, time.Minute
		t.Run(name, func(t *testing.T) {
			for what, test := range map[string]func(*steering){
				"a grant to a caller who is denied": func(c *steering) {
					c.exhaust()
					c.wants(c.grant(5), 5)
					c.passes(5)
				},
				"a grant to a new caller": func(c *steering) {
					c.wants(c.grant(5), c.capacity+5)
					c.passes(c.capacity + 5)
				},
				"two grants": func(c *steering) {
					c.grant(5)
					c.wants(c.grant(7), c.capacity+12)
					c.passes(c.capacity + 12)
				},
				"a grant does not grow while time passes": func(c *steering) {
					c.wants(c.grant(5), c.capacity+5)
					c.now += 20 * second
					c.passes(c.capacity + 5)
				},
				"a grant ends with the window": func(c *steering) {
					c.grant(5)
					c.now += max(window, c.capacity*6*second) // an empty bucket fills meanwhile
					c.wants(c.look(), c.capacity)
					c.passes(c.capacity)
				},
				"a bucket whose grant is used up fills from then on": func(c *steering) {
					c.grant(5)
					c.now += 20 * second
					c.passes(c.capacity + 5)
					c.now += 2 * window
					c.wants(c.look(), c.capacity)
				},
				"a refund does not add to a grant": func(c *steering) {
					c.grant(5)
					c.wants(c.charge(3, true), c.capacity+5)
					c.passes(c.capacity + 5)
					c.wants(c.charge(uint64(c.capacity+5), true), c.capacity)
				},
				"a charge that is given back leaves the grant whole": func(c *steering) {
					c.grant(5)
					op := c.plan(3, false)
					applyOne(c.t, c.store, op)
					c.wants(c.apply(op.Inverse(0)), c.capacity+5)
				},
				"no grant leaves more than the maximum": func(c *steering) {
					for range 3 {
						c.grant(c.limit.MaxGrant())
					}
					c.wants(c.look(), c.limit.MaxRemaining())
				},
				"a reset of a full cell": func(c *steering) {
					c.exhaust()
					c.wants(c.reset(), c.capacity)
					c.passes(c.capacity)
				},
				"a reset of a cell that is not there": func(c *steering) {
					c.wants(c.reset(), c.capacity)
					c.passes(c.capacity)
				},
				"a reset ends a grant": func(c *steering) {
					c.grant(5)
					c.wants(c.reset(), c.capacity)
					c.wants(c.look(), c.capacity)
				},
				"a limit lowered to 0 denies hits that were granted": func(c *steering) {
					c.grant(5)
					c.limit = limited(c.t, c.limit.Spec, 0)
					if c.charge(1, false).Allowed || !c.charge(0, false).Allowed {
						c.t.Error("a limit of 0 passes checks and nothing else")
					}
				},
				"a raised limit keeps a grant, unless it has a bucket of its own": func(c *steering) {
					c.grant(5)
					c.limit = limited(c.t, c.limit.Spec, 20)
					if c.limit.Burst > 0 {
						c.wants(c.look(), c.limit.Capacity())
					} else {
						c.wants(c.look(), 25)
					}
				},
			} {
				t.Run(what, func(t *testing.T) { test(newSteering(t, s, spec)) })
			}
		})
	}
	t.Run("the window before counts no grant, and a reset empties it, too", func(t *testing.T) {
		spec := algorithms.Spec{Strategy: algorithms.SlidingWindow, Requests: 10, Window: time.Minute}
		c := newSteering(t, s, spec)
		c.grant(5)
		c.now += window
		c.wants(c.look(), 10)
		c.passes(10)
		c.now += window
		c.passes(0)
		c.wants(c.reset(), 10)
		c.passes(10)
	})
	t.Run("a grant in a log leaves with the hits of its time", func(t *testing.T) {
		c := newSteering(t, s, algorithms.Spec{Strategy: algorithms.SlidingLog, Requests: 5, Window: time.Minute})
		c.charge(2, false)
		c.grant(1)
		c.now += 20 * second
		c.charge(2, false)
		if d := c.charge(4, false); d.Allowed || d.RetryAfter != time.Minute {
			t.Errorf("4 hits fit once the 2 newest ones have left: %+v", d)
		}
	})
	t.Run("one of several operations", func(t *testing.T) {
		c := newSteering(t, s, algorithms.Spec{Requests: 10, Window: time.Minute})
		c.exhaust()
		hit, other := c.plan(2, false), counter(fresh("other"), c.now, 3, -1)
		b := backends.Batch{Ops: []backends.Op{hit.Reset(), other, hit, hit.Look()}}
		for i, r := range apply(t, s, &b) {
			if want := []int64{0, 3, 2, 2}[i]; r.Value.Whole != want {
				t.Errorf("operation %d: %+v, want %d", i, r, want)
			}
		}
	})
}

// testReads reads a cell that is absent, in use, full, or has credit, at its time, when
// it has ended, and by a clock that was set back.
func testReads(t *testing.T, s backends.Store, spec algorithms.Spec, stored func(t *testing.T, key string) string) {
	for state, make := range map[string]func(*steering){
		"absent":      func(*steering) {},
		"in use":      func(c *steering) { c.charge(1, false) },
		"full":        func(c *steering) { c.exhaust() },
		"with credit": func(c *steering) { c.grant(5) },
	} {
		t.Run(state, func(t *testing.T) {
			c := newSteering(t, s, spec)
			make(c)
			op, began := c.plan(1, false), c.now
			before := stored(t, op.Key)
			for _, requests := range []uint32{10, 0, 1, 1000} {
				c.limit = limited(t, spec, requests)
				for _, later := range []int64{0, -2, 30} {
					c.now = began + later*3600*second
					check := c.plan(0, false)
					check.Key = op.Key
					look, merged, group, firm := c.plan(1, false).Look(), check, check, check
					look.Key = op.Key
					merged.Times, group.Group, firm.Max = 3, 1, backends.NoRoom
					apply(t, s, &backends.Batch{Ops: []backends.Op{look, check, merged}})
					apply(t, s, &backends.Batch{Ops: []backends.Op{group, group}})
					apply(t, s, &backends.Batch{Ops: []backends.Op{check, firm}, AllOrNothing: true})
				}
			}
			if after := stored(t, op.Key); after != before {
				t.Errorf("reading has changed the cell:\n%q\nwas\n%q", after, before)
			}
		})
	}
}

// steering is a limit and one caller.
type steering struct {
	t        *testing.T
	store    backends.Store
	limit    *algorithms.Limit
	id       algorithms.Identity
	now      int64
	capacity int64
}

func newSteering(t *testing.T, s backends.Store, spec algorithms.Spec) *steering {
	t.Helper()
	c := &steering{t: t, store: s, limit: limited(t, spec, spec.Requests), now: epoch()}
	c.id, c.capacity = identity("steered"), c.limit.Capacity()
	return c
}

func (c *steering) plan(cost uint64, refund bool) backends.Op {
	return c.planned(algorithms.Charge{Cost: cost, Refund: refund})
}

// planned is the operation of a charge at the time of c.
func (c *steering) planned(charge algorithms.Charge) (op backends.Op) {
	charge.Now = c.now
	c.limit.Plan(&op, c.id, charge)
	return op
}

func (c *steering) apply(op backends.Op) algorithms.Decision {
	c.t.Helper()
	r := applyOne(c.t, c.store, op)
	return c.limit.Judge(&op, &r)
}

func (c *steering) charge(cost uint64, refund bool) algorithms.Decision {
	c.t.Helper()
	return c.apply(c.plan(cost, refund))
}

func (c *steering) look() algorithms.Decision {
	c.t.Helper()
	return c.apply(c.plan(0, false))
}

func (c *steering) reset() algorithms.Decision {
	c.t.Helper()
	op := c.plan(0, false)
	return c.apply(op.Reset())
}

func (c *steering) grant(hits int64) algorithms.Decision {
	c.t.Helper()
	op := c.plan(0, false)
	c.limit.Grant(&op, hits)
	return c.apply(op)
}

// exhaust charges the capacity, and 5 hits that are denied.
func (c *steering) exhaust() {
	c.t.Helper()
	c.passes(c.capacity)
	for range 4 {
		c.charge(1, false)
	}
}

func (c *steering) wants(is algorithms.Decision, remaining int64) {
	c.t.Helper()
	if is.Remaining != remaining {
		c.t.Fatalf("%d hits remain, want %d", is.Remaining, remaining)
	}
}

// passes charges hits until one does not pass, and takes the hits that wait in a queue
// as denied.
func (c *steering) passes(want int64) {
	c.t.Helper()
	for got := int64(0); ; got++ {
		if is := c.charge(1, false); is.Allowed && is.Delay == 0 && got <= want {
			continue
		}
		if got != want {
			c.t.Fatalf("%d hits pass, want %d", got, want)
		}
		return
	}
}
