package exact_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/test/backendtest"
)

// A clock is the time of all processes of a history. It runs at least as fast as
// the real one, because servers remove keys by the real one, in steps, and it
// jumps on.
type clock struct {
	start time.Time
	jumps atomic.Int64 // µs
}

const step = 100 * time.Millisecond

func (c *clock) now() int64 {
	real := time.Since(c.start).Truncate(step)
	return epoch + real.Microseconds() + c.jumps.Load()
}

// epoch is near the real time: servers may remove cells that have ended long ago.
var epoch = time.Now().Add(time.Hour).Truncate(time.Hour).UnixMicro()

// kind is a kind of history: the limits that each of its requests charges, and
// how.
type kind struct {
	name   string
	limits []algorithms.Spec
	// allOrNothing charges all limits or none; several limits without it are a
	// group.
	allOrNothing bool
	admittedOnly bool
}

const window = 10 * time.Second

var kinds = []kind{
	{name: "fixed window", limits: []algorithms.Spec{{Requests: 8, Window: window}}},
	{name: "fixed window that charges admitted hits", limits: []algorithms.Spec{{Requests: 8, Window: window}}, admittedOnly: true},
	{name: "fixed window from the first hit", limits: []algorithms.Spec{{Requests: 8, Window: window, FromFirstHit: true}}},
	{name: "fixed window extended", limits: []algorithms.Spec{{Requests: 8, Window: window, FromFirstHit: true, Extend: true}}},
	{name: "sliding window", limits: []algorithms.Spec{{Strategy: algorithms.SlidingWindow, Requests: 8, Window: window}}},
	{name: "sliding log", limits: []algorithms.Spec{{Strategy: algorithms.SlidingLog, Requests: 8, Window: window}}},
	{name: "token bucket", limits: []algorithms.Spec{{Strategy: algorithms.TokenBucket, Requests: 7, Window: window, Burst: 9}}},
	{name: "gcra", limits: []algorithms.Spec{{Strategy: algorithms.GCRA, Requests: 7, Window: window}}},
	{name: "leaky bucket that queues", limits: []algorithms.Spec{{Strategy: algorithms.LeakyBucket, Requests: 7, Window: window, MaxDelay: 3 * time.Second}}},
}

// terms are kinds whose operations have terms, and holds those whose requests make and settle
// reservations. In the kinds of heldTogether a request or a reservation concerns several cells.
var (
	terms = []kind{
		{name: "fixed window with an overdraft", limits: []algorithms.Spec{{Requests: 8, Window: window, Overdraft: 20}}},
		{name: "token bucket with an overdraft", limits: []algorithms.Spec{{Strategy: algorithms.TokenBucket, Requests: 7, Window: window, Burst: 9, Overdraft: 12}}},
		{name: "sliding window in parts", limits: []algorithms.Spec{{Strategy: algorithms.SlidingWindow, Requests: 8, Window: window, Precision: 5}}},
		{name: "concurrency", limits: []algorithms.Spec{{Strategy: algorithms.Concurrency, Requests: 5, Window: window}}},
	}
	holds = []kind{
		{name: "reservations with an overdraft", limits: []algorithms.Spec{{Strategy: algorithms.GCRA, Requests: 7, Burst: 6, Window: window, Overdraft: 20, Reserve: kept}}},
		{name: "reservations that lapse", limits: []algorithms.Spec{{Strategy: algorithms.TokenBucket, Requests: 7, Window: window, Reserve: algorithms.Reserve{TTL: 2 * time.Second, GiveBack: true}}}},
		{name: "reserved slots", limits: []algorithms.Spec{{Strategy: algorithms.Concurrency, Requests: 5, Window: window, Reserve: kept}}},
	}
	heldTogether = []kind{
		{name: "reservations in a fixed window", limits: []algorithms.Spec{{Requests: 8, Window: window, Reserve: kept}}},
		{name: "a group of reservations", limits: []algorithms.Spec{{Requests: 9, Window: window, Reserve: kept}, {Strategy: algorithms.TokenBucket, Requests: 7, Window: window, Reserve: kept}}},
		{name: "reservations, all or nothing", allOrNothing: true, limits: []algorithms.Spec{
			{Requests: 9, Window: window, Overdraft: 9, Reserve: kept}, {Strategy: algorithms.SlidingLog, Requests: 7, Window: window, Reserve: kept}}},
	}
	kept = algorithms.Reserve{TTL: 3 * time.Second}
)

// together are kinds whose requests have several limits.
var together = []kind{
	{name: "a group", limits: []algorithms.Spec{
		{Requests: 9, Window: window}, {Strategy: algorithms.TokenBucket, Requests: 7, Window: window},
		{Strategy: algorithms.TokenBucket, Requests: 12, Window: window, Burst: 8}}},
	{name: "all or nothing", allOrNothing: true, limits: []algorithms.Spec{
		{Requests: 12, Window: window}, {Strategy: algorithms.SlidingLog, Requests: 9, Window: window}, {Strategy: algorithms.GCRA, Burst: 8, Requests: 8, Window: window}}},
	{name: "all or nothing, admitted hits", allOrNothing: true, admittedOnly: true, limits: []algorithms.Spec{
		{Requests: 9, Window: window}, {Strategy: algorithms.SlidingWindow, Requests: 7, Window: window}}},
}

// request is one charge of all limits of a history, or what an operator does to the
// only one.
type request struct {
	history *history
	charge  algorithms.Charge
	verb    backends.Verb
	begin   int64   // when the caller had not yet read its clock, ns
	nows    []int64 // lost: the times at which it may have been decided
}

// answer is what the caller was told.
type answer struct {
	lost    bool // nobody knows whether the request was charged
	replies []backends.Reply
}

// history is the requests of several processes on one identity.
type history struct {
	kind
	limits []*algorithms.Limit
	id     algorithms.Identity
	// merged: a decorator decides requests at the time of later ones, and answers
	// refunds that it has merged with the cell after all of them.
	merged bool
	// steered: operators reset the cell and grant hits.
	steered bool
	clock   clock

	mu  sync.Mutex
	ops []porcupine.Operation
}

var unique atomic.Int64

func newHistory(t *testing.T, k kind, merged bool) *history {
	t.Helper()
	h := &history{kind: k, merged: merged, steered: len(k.limits) == 1, clock: clock{start: time.Now()}}
	h.id = algorithms.Identity{ID: fmt.Appendf(nil, "exact.%d.%d", time.Now().UnixNano(), unique.Add(1)), OneSlot: len(k.limits) > 1 || k.limits[0].Reserve.TTL > 0}
	for _, spec := range k.limits {
		l, err := algorithms.New(spec)
		if err != nil {
			t.Fatal(err)
		}
		h.limits = append(h.limits, l)
	}
	return h
}

// granted is the hits of each grant.
const granted = 2

// batch plans a request at a time.
func (in *request) batch(now int64) *backends.Batch {
	h, c := in.history, in.charge
	b := &backends.Batch{AllOrNothing: h.allOrNothing}
	b.Ops, b.Replies = make([]backends.Op, len(h.limits)), make([]backends.Reply, len(h.limits))
	c.Now, c.AdmittedOnly = now, h.admittedOnly
	for i, l := range h.limits {
		l.Plan(&b.Ops[i], h.id, c)
		if len(h.limits) > 1 && !h.allOrNothing {
			b.Ops[i].Group = 1
		}
		switch in.verb {
		case backends.Reset:
			b.Ops[i] = b.Ops[i].Reset()
		case backends.Grant:
			l.Grant(&b.Ops[i], granted)
		}
	}
	return b
}

// run has callers share the processes and records their requests. In rounds all
// callers wait for each other.
func (h *history) run(processes []backends.Store, seed uint64) {
	const rounds, callers, each = 3, 8, 2
	jump := rand.New(rand.NewPCG(seed, 1))
	for round := range rounds {
		var running sync.WaitGroup
		for caller := range callers {
			running.Go(func() {
				rng := rand.New(rand.NewPCG(seed, uint64(100+round*callers+caller)))
				for range each {
					begin := time.Since(h.clock.start)
					if rng.IntN(5) == 0 {
						h.clock.jumps.Add(rng.Int64N(h.jump()) * 1000)
					}
					h.call(caller, processes[caller%len(processes)], rng, begin, h.clock.now())
				}
			})
		}
		running.Wait()
		h.clock.jumps.Add(jump.Int64N(2*window.Milliseconds()/3) * 1000)
	}
}

// jump is the longest jump of the clock while requests are under way, in ms. Reservations want
// all of them within backends.Skew.
func (h *history) jump() int64 {
	if h.limits[0].Reserve.TTL > 0 {
		return 100
	}
	return 1500
}

func (h *history) call(caller int, store backends.Store, rng *rand.Rand, begin time.Duration, now int64) {
	in := request{history: h, begin: begin.Nanoseconds(), charge: algorithms.Charge{Now: now, Cost: 1, Patience: 2_000_000}}
	switch rng.IntN(12) {
	case 0:
		in.charge.Cost = 0
	case 1:
		in.charge.Refund = true
	case 2:
		in.charge.Cost = 3
	case 3:
		if h.steered {
			in.verb = []backends.Verb{backends.Reset, backends.Grant}[rng.IntN(2)]
		}
	}
	if h.limits[0].Reserve.TTL > 0 && rng.IntN(6) > 0 {
		in.charge.Reservation = fmt.Sprintf("%016d", rng.IntN(4))
	}
	b := in.batch(now)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := store.Apply(ctx, b)
	op := porcupine.Operation{
		ClientId: caller, Input: in, Call: begin.Nanoseconds(),
		Output: answer{lost: err != nil, replies: b.Replies}, Return: time.Since(h.clock.start).Nanoseconds(),
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, op)
}

// settle gives lost and recalled requests the times that they may have.
func (h *history) settle() (lost, recalled int) {
	slices.SortFunc(h.ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	for i := range h.ops {
		op := &h.ops[i]
		in, out := op.Input.(request), op.Output.(answer)
		own := in.charge.Now
		switch {
		case out.lost:
			lost++
			in.nows = []int64{own}
			for j := range h.ops { // the requests that it may have been merged with
				other := &h.ops[j]
				if now := other.Input.(request).charge.Now; h.merged && now > own && other.Input.(request).begin <= op.Return && !slices.Contains(in.nows, now) {
					in.nows = append(in.nows, now)
				}
			}
			op.Input, op.Return = in, math.MaxInt64
		case out.replies[0].Recalled:
			recalled++
			// The cell was remembered less than a second before.
			op.Call = 0
			for j := range h.ops {
				if other := h.ops[j].Input.(request); other.charge.Now <= own-remembered {
					op.Call = max(op.Call, other.begin)
				}
			}
		}
	}
	return lost, recalled
}

// remembered is how long near uses a cell, in µs.
const remembered = 1_000_000

// check looks for an order of the requests in which the definition of a store
// gives the same answers.
func (h *history) check(t *testing.T, seed uint64) (sum tally) {
	t.Helper()
	sum.histories, sum.requests = 1, len(h.ops)
	for i := range h.ops {
		if h.ops[i].Return-h.ops[i].Call > longestCall.Nanoseconds() {
			sum.open = 1 // the machine has stood still: operations are out of order by more than backends.Skew
			return sum
		}
	}
	sum.lost, sum.recalled = h.settle()
	verdict, info := porcupine.CheckOperationsVerbose(model, h.ops, 4*time.Second)
	switch verdict {
	case porcupine.Ok:
	case porcupine.Unknown:
		sum.open = 1
	default:
		t.Errorf("seed %d: no order of the requests explains the answers:\n%s", seed, h.text(longest(info)))
	}
	return sum
}

const longestCall = 500 * time.Millisecond

// tally counts histories, those without a verdict, and the requests.
type tally struct{ histories, open, requests, lost, recalled int }

func (s *tally) add(o tally) {
	s.histories, s.open = s.histories+o.histories, s.open+o.open
	s.requests, s.lost, s.recalled = s.requests+o.requests, s.lost+o.lost, s.recalled+o.recalled
}

// longest is the longest order of some of the requests that explains their
// answers.
func longest(info porcupine.LinearizationInfo) (best []porcupine.Operation) {
	for _, partition := range info.PartialLinearizationsOperations() {
		for _, order := range partition {
			if len(order) > len(best) {
				best = order
			}
		}
	}
	return best
}

// text is the requests in the order in which they can be explained, and then the
// others.
func (h *history) text(explained []porcupine.Operation) (s string) {
	rest := slices.DeleteFunc(slices.Clone(h.ops), func(op porcupine.Operation) bool {
		return slices.ContainsFunc(explained, func(e porcupine.Operation) bool { return e.Call == op.Call && e.ClientId == op.ClientId })
	})
	for i, op := range append(slices.Clone(explained), rest...) {
		if i == len(explained) {
			s += "no order explains:\n"
		}
		in, out := op.Input.(request), op.Output.(answer)
		s += fmt.Sprintf("%d..%d caller %d at %d: verb %d cost %d refund %v ID %s: ", op.Call/1000, op.Return/1000, op.ClientId, in.charge.Now-epoch, in.verb, in.charge.Cost, in.charge.Refund, in.charge.Reservation)
		if out.lost {
			s += fmt.Sprintf("lost: %v\n", out.replies[0].Err)
			continue
		}
		for _, r := range out.replies {
			s += fmt.Sprintf("at %d admitted %d value %d.%d prev %d until %d recalled %v %+v; ", r.Now-epoch, r.Admitted, r.Value.Whole, r.Value.Frac, r.Prev, r.Until-epoch, r.Recalled, r.Account)
		}
		s += "\n"
	}
	return s
}

// model is the definition of a store. A request that was lost has charged at any
// time after its call, or never: an order in which it comes last is one in which it
// has charged nothing that another request could see.
var model = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{backendtest.NewModel()} },
	Step: func(state, input, output any) (after []any) {
		in, out := input.(request), output.(answer)
		if out.lost {
			for _, now := range in.nows {
				next := state.(*backendtest.Model).Clone()
				b := in.batch(now)
				_ = next.Apply(context.Background(), b) // never fails
				after = append(after, successors(state.(*backendtest.Model), next, b)...)
			}
			return after
		}
		next := state.(*backendtest.Model).Clone()
		b := in.batch(out.replies[0].Now)
		recalled := out.replies[0].Recalled
		for i := range b.Ops {
			if recalled && b.Ops[i].Verb == backends.Count {
				b.Ops[i].Verb = backends.Charge
			}
		}
		_ = next.Apply(context.Background(), b)
		for i := range b.Ops {
			if !in.history.same(&b.Ops[i], out.replies[i], b.Replies[i]) || recalled && b.Charged(i) {
				return nil
			}
		}
		return successors(state.(*backendtest.Model), next, b)
	},
	Equal: func(a, b any) bool { return a.(*backendtest.Model).Equal(b.(*backendtest.Model)) },
}).ToModel()

// successors are the states that a store may have after b: it may have forgotten
// a cell that has ended, and it need not write a cell that was not charged. Only a
// request whose time is older can see the difference.
func successors(before, after *backendtest.Model, b *backends.Batch) []any {
	all := []any{after}
	add := func(m *backendtest.Model) {
		if !slices.ContainsFunc(all, func(other any) bool { return other.(*backendtest.Model).Equal(m) }) {
			all = append(all, m)
		}
	}
	for i := range b.Ops {
		op := &b.Ops[i]
		for _, state := range slices.Clone(all) {
			forgotten := state.(*backendtest.Model).Clone()
			forgotten.Forget(op)
			add(forgotten)
			if !op.Verb.Operates() && !op.Identified() && (!b.Charged(i) || op.By == (backends.Amount{})) {
				same := state.(*backendtest.Model).Clone()
				same.Keep(op, before)
				add(same)
			}
		}
	}
	return all
}

// same compares the fields that a strategy may read.
func (h *history) same(op *backends.Op, got, want backends.Reply) bool {
	if op.Kind == backends.Meter || h.merged && op.Verb.GivesBack() {
		got.Until, want.Until = 0, 0
	}
	if h.merged && op.Verb.GivesBack() {
		got.Value, want.Value = backends.Amount{}, backends.Amount{}
		got.Prev, want.Prev = 0, 0 // which a refund by a clock that is behind changes
	}
	return backendtest.Same(op, got, want)
}
