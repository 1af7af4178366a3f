package exact_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
)

// returned is the strategies whose hits come back. Their windows do not end, and their buckets do
// not refill, while a test runs.
var returned = []kind{
	{name: "fixed window", limits: []algorithms.Spec{{}}},
	{name: "fixed window with an overdraft", limits: []algorithms.Spec{{Overdraft: algorithms.FullOverdraft}}},
	{name: "sliding window", limits: []algorithms.Spec{{Strategy: algorithms.SlidingWindow}}},
	{name: "sliding window in parts", limits: []algorithms.Spec{{Strategy: algorithms.SlidingWindow, Precision: 60}}},
	{name: "sliding log", limits: []algorithms.Spec{{Strategy: algorithms.SlidingLog}}},
	{name: "concurrency", limits: []algorithms.Spec{{Strategy: algorithms.Concurrency}}},
	{name: "token bucket", limits: []algorithms.Spec{{Strategy: algorithms.TokenBucket}}},
	{name: "gcra", limits: []algorithms.Spec{{Strategy: algorithms.GCRA, Burst: slots}}},
	{name: "leaky bucket", limits: []algorithms.Spec{{Strategy: algorithms.LeakyBucket, Burst: slots}}},
}

const (
	slots = 30
	ttl   = 64 * time.Second // of reservations that lapse
)

// wayBack is how callers give hits back. A charge of enter hits is followed by one for each leave.
type wayBack struct {
	name   string
	enter  uint64
	leave  []leave
	lapses bool // what is not given back comes back when the reservation ends
	id     bool // with the ID of a reservation
	demand bool // any limit can be held, as Kuadrant's RPCs do
	mixed  bool // every other caller has no ID, and gives back by a refund
	twice  bool // two limits of each request have the counter
	denied bool // every other one is in a group with a limit that is full
}

// leave is a call that gives hits back.
type leave struct {
	cost   uint64
	refund bool
	noID   bool
}

var waysBack = []wayBack{
	{name: "refund", enter: 1, leave: []leave{{cost: 1, refund: true}}},
	{name: "settlement with 0 hits", enter: 1, id: true, leave: []leave{{}}},
	{name: "settlement with fewer hits, and a refund", enter: 3, id: true, leave: []leave{{cost: 1}, {cost: 1, refund: true, noID: true}}},
	{name: "cancel", enter: 2, id: true, leave: []leave{{cost: 1, refund: true}}},
	{name: "settlement with as many hits, and a refund", enter: 1, id: true, leave: []leave{{cost: 1}, {cost: 1, refund: true, noID: true}}},
	{name: "settlement beside refunds", enter: 1, id: true, mixed: true, leave: []leave{{}}},
	{name: "settlement by two limits", enter: 1, id: true, twice: true, leave: []leave{{}}},
	{name: "lapse", enter: 1, id: true, lapses: true},
	{name: "commit with 0 hits", enter: 1, id: true, demand: true, leave: []leave{{}}},
	{name: "commit beside refunds", enter: 1, id: true, demand: true, mixed: true, leave: []leave{{}}},
	{name: "undo of a denied group", enter: 1, denied: true},
	{name: "undo of a denied group with an ID", enter: 1, id: true, denied: true, leave: []leave{{}}},
	{name: "undo of a denied group with what it can hold", enter: 1, id: true, demand: true, denied: true, leave: []leave{{}}},
}

// back is 64 callers of one limit that enter and leave.
type back struct {
	wayBack
	limit, full *algorithms.Limit
	id, fullID  algorithms.Identity
	ahead       atomic.Int64 // of the clock, µs
}

// now is a moment on the clock of a process, which may be 100 ms ahead. Two callers may have
// the same.
func (c *back) now() int64 {
	return epoch + time.Now().UnixMicro()%(3600*1_000_000) + c.ahead.Load() + rand.Int64N(4)/3*rand.Int64N(100_000)
}

// call charges the limit, beside one that is full if full.
func (c *back) call(t *testing.T, s backends.Store, charge algorithms.Charge, full bool) (admitted bool) {
	b := &backends.Batch{Ops: make([]backends.Op, 1, 2), AllOrNothing: true}
	charge.AdmittedOnly = true
	c.limit.Plan(&b.Ops[0], c.id, charge)
	switch {
	case full:
		b.Ops, b.AllOrNothing = b.Ops[:2], false
		c.full.Plan(&b.Ops[1], c.fullID, algorithms.Charge{Now: charge.Now, Cost: 1})
		b.Ops[0].Group, b.Ops[1].Group = 1, 1
	case c.twice && charge.Reservation != "":
		b.Ops = b.Ops[:2]
		charge.Reservation = "b" + charge.Reservation[1:]
		c.limit.Plan(&b.Ops[1], c.id, charge)
	}
	b.Replies = make([]backends.Reply, len(b.Ops))
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := s.Apply(ctx, b); err != nil {
		t.Errorf("%+v: %v", charge, err)
		return false
	}
	return !full && !b.Refused
}

// visit enters and leaves once; n is the number of the visit. Every other caller leaves when all
// have entered.
func (c *back) visit(t *testing.T, s backends.Store, n int64, all *sync.WaitGroup) {
	var id string
	leaves := c.leave
	if c.wayBack.id && !(c.mixed && n%2 == 0) {
		id = fmt.Sprintf("%016d", n)
	}
	if id == "" {
		leaves = []leave{{cost: c.enter, refund: true}}
	}
	in := algorithms.Charge{Now: c.now(), Cost: c.enter, Reservation: id}
	if c.demand && id != "" {
		in.TTL = ttl.Microseconds()
	}
	overdraws := c.limit.Overdraft > 0 && id == "" // every hit is charged
	entered := c.call(t, s, in, c.denied && n%2 == 0)
	if all.Done(); !entered && !overdraws {
		return
	}
	if n/2%2 == 0 {
		all.Wait()
	}
	for _, l := range leaves {
		out := algorithms.Charge{Now: c.now(), Cost: l.cost, Refund: l.refund, Reservation: id, Beyond: c.demand && !l.refund}
		if l.noID {
			out.Reservation = ""
		}
		c.call(t, s, out, false)
	}
}

// TestNothingIsMissing has 64 callers at once enter and leave a limit again and again, and give
// their hits back in every way there is. Afterwards the limit is free, exactly.
func TestNothingIsMissing(t *testing.T) {
	for _, p := range places {
		if p.cache > 0 || p.name == "Valkey" || p.name == "Redis beside one for limits per second" || p.name == "memcached, bare" {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			processes := p.processes(t, 2, 0)
			for _, k := range returned {
				for _, way := range waysBack {
					t.Run(k.name+", "+way.name, func(t *testing.T) { giveBack(t, processes, k.limits[0], way) })
				}
			}
		})
	}
}

func giveBack(t *testing.T, processes []backends.Store, spec algorithms.Spec, way wayBack) {
	spec.Requests, spec.Window = slots, algorithms.MaxWindow
	if way.id && !way.demand {
		spec.Reserve = algorithms.Reserve{TTL: ttl, GiveBack: way.lapses}
	}
	c := &back{wayBack: way}
	var err error
	if c.limit, err = algorithms.New(spec); err != nil {
		t.Fatal(err)
	}
	c.full, _ = algorithms.New(algorithms.Spec{Window: algorithms.MaxWindow})
	n := unique.Add(1)
	c.id = algorithms.Identity{ID: fmt.Appendf(nil, "back.%d.%d", epoch, n), OneSlot: true}
	c.fullID = algorithms.Identity{ID: fmt.Appendf(nil, "full.%d.%d", epoch, n)}
	if way.demand {
		c.id.Longest = 2 * ttl.Microseconds()
	}
	const callers, visits = 64, 3
	for visit := range visits {
		var running, all sync.WaitGroup
		all.Add(callers)
		for caller := range callers {
			running.Go(func() {
				c.visit(t, processes[caller%len(processes)], int64(visit*callers+caller), &all)
			})
		}
		running.Wait()
	}
	c.ahead.Add(time.Second.Microseconds())
	if way.lapses {
		c.ahead.Add(2 * ttl.Microseconds())
	}
	free, extra := 0, algorithms.Charge{Cost: 1}
	for extra.Now = c.now(); free < 2*slots && c.call(t, processes[0], extra, false); free++ {
		extra.Now++
	}
	if free != slots && !t.Failed() {
		t.Errorf("%d of %d are free", free, slots)
	}
}
