package backendtest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
)

// testFurther compares operations that have terms or make reservations with the model, and
// plays the timelines of their limits.
func testFurther(t *testing.T, s backends.Store) {
	t.Run("Steps", func(t *testing.T) { compare(t, s, true) })
	t.Run("Reset", func(t *testing.T) { testResetOfReservations(t, s) })
	t.Run("Check", func(t *testing.T) { testCheckOfForgotten(t, s) })
	t.Run("Shared", func(t *testing.T) { testSharedWithReservations(t, s) })
	t.Run("Refused", func(t *testing.T) { testRefusedReservations(t, s) })
	t.Run("Known", func(t *testing.T) { testKnownReservations(t, s) })
	t.Run("Meet", func(t *testing.T) { testLimitsMeet(t, s) })
	t.Run("Reports", func(t *testing.T) { testReportsMeet(t, s) })
	t.Run("Lives", func(t *testing.T) { testDebtLives(t, s) })
	t.Run("Grant", func(t *testing.T) { testGrantOverLapsed(t, s) })
	t.Run("Back", func(t *testing.T) { testHitsComeBack(t, s) })
	for _, tl := range furtherTimelines {
		t.Run(tl.name, func(t *testing.T) { playAll(t, s, tl, algorithms.Lease{}) })
	}
}

// testResetOfReservations wants that a reset forgets the reservations of the cell, also if the
// reset comes without an ID: none of them gives back hits of later charges.
func testResetOfReservations(t *testing.T, s backends.Store) {
	for _, spec := range []algorithms.Spec{
		{}, {Overdraft: 50}, {Strategy: algorithms.SlidingWindow}, {Strategy: algorithms.SlidingLog}, {Strategy: algorithms.TokenBucket},
	} {
		for _, spec.Reserve = range []algorithms.Reserve{algorithms.DefaultReserve, {TTL: time.Minute, GiveBack: true}} {
			spec.Requests, spec.Window = 10, time.Hour
			for _, plain := range []bool{false, true} { // the reset of one who knows no reservations
				c := newSteering(t, s, spec)
				reserve := func(id string, hits uint64) backends.Op {
					return c.planned(algorithms.Charge{Cost: hits, Reservation: reservation(id)})
				}
				applyOne(t, s, reserve("a", 6))
				reset := reserve("a", 0)
				if plain {
					reset.Hold = nil
				}
				applyOne(t, s, reset.Reset())
				applyOne(t, s, reserve("b", 7)) // ends when the first one would have ended
				op := reserve("a", 2)
				r := applyOne(t, s, op)
				if d := c.limit.Judge(&op, &r); d.Remaining != 1 || r.HoldState() != backends.Held {
					t.Errorf("%+v: after a reset the ID is new, and its hits are charged: %+v, %v", spec, d, r.HoldState())
				}
				op = reserve("b", 1)
				r = applyOne(t, s, op)
				if d := c.limit.Judge(&op, &r); d.Remaining != 7 || r.HoldState() != backends.Settled {
					t.Errorf("%+v: a reservation of after the reset: %+v, %v", spec, d, r.HoldState())
				}
			}
		}
	}
}

// testCheckOfForgotten wants that a check of an ID whose reservation a reset has forgotten leaves its
// record as it is. In one µs the same ID opens the cell with the same number again, and the record
// then counts, after a check as without one.
func testCheckOfForgotten(t *testing.T, s backends.Store) {
	for _, spec := range []algorithms.Spec{{}, {Overdraft: 50}, {Strategy: algorithms.SlidingLog}, {Strategy: algorithms.TokenBucket}} {
		for _, spec.Reserve = range []algorithms.Reserve{algorithms.DefaultReserve, {TTL: time.Minute, GiveBack: true}} {
			spec.Requests, spec.Window = 10, time.Hour
			var replies []backends.Reply
			for _, checks := range []bool{false, true} {
				c := newSteering(t, s, spec)
				reserve := func(id string, hits uint64) backends.Reply {
					return applyOne(t, s, c.planned(algorithms.Charge{Cost: hits, Reservation: reservation(id)}))
				}
				reserve("a", 3)
				reserve("b", 2)
				c.reset()
				if checks {
					reserve("b", 0)
				}
				reserve("a", 3)
				replies = append(replies, reserve("b", 1))
			}
			if r := replies[1]; r.HoldState() != replies[0].HoldState() || r.Value != replies[0].Value {
				t.Errorf("%+v: after a check the reservation is %v of %v, without one %v of %v",
					spec, r.HoldState(), r.Value, replies[0].HoldState(), replies[0].Value)
			}
		}
	}
}

// testSharedWithReservations has a limit without reservations charge and refund the cell on which
// one is open, by itself, beside another counter and in a group. The reservation stays open.
func testSharedWithReservations(t *testing.T, s backends.Store) {
	for _, giveBack := range []bool{false, true} {
		for name, change := range map[string]func(*backends.Op){
			"fixed":    func(*backends.Op) {},
			"no limit": func(op *backends.Op) { op.Max = backends.NoMax },
			"count":    func(op *backends.Op) { op.Verb = backends.Count },
			"sliding": func(op *backends.Op) {
				op.Span, op.Mark, op.Window, op.Until = backends.Sliding, op.Now/window, window, (op.Now/window+2)*window
			},
			"carried": func(op *backends.Op) {
				op.Span, op.Mark, op.Window, op.Carry = backends.Carried, op.Now/window, window, 1
			},
			"meter": func(op *backends.Op) {
				op.Kind, op.Max.Whole, op.Full.Whole = backends.Meter, op.Now+100, 100
			},
			"list": func(op *backends.Op) { op.Kind, op.Window = backends.List, window },
		} {
			t.Run(fmt.Sprint(name, ", give back ", giveBack), func(t *testing.T) {
				key, now := fresh("shared"), epoch()
				op := func(by int64) backends.Op {
					op := counter(key, now, by, 100)
					change(&op)
					return op
				}
				held := func(by int64) backends.Op {
					held := op(by)
					held.Max, held.Verb = op(by).Max, backends.Charge
					held.Hold = &backends.Hold{Key: key + "|hold", ID: reservation("a"), TTL: 10 * second, GiveBack: giveBack}
					return held
				}
				applyOne(t, s, held(5))
				apply(t, s, &backends.Batch{Ops: []backends.Op{op(2)}})
				other := op(1)
				other.Key += "other"
				apply(t, s, &backends.Batch{Ops: []backends.Op{op(2), other}})
				apply(t, s, &backends.Batch{Ops: []backends.Op{op(1), other}, AllOrNothing: true})
				refund := op(1)
				refund.Verb = backends.Refund
				apply(t, s, &backends.Batch{Ops: []backends.Op{refund}})
				r := applyOne(t, s, held(2))
				if used := r.Value.Whole % epoch(); used != 6 || r.HoldState() != backends.Settled {
					t.Errorf("%d hits are used, want 6, and the reservation is %v", used, r.HoldState())
				}
			})
		}
	}
}

// testRefusedReservations wants that two descriptors with new IDs, which are both denied, leave
// nothing: their IDs are as new as before.
func testRefusedReservations(t *testing.T, s backends.Store) {
	for _, spec := range []algorithms.Spec{{}, {Strategy: algorithms.SlidingLog}, {Strategy: algorithms.TokenBucket}, {Strategy: algorithms.Concurrency}} {
		spec.Requests, spec.Window, spec.Reserve = 10, time.Hour, algorithms.DefaultReserve
		c := newSteering(t, s, spec)
		op := func(hits uint64, id string, group uint8) backends.Op {
			op := c.planned(algorithms.Charge{Cost: hits, Reservation: id, AdmittedOnly: true})
			op.Group = group
			return op
		}
		a, b := reservation("a"), reservation("b")
		apply(t, s, &backends.Batch{Ops: []backends.Op{op(6, a, 1), op(11, "", 1), op(6, b, 2), op(11, "", 2)}})
		first := op(2, a, 0)
		r := applyOne(t, s, first)
		if d := c.limit.Judge(&first, &r); d.Remaining != 8 || r.HoldState() != backends.Held {
			t.Errorf("%+v: denied hits stay charged, or their ID is not new: %+v, %v", spec, d, r.HoldState())
		}
	}
}

// testKnownReservations wants that an operation that charges whatever remains does so beside a
// refused group.
func testKnownReservations(t *testing.T, s backends.Store) {
	for name, debt := range map[string]int64{"no debt": 0, "debt": 20} {
		for _, first := range []int64{0, 6} { // a check, and a reservation that is not made
			key, now := fresh("known"), epoch()
			op := func(by int64, id string, group uint8) backends.Op {
				op := counter(key, now, by, 10)
				op.Hold = &backends.Hold{Key: key + "|hold", ID: reservation(id), TTL: second, Known: id == "known"}
				op.Unit, op.Group = backends.Amount{Whole: 1}, group
				if debt > 0 {
					op.Debt.Whole, op.Carry = debt, 10
					op.Span, op.Mark, op.Window = backends.Carried, now/window, window
				}
				return op
			}
			full := counter(key+"full", now, 1, 0)
			full.Group = 2
			batch := []backends.Op{op(first, "new", 2), op(4, "known", 2), full}
			if first == 0 {
				batch[0].Group = 1
			}
			apply(t, s, &backends.Batch{Ops: batch})
			look := op(0, "new", 0)
			holds(t, s, look.Look(), 4)
			if t.Failed() {
				t.Fatalf("%s, after %d hits", name, first)
			}
		}
	}
}

// testLimitsMeet has another limit ask the cell of a debt: one that may have less debt, and one
// that pays sooner. Whatever it asks, the debt stays, but for hits that it gives back.
func testLimitsMeet(t *testing.T, s backends.Store) {
	for _, spec := range []algorithms.Spec{
		{Strategy: algorithms.TokenBucket, Burst: 10}, {Strategy: algorithms.GCRA, Burst: 10}, {Strategy: algorithms.LeakyBucket, Burst: 10}, {},
	} {
		spec.Requests, spec.Window, spec.Overdraft = 10, time.Hour, algorithms.FullOverdraft
		less, sooner := spec, spec
		less.Overdraft, sooner.Overdraft, sooner.Requests = 1, 1, 3600
		for _, other := range []algorithms.Spec{less, sooner} {
			c := newSteering(t, s, spec)
			asker := *c
			asker.limit = limited(t, other, other.Requests)
			c.charge(60, false)
			want := c.charge(0, false)
			for name, ask := range map[string]func(){
				"a check":  func() { asker.charge(0, false) },
				"a denial": func() { asker.charge(1, false) },
				"a refund": func() { asker.charge(5, true); c.charge(5*uint64(c.limit.Requests/other.Requests), false) },
			} {
				if name == "a refund" && other.Requests != spec.Requests {
					continue // a hit is another time there
				}
				ask()
				if is := c.charge(0, false); is.Allowed || is.RetryAfter < want.RetryAfter {
					t.Errorf("%+v, after %s of %+v: %+v, want %+v", spec, name, other, is, want)
				}
			}
			asker.grant(1)
			if is := c.charge(0, false); is.Allowed || is.RetryAfter < want.RetryAfter-time.Hour {
				t.Errorf("%+v, after a grant of 1 hit of %+v: %+v, was %+v", spec, other, is, want)
			}
		}
	}
}

// testReportsMeet has a limit without an overdraft, which shares a cell, ask it after a charge that
// was made whatever remained. The debt stays.
func testReportsMeet(t *testing.T, s backends.Store) {
	c := newSteering(t, s, algorithms.Spec{Strategy: algorithms.TokenBucket, Requests: 10, Window: time.Hour, Burst: 10})
	c.id.Longest = (10 * time.Minute).Microseconds()
	applyOne(t, s, c.planned(algorithms.Charge{Cost: 50, Beyond: true}))
	want := c.charge(0, false)
	asker, other := *c, c.limit.Spec
	other.Lease = algorithms.Lease{Share: 500_000, TTL: time.Second}
	asker.limit = limited(t, other, other.Requests)
	asker.charge(1, false)
	if is := c.charge(0, false); is != want || is.Reset < 4*time.Hour {
		t.Errorf("after a hit of %+v: %+v, want %+v", other, is, want)
	}
}

// testDebtLives wants that the cell of a debt lives until the smallest limit would have paid it,
// and that other cells end with their window.
func testDebtLives(t *testing.T, s backends.Store) {
	for used, windows := range map[uint64]int64{10: 1, 22: 22} {
		c := newSteering(t, s, algorithms.Spec{Requests: 10, Window: time.Minute, Overdraft: algorithms.FullOverdraft})
		if until := applyOne(t, s, c.plan(used, false)).Until; until != epoch()+windows*window {
			t.Errorf("%d of 10 hits count for %v, want %d minutes", used, time.Duration(until-epoch())*time.Microsecond, windows)
		}
	}
}

// testGrantOverLapsed wants that hits that come back at a grant come off the debt of a bucket.
func testGrantOverLapsed(t *testing.T, s backends.Store) {
	c := newSteering(t, s, algorithms.Spec{Strategy: algorithms.TokenBucket, Requests: 10, Window: time.Hour, Burst: 10})
	c.id.Longest = (64 * time.Second).Microseconds()
	charge := func(hits uint64, id string, beyond bool) {
		applyOne(t, s, c.planned(algorithms.Charge{Cost: hits, Reservation: reservation(id), Beyond: beyond}))
	}
	charge(6, "a", false)
	charge(50, "b", true) // a debt of 46
	c.now += 65 * second
	if d := c.grant(3); d.Remaining != 3 {
		t.Errorf("after a grant of 3 hits on a bucket with debt: %+v", d)
	}
}

// testHitsComeBack wants that every hit of a list comes back once, although clocks are behind
// others, and although several reservations are of as many hits and of one microsecond. Refunds
// without an ID leave the hits of reservations.
func testHitsComeBack(t *testing.T, s backends.Store) {
	for _, spec := range []algorithms.Spec{
		{Strategy: algorithms.SlidingLog}, {Strategy: algorithms.Concurrency}, {Strategy: algorithms.SlidingWindow, Precision: 60},
	} {
		for _, behind := range []int64{0, 1, second / 2, 3600 * second} {
			for _, lapse := range []bool{false, true} {
				spec.Requests, spec.Window, spec.Reserve = 10, 24*time.Hour, algorithms.Reserve{TTL: 2 * time.Hour, GiveBack: lapse}
				t.Run(fmt.Sprintf("%v, %d µs, lapse %v", spec.Strategy, behind, lapse), func(t *testing.T) {
					c := newSteering(t, s, spec)
					began := c.now
					call := func(late int64, hits uint64, refund bool, id string, remaining int64) {
						t.Helper()
						c.now = began - late
						c.wants(c.apply(c.planned(algorithms.Charge{Cost: hits, Refund: refund, Reservation: id})), remaining)
					}
					a, b, late := reservation("a"), reservation("b"), reservation("late")
					call(0, 2, false, a, 8)
					call(0, 2, false, b, 6)
					call(behind, 1, false, late, 5)
					call(behind, 1, false, "", 4)
					call(0, 1, true, "", 5)
					if !lapse {
						call(behind, 0, false, a, 7)
						call(0, 9, true, late, 8)
						call(0, 1, false, b, 9)
						call(0, 1, true, "", 10)
					}
					c.now = began + 3*3600*second
					c.wants(c.look(), 10)
					c.passes(10)
				})
			}
		}
	}
}

// excepted reports whether one of the exceptions has that name.
func excepted(exceptions []Exceptions, name string) bool {
	return slices.ContainsFunc(exceptions, func(e Exceptions) bool { return e[name] != "" })
}

// reservation is an ID of 16 bytes, of which not all are printable.
func reservation(name string) string { return fmt.Sprintf("\x00:|%-13s", name)[:15] + "\xff" }

// cutOf is how many hits op did not charge.
func cutOf(op *backends.Op, r *backends.Reply) int64 {
	if r.Account == nil {
		return 0
	}
	return r.Account.Cut.Units(op.Unit, op.Den)
}

// furtherKeys are the keys of cells whose operations have terms, the shift and denominator of the meter, and
// the number of the keys of the reservations.
type furtherKeys struct {
	carried, shifted, parts, oldest string
	shift, den                      int64
	holds                           int
}

func (k *furtherKeys) leave(m *Model, now int64, over bool) {
	// A refund writes a cell that has ended as an empty one, unless the store has forgotten it.
	if m.ended(k.carried, now) || m.cells[k.carried].Value == (backends.Amount{}) {
		k.carried = fresh("carried")
	}
	if over || m.lapsed(k.parts, now) {
		k.parts = fresh("parts")
	}
	if over || m.lapsed(k.oldest, now) {
		k.oldest = fresh("oldest")
	}
	k.holds++
}

// reshift gives the meters another shift and denominator if changed, as a changed limit does.
// A meter that has ended gets another key: with the higher shift it would come back.
func (g *generator) reshift(m *Model, now int64, changed bool) {
	for i := range g.sets {
		k := &g.sets[i].further
		if m.ended(k.shifted, now) {
			k.shifted = fresh("shifted")
		}
		if !changed {
			continue
		}
		k.shift, k.den = g.rng.Int64N(60)*second, 7
		if i < 2 {
			k.den = 5 + 2*g.rng.Int64N(2)
		}
	}
}

// withTerms makes op a charge or a refund of a limit with terms.
func (g *generator) withTerms(op *backends.Op, kind int, k *keys) {
	r := g.rng
	debt := backends.Amount{Whole: r.Int64N(30)}
	switch kind {
	case 6:
		op.Key, op.Span, op.Times = k.further.carried, backends.Carried, 1
		op.By, op.Max, op.Unit = backends.Amount{Whole: r.Int64N(20)}, backends.Amount{Whole: 10}, backends.Amount{Whole: 1}
		op.Mark, op.Until, op.Window = op.Now/window, (op.Now/window+1)*window, window
		op.Debt, op.Carry = debt, 10
	case 7:
		op.Kind, op.Key, op.Den, op.Times = backends.Meter, k.further.shifted, k.further.den, 1
		debt.Whole *= 3 * second
		op.By = backends.Amount{Whole: r.Int64N(20) * 3 * second, Frac: r.Int64N(op.Den)}
		op.Unit = backends.Amount{Whole: 3 * second, Frac: 1}
		shift := backends.Amount{Whole: k.further.shift, Frac: 3}
		op.Max = shift.Add(backends.Amount{Whole: op.Now}, op.Den)
		op.Full = shift.Add(debt, op.Den)
		op.Debt, op.Shift = debt, shift
	case 8:
		op.Kind, op.Key, op.Window, op.Until = backends.List, k.further.parts, window, op.Now+window
		op.Parts = 7
	case 9:
		op.Kind, op.Key, op.Window, op.Until = backends.List, k.further.oldest, window, op.Now+window
		op.Oldest = true
	}
}

// reserve makes op one that makes or settles a reservation, or not. All operations on the
// cells of one set have a Hold, because hits come back there.
func (g *generator) reserve(op *backends.Op, k *keys, giveBack bool) {
	r := g.rng
	var base string
	switch op.Kind {
	case backends.Counter:
		if op.Span == backends.FirstHit || op.Span == backends.EveryHit {
			return
		}
		if base = k.fixed; op.Span == backends.Sliding {
			base = k.slide
		} else if op.Span == backends.Carried {
			base = k.further.carried
		}
	default:
		base = op.Key
	}
	const longest = 40 * second
	hold := backends.Hold{Key: fmt.Sprintf("%s|hold%d", base, k.further.holds), TTL: longest, GiveBack: giveBack}
	if op.Den != 5 && r.IntN(2) == 0 {
		hold.ID, hold.Known = reservation(string(rune('a'+r.IntN(3)))), r.IntN(4) == 0
		if r.IntN(3) == 0 {
			hold.TTL /= 2
		}
		op.Times = 1
		if op.Verb == backends.Count {
			op.Verb = backends.Charge
		}
		if op.Max == backends.NoMax {
			op.Max = backends.Amount{Whole: 20}
		}
	}
	if hold.ID != "" || giveBack {
		op.Hold = &hold
	}
}

const hundredYears = 100 * 365 * 24 * time.Hour

// The examples of the documents, and what follows from them.
var furtherTimelines = []timeline{
	{"overdraft: a token bucket of 10 a second", algorithms.Spec{Strategy: algorithms.TokenBucket, Requests: 10, Window: time.Second, Burst: 10, Overdraft: algorithms.FullOverdraft}, false, []event{
		{hits: 1, cost: 35, admitted: 1, remaining: 0, reset: 3500 * time.Millisecond},
		{at: 2500 * time.Millisecond, hits: 1, check: true, admitted: 0, remaining: 0, retry: 100 * time.Millisecond},
		{at: 2600 * time.Millisecond, hits: 1, check: true, admitted: 1, remaining: 1},
		{at: 2600 * time.Millisecond, hits: 1, cost: 3, refund: true, admitted: 1, remaining: 4},
		{at: 2600 * time.Millisecond, hits: 1, cost: 4, admitted: 1, remaining: 0},
		{at: 2600 * time.Millisecond, hits: 1, cost: 5, admitted: 0, remaining: 0, retry: 600 * time.Millisecond},
	}},
	{"overdraft: a fixed window of 10 a minute", algorithms.Spec{Requests: 10, Window: time.Minute, Overdraft: algorithms.FullOverdraft}, false, []event{
		{at: 10 * time.Second, hits: 1, cost: 35, admitted: 1, remaining: 0},
		{at: time.Minute, hits: 1, check: true, admitted: 0, remaining: 0, retry: 2 * time.Minute},
		{at: 2 * time.Minute, hits: 1, check: true, admitted: 0, remaining: 0, retry: time.Minute},
		{at: 3 * time.Minute, hits: 1, check: true, admitted: 1, remaining: 5},
		{at: 3 * time.Minute, hits: 1, cost: 2, refund: true, admitted: 1, remaining: 7},
		{at: 3 * time.Minute, hits: 1, cost: 8, admitted: 1, remaining: 0},
		{at: 3 * time.Minute, hits: 1, admitted: 0, remaining: 0, retry: time.Minute},
		{at: 4 * time.Minute, hits: 1, check: true, admitted: 1, remaining: 8},
	}},
	{"overdraft: days of a calendar", algorithms.Spec{Requests: 10, Window: 24 * time.Hour, Overdraft: algorithms.FullOverdraft,
		Calendar: algorithms.Calendar{On: true, Zone: "Asia/Kathmandu"}}, false, []event{
		{at: untilKathmandu + time.Hour, hits: 1, cost: 35, admitted: 1, remaining: 0, reset: 95 * time.Hour},
		{at: untilKathmandu + 24*time.Hour, hits: 1, check: true, admitted: 0, remaining: 0, retry: 48 * time.Hour},
		{at: untilKathmandu + 73*time.Hour, hits: 1, check: true, admitted: 1, remaining: 5, reset: 23 * time.Hour},
	}},
	{"overdraft: what is beyond the debt is cut off", algorithms.Spec{Requests: 10, Window: time.Minute, Overdraft: 5}, false, []event{
		{hits: 1, cost: 35, admitted: 1, remaining: 0, cut: 20},
		{hits: 1, cost: 3, admitted: 0, remaining: 0, cut: 3},
		{at: time.Minute, hits: 1, check: true, admitted: 1, remaining: 5},
	}},
	{"overdraft: what is beyond the debt of a bucket is cut off", algorithms.Spec{Strategy: algorithms.GCRA, Requests: 7, Window: time.Minute, Burst: 10, Overdraft: 5}, false, []event{
		{hits: 1, cost: 35, admitted: 1, remaining: 0, cut: 20},
		{hits: 1, check: true, admitted: 0, remaining: 0},
	}},
	{"overdraft: a raised burst keeps the debt", algorithms.Spec{Strategy: algorithms.TokenBucket, Requests: 10, Window: time.Second, Burst: 10, Overdraft: algorithms.FullOverdraft}, false, []event{
		{hits: 1, cost: 35, admitted: 1, remaining: 0},
		{hits: 1, check: true, admitted: 0, remaining: 0, retry: 2600 * time.Millisecond,
			limit: &algorithms.Spec{Strategy: algorithms.TokenBucket, Requests: 10, Window: time.Second, Burst: 20, Overdraft: algorithms.FullOverdraft}},
	}},
	{"overdraft: a debt of a window outlives a lowered limit", algorithms.Spec{Requests: 10, Window: time.Minute, Overdraft: algorithms.FullOverdraft}, false, []event{
		{hits: 1, cost: 22, admitted: 1, remaining: 0, retry: 0},
		{at: 4 * time.Minute, hits: 1, check: true, admitted: 1, remaining: 3,
			limit: &algorithms.Spec{Requests: 5, Window: time.Minute, Overdraft: algorithms.FullOverdraft}},
		{at: 5 * time.Minute, hits: 1, check: true, admitted: 1, remaining: 5},
	}},
	{"overdraft: a limit of 10,000,000 a month that is lowered to 1", algorithms.Spec{Requests: 10_000_000, Window: 30 * 24 * time.Hour, Overdraft: algorithms.FullOverdraft}, false, []event{
		{hits: 1, cost: 5_000_000, admitted: 1, remaining: 5_000_000},
		{hits: 1, admitted: 0, remaining: 0, retry: hundredYears, reset: hundredYears, cut: 1,
			limit: &algorithms.Spec{Requests: 1, Window: 30 * 24 * time.Hour, Overdraft: algorithms.FullOverdraft}},
		{at: 90 * 24 * time.Hour, hits: 1, admitted: 0, remaining: 0, retry: hundredYears, reset: hundredYears, cut: 1},
		{at: 90 * 24 * time.Hour, hits: 1, check: true, admitted: 1, remaining: 5_000_000 + 3, // a hit for each of three months
			limit: &algorithms.Spec{Requests: 10_000_000, Window: 30 * 24 * time.Hour, Overdraft: algorithms.FullOverdraft}},
	}},
	{"overdraft: months of a calendar, lowered to 1", algorithms.Spec{Requests: 10_000_000, Window: 30 * 24 * time.Hour, Overdraft: algorithms.FullOverdraft, Calendar: algorithms.Calendar{On: true}}, false, []event{
		{hits: 1, cost: 5_000_000, admitted: 1, remaining: 5_000_000},
		{hits: 1, admitted: 0, remaining: 0, retry: hundredYears, reset: hundredYears, cut: 1,
			limit: &algorithms.Spec{Requests: 1, Window: 30 * 24 * time.Hour, Overdraft: algorithms.FullOverdraft, Calendar: algorithms.Calendar{On: true}}},
		{hits: 1, check: true, admitted: 0, remaining: 0, retry: hundredYears},
	}},

	{"reserve: the true cost is far above the burst", algorithms.Spec{Strategy: algorithms.TokenBucket, Requests: 1, Window: time.Second, Burst: 20, Reserve: algorithms.DefaultReserve}, false, []event{
		{hits: 1, cost: 15, id: "a", admitted: 1, remaining: 5, hold: backends.Held},
		{at: 15 * time.Second, hits: 1, cost: 1000, id: "a", admitted: 1, remaining: 0, hold: backends.Settled, cut: anything},
		{at: 15 * time.Second, hits: 1, admitted: 0, remaining: 0, retry: time.Second},
	}},
	{"reserve: the true cost is far above the debt", algorithms.Spec{Strategy: algorithms.GCRA, Requests: 1, Window: time.Second, Burst: 20, Overdraft: 30, Reserve: algorithms.DefaultReserve}, false, []event{
		{hits: 1, cost: 50, id: "a", admitted: 1, remaining: 0, hold: backends.Held},
		{at: 50 * time.Second, hits: 1, cost: 1000, id: "a", admitted: 1, remaining: 0, hold: backends.Settled, cut: anything},
		{at: 50 * time.Second, hits: 1, check: true, admitted: 0, remaining: 0, retry: 31 * time.Second},
	}},
	{"reserve: a fixed window", algorithms.Spec{Requests: 10, Window: time.Minute, Reserve: algorithms.DefaultReserve}, false, []event{
		{hits: 1, cost: 4, id: "a", admitted: 1, remaining: 6, hold: backends.Held},
		{hits: 1, cost: 7, id: "b", admitted: 0, remaining: 6}, // denied: charges and leaves nothing
		{hits: 1, check: true, id: "b", admitted: 1, remaining: 6},
		{hits: 1, cost: 6, id: "b", admitted: 1, remaining: 0, hold: backends.Held},
		{hits: 1, cost: 1, id: "a", admitted: 1, remaining: 3, hold: backends.Settled},
		{hits: 1, cost: 9, id: "a", admitted: 1, remaining: 3, hold: backends.Unchanged},
		{hits: 1, cost: 9, id: "a", refund: true, admitted: 1, remaining: 3, hold: backends.Unchanged},
		{hits: 1, cost: 20, id: "b", admitted: 1, remaining: 0, hold: backends.Settled, cut: 11},
		{hits: 1, cost: 5, id: "c", refund: true, admitted: 1, remaining: 0}, // holds nothing
	}},
	{"reserve: a settlement when the bucket is full", algorithms.Spec{Strategy: algorithms.TokenBucket, Requests: 10, Window: time.Second, Burst: 10, Reserve: algorithms.DefaultReserve}, false, []event{
		{hits: 1, cost: 4, id: "a", admitted: 1, remaining: 6, hold: backends.Held},
		{at: time.Minute, hits: 1, cost: 1, refund: true, admitted: 1, remaining: 10},
		{at: time.Minute, hits: 1, cost: 7, id: "a", admitted: 1, remaining: 7, hold: backends.Settled},
		{at: 2 * time.Minute, hits: 1, cost: 7, id: "a", admitted: 1, remaining: 10, hold: backends.Unchanged},
	}},
	{"reserve: hits that come back to a full bucket", algorithms.Spec{Strategy: algorithms.TokenBucket, Requests: 10, Window: time.Second, Burst: 10, Reserve: algorithms.Reserve{TTL: 64 * time.Second, GiveBack: true}}, false, []event{
		{hits: 1, cost: 4, id: "a", admitted: 1, remaining: 6, hold: backends.Held},
		{hits: 1, cost: 3, id: "b", admitted: 1, remaining: 3, hold: backends.Held},
		{at: time.Minute, hits: 1, cost: 1, refund: true, admitted: 1, remaining: 10},
		{at: time.Minute, hits: 1, cost: 7, id: "a", admitted: 1, remaining: 7, hold: backends.Settled},
		{at: 70 * time.Second, hits: 1, cost: 2, id: "b", admitted: 1, remaining: 8, hold: backends.Held}, // the first one has lapsed
	}},
	{"reserve: a cancelled reservation, one of a window that is over, and one that is forgotten", algorithms.Spec{Requests: 10, Window: time.Minute, Reserve: algorithms.Reserve{TTL: 90 * time.Second}}, false, []event{
		{hits: 1, cost: 4, id: "a", admitted: 1, remaining: 6, hold: backends.Held},
		{hits: 1, cost: 1, id: "a", refund: true, admitted: 1, remaining: 10, hold: backends.Settled},
		{hits: 1, cost: 4, id: "b", admitted: 1, remaining: 6, hold: backends.Held},
		{hits: 1, cost: 4, id: "c", admitted: 1, remaining: 2, hold: backends.Held},
		{at: time.Minute, hits: 1, cost: 5, admitted: 1, remaining: 5},
		{at: time.Minute, hits: 1, cost: 1, id: "b", admitted: 1, remaining: 5, hold: backends.Settled, cut: 3},
		{at: 90 * time.Second, hits: 1, cost: 4, id: "c", admitted: 1, remaining: 1, hold: backends.Held},
		{at: 90 * time.Second, hits: 1, check: true, id: "a", admitted: 1, remaining: 1},
	}},
	{"reserve: a settlement goes into debt with an overdraft", algorithms.Spec{Strategy: algorithms.TokenBucket, Requests: 10, Window: time.Second, Burst: 10, Overdraft: algorithms.FullOverdraft, Reserve: algorithms.DefaultReserve}, false, []event{
		{hits: 1, cost: 4, id: "a", admitted: 1, remaining: 6, hold: backends.Held},
		{hits: 1, cost: 30, id: "a", admitted: 1, remaining: 0, hold: backends.Settled},
		{hits: 1, cost: 1, id: "b", admitted: 0, remaining: 0, retry: 2100 * time.Millisecond}, // charges nothing
		{hits: 1, check: true, admitted: 0, remaining: 0, retry: 2100 * time.Millisecond},
		{hits: 1, cost: 1, admitted: 0, remaining: 0, retry: 2200 * time.Millisecond},
	}},
	{"reserve: an overdraft of a fixed window", algorithms.Spec{Requests: 10, Window: time.Minute, Overdraft: 100, Reserve: algorithms.DefaultReserve}, false, []event{
		{hits: 1, cost: 25, id: "a", admitted: 1, remaining: 0, hold: backends.Held},
		{hits: 1, cost: 3, id: "b", admitted: 0, remaining: 0},
		{hits: 1, cost: 12, id: "a", admitted: 1, remaining: 0, hold: backends.Settled},
		{at: time.Minute, hits: 1, check: true, admitted: 1, remaining: 8},
	}},
	{"reserve: hits beyond the debt are not held", algorithms.Spec{Requests: 10, Window: time.Minute, Overdraft: 5, Reserve: algorithms.DefaultReserve}, false, []event{
		{hits: 1, cost: 8, admitted: 1, remaining: 2},
		{hits: 1, cost: 35, id: "a", admitted: 1, remaining: 0, hold: backends.Held, cut: 28}, // holds 7
		{hits: 1, cost: 1, id: "a", admitted: 1, remaining: 1, hold: backends.Settled},
		{hits: 1, cost: 35, id: "b", admitted: 1, remaining: 0, hold: backends.Held, cut: 29},
		{hits: 1, cost: 35, id: "b", refund: true, admitted: 1, remaining: 1, hold: backends.Settled},
	}},
	{"reserve: hits beyond the debt of a bucket are not held, and do not come back", algorithms.Spec{Strategy: algorithms.GCRA, Requests: 7, Window: 7 * 24 * time.Hour, Burst: 10, Overdraft: 5, Reserve: algorithms.Reserve{TTL: 64 * time.Second, GiveBack: true}}, false, []event{
		{hits: 1, cost: 8, admitted: 1, remaining: 2},
		{hits: 1, cost: 12, id: "a", admitted: 1, remaining: 0, hold: backends.Held, cut: 5},
		{hits: 1, cost: 1, id: "a", admitted: 1, remaining: 1, hold: backends.Settled},
		{hits: 1, cost: 12, id: "b", admitted: 1, remaining: 0, hold: backends.Held, cut: 6},
		{at: 65 * time.Second, hits: 1, check: true, admitted: 1, remaining: 1},
	}},
	{"reserve: hits that nobody settles come back", algorithms.Spec{Requests: 10, Window: time.Hour, Reserve: algorithms.Reserve{TTL: 64 * time.Second, GiveBack: true}}, false, []event{
		{hits: 1, cost: 4, id: "a", admitted: 1, remaining: 6, hold: backends.Held},
		{hits: 1, cost: 3, id: "b", admitted: 1, remaining: 3, hold: backends.Held},
		{at: time.Second, hits: 1, cost: 2, id: "c", admitted: 1, remaining: 1, hold: backends.Held},
		{at: time.Second, hits: 1, cost: 1, id: "b", admitted: 1, remaining: 3, hold: backends.Settled},
		{at: 63 * time.Second, hits: 1, check: true, admitted: 1, remaining: 3},
		{at: 64 * time.Second, hits: 1, check: true, admitted: 1, remaining: 7},
		{at: 64 * time.Second, hits: 1, cost: 4, id: "b", admitted: 1, remaining: 7, hold: backends.Unchanged},
		{at: 64 * time.Second, hits: 1, cost: 4, id: "a", admitted: 1, remaining: 3, hold: backends.Held},
		{at: 50 * time.Minute, hits: 1, check: true, admitted: 1, remaining: 9},
	}},
	{"reserve: hits come back to a bucket", algorithms.Spec{Strategy: algorithms.TokenBucket, Requests: 10, Window: time.Hour, Burst: 10, Reserve: algorithms.Reserve{TTL: 64 * time.Second, GiveBack: true}}, false, []event{
		{hits: 2, cost: 4, id: "a", admitted: 2, remaining: 6, hold: backends.Settled},
		{hits: 1, cost: 4, id: "b", admitted: 1, remaining: 2, hold: backends.Held},
		{at: 6 * time.Minute, hits: 1, check: true, admitted: 1, remaining: 7},
	}},
	{"reserve: a sliding window", algorithms.Spec{Strategy: algorithms.SlidingWindow, Requests: 10, Window: time.Minute, Reserve: algorithms.DefaultReserve}, false, []event{
		{hits: 1, cost: 4, id: "a", admitted: 1, remaining: 6, hold: backends.Held},
		{hits: 1, cost: 2, id: "a", admitted: 1, remaining: 8, hold: backends.Settled},
		{hits: 1, cost: 2, id: "b", admitted: 1, remaining: 6, hold: backends.Held},
		{at: time.Minute, hits: 1, check: true, id: "b", admitted: 1, remaining: 6, hold: backends.Settled, cut: 2},
	}},
	{"reserve: a sliding window that another clock has begun", algorithms.Spec{Strategy: algorithms.SlidingWindow, Requests: 10, Window: time.Minute, Reserve: algorithms.DefaultReserve}, false, []event{
		{at: time.Minute, hits: 1, admitted: 1, remaining: 9},
		{at: 59500 * time.Millisecond, hits: 1, cost: 9, id: "a", admitted: 1, remaining: 0, hold: backends.Held},
		{at: 59500 * time.Millisecond, hits: 1, cost: 14, id: "a", admitted: 1, remaining: 0, hold: backends.Settled, cut: 5},
	}},
	{"reserve: a sliding log", algorithms.Spec{Strategy: algorithms.SlidingLog, Requests: 10, Window: time.Minute, Reserve: algorithms.DefaultReserve}, false, []event{
		{hits: 1, cost: 4, id: "a", admitted: 1, remaining: 6, hold: backends.Held},
		{at: time.Second, hits: 1, cost: 4, admitted: 1, remaining: 2},
		{at: 2 * time.Second, hits: 1, cost: 1, id: "a", admitted: 1, remaining: 5, hold: backends.Settled},
		{at: time.Minute, hits: 1, check: true, admitted: 1, remaining: 6},
	}},

	{"on demand: a fixed window", algorithms.Spec{Requests: 10, Window: time.Minute}, false, []event{
		{hits: 1, cost: 4, id: "a", admitted: 1, remaining: 6, hold: backends.Held},
		{hits: 1, cost: 3, id: "b", admitted: 1, remaining: 3, hold: backends.Held},
		{hits: 1, cost: 2, id: "unknown", commit: true, admitted: 1, remaining: 1, hold: backends.Settled},
		{hits: 1, cost: 9, id: "unknown", commit: true, admitted: 1, remaining: 1, hold: backends.Unchanged},
		{at: time.Minute, hits: 1, cost: 5, id: "a", commit: true, admitted: 1, remaining: 5, hold: backends.Settled},
		{at: time.Minute, hits: 1, cost: 5, id: "a", commit: true, admitted: 1, remaining: 5, hold: backends.Unchanged},
		{at: time.Minute, hits: 1, check: true, id: "b", commit: true, admitted: 1, remaining: 5, hold: backends.Settled},
		{at: 2 * time.Minute, hits: 1, cost: 4, id: "c", admitted: 1, remaining: 6, hold: backends.Held},
		{at: 13 * time.Minute, hits: 1, cost: 15, id: "c", commit: true, admitted: 1, remaining: 0, hold: backends.Settled}, // it has lapsed
		{at: 13 * time.Minute, hits: 1, cost: 15, id: "c", commit: true, admitted: 1, remaining: 0, hold: backends.Unchanged},
		{at: 14 * time.Minute, hits: 1, check: true, admitted: 1, remaining: 10},
	}},
	{"on demand: an overdraft of a fixed window", algorithms.Spec{Requests: 10, Window: time.Minute, Overdraft: 100}, false, []event{
		{hits: 1, cost: 4, id: "a", admitted: 1, remaining: 6, hold: backends.Held},
		{at: time.Minute, hits: 1, cost: 25, id: "a", commit: true, admitted: 1, remaining: 0, hold: backends.Settled},
		{at: 3 * time.Minute, hits: 1, check: true, admitted: 1, remaining: 5},
	}},
	{"on demand: the debt of a fixed window is bounded", algorithms.Spec{Requests: 10, Window: time.Minute, Overdraft: 5}, false, []event{
		{hits: 1, cost: 20, id: "a", commit: true, admitted: 1, remaining: 0, hold: backends.Settled, cut: 5},
		{hits: 1, cost: 3, id: "b", commit: true, admitted: 1, remaining: 0, hold: backends.Settled, cut: 3},
		{at: time.Minute, hits: 1, check: true, admitted: 1, remaining: 5},
	}},
	{"on demand: the debt of a bucket is bounded", algorithms.Spec{Strategy: algorithms.TokenBucket, Requests: 10, Window: time.Second, Burst: 10, Overdraft: 5}, false, []event{
		{hits: 1, cost: 4, id: "a", admitted: 1, remaining: 6, hold: backends.Held},
		{hits: 1, cost: 20, id: "a", commit: true, admitted: 1, remaining: 0, hold: backends.Settled, cut: 5},
		{hits: 1, cost: 3, id: "b", commit: true, admitted: 1, remaining: 0, hold: backends.Settled, cut: 3},
		{hits: 1, check: true, admitted: 0, remaining: 0, retry: 600 * time.Millisecond},
	}},
	{"on demand: a sliding window", algorithms.Spec{Strategy: algorithms.SlidingWindow, Requests: 10, Window: time.Minute}, false, []event{
		{hits: 1, cost: 4, id: "a", admitted: 1, remaining: 6, hold: backends.Held},
		{hits: 1, cost: 4, id: "b", admitted: 1, remaining: 2, hold: backends.Held},
		{at: time.Minute, hits: 1, cost: 6, id: "a", commit: true, admitted: 1, remaining: 0, hold: backends.Settled}, // the window before still counts
		{at: 2 * time.Minute, hits: 1, cost: 5, id: "b", commit: true, admitted: 1, remaining: 3, hold: backends.Settled},
	}},
	{"on demand: a sliding log", algorithms.Spec{Strategy: algorithms.SlidingLog, Requests: 10, Window: time.Minute}, false, []event{
		{hits: 1, cost: 4, id: "a", admitted: 1, remaining: 6, hold: backends.Held},
		{hits: 1, cost: 2, id: "b", admitted: 1, remaining: 4, hold: backends.Held},
		{at: time.Minute - time.Second, hits: 1, cost: 5, id: "a", commit: true, admitted: 1, remaining: 3, hold: backends.Settled},
		{at: time.Minute, hits: 1, cost: 5, id: "b", commit: true, admitted: 1, remaining: 4, hold: backends.Settled},
	}},
	{"on demand: with precision", algorithms.Spec{Strategy: algorithms.SlidingWindow, Requests: 10, Window: time.Minute, Precision: 6}, false, []event{
		{hits: 1, cost: 4, id: "a", admitted: 1, remaining: 6, hold: backends.Held},
		{hits: 1, cost: 2, id: "b", admitted: 1, remaining: 4, hold: backends.Held},
		{at: 69 * time.Second, hits: 1, cost: 5, id: "a", commit: true, admitted: 1, remaining: 3, hold: backends.Settled},
		{at: 70 * time.Second, hits: 1, cost: 5, id: "b", commit: true, admitted: 1, remaining: 4, hold: backends.Settled},
	}},
	{"on demand: a bucket", algorithms.Spec{Strategy: algorithms.TokenBucket, Requests: 10, Window: time.Hour, Burst: 10}, false, []event{
		{hits: 1, cost: 4, id: "a", admitted: 1, remaining: 6, hold: backends.Held},
		{at: 6 * time.Minute, hits: 1, cost: 6, id: "a", commit: true, admitted: 1, remaining: 5, hold: backends.Settled},
		{at: 6 * time.Minute, hits: 1, cost: 30, id: "unknown", commit: true, admitted: 1, remaining: 0, hold: backends.Settled},
		{at: 6 * time.Minute, hits: 1, cost: 30, id: "unknown", commit: true, admitted: 1, remaining: 0, hold: backends.Unchanged},
	}},

	{"concurrency: slots", algorithms.Spec{Strategy: algorithms.Concurrency, Requests: 3, Window: time.Minute}, false, []event{
		{hits: 1, admitted: 1, remaining: 2, reset: time.Minute},
		{at: 10 * time.Second, hits: 1, admitted: 1, remaining: 1},
		{at: 20 * time.Second, hits: 1, cost: 2, admitted: 0, remaining: 1, retry: 40 * time.Second}, // all of a cost or none
		{at: 20 * time.Second, hits: 2, admitted: 1, remaining: 0, reset: time.Minute, retry: 40 * time.Second},
		{at: 30 * time.Second, hits: 1, check: true, admitted: 1, remaining: 0},
		{at: 30 * time.Second, hits: 1, cost: 2, admitted: 0, remaining: 0, retry: 40 * time.Second},
		{at: 30 * time.Second, hits: 1, refund: true, admitted: 1, remaining: 1}, // the oldest
		{at: 30 * time.Second, hits: 2, admitted: 1, remaining: 0, retry: 40 * time.Second},
		{at: 70 * time.Second, hits: 1, check: true, admitted: 1, remaining: 1}, // of a caller that died
		{at: 70 * time.Second, hits: 1, cost: 9, refund: true, admitted: 1, remaining: 3},
	}},
	{"concurrency: the very slots of an id", algorithms.Spec{Strategy: algorithms.Concurrency, Requests: 6, Window: time.Minute, Reserve: algorithms.DefaultReserve}, false, []event{
		{hits: 1, admitted: 1, remaining: 5},
		{at: 10 * time.Second, hits: 1, cost: 3, id: "a", admitted: 1, remaining: 2, hold: backends.Held},
		{at: 20 * time.Second, hits: 1, admitted: 1, remaining: 1},
		{at: 30 * time.Second, hits: 1, cost: 1, id: "a", admitted: 1, remaining: 3, hold: backends.Settled},
		{at: 30 * time.Second, hits: 1, cost: 4, admitted: 0, remaining: 3, retry: 30 * time.Second},
		{at: 60 * time.Second, hits: 1, cost: 1, id: "b", admitted: 1, remaining: 3, hold: backends.Held},
		{at: 60 * time.Second, hits: 1, cost: 9, id: "b", refund: true, admitted: 1, remaining: 4, hold: backends.Settled},
		{at: 70 * time.Second, hits: 1, check: true, admitted: 1, remaining: 5},
		{at: 80 * time.Second, hits: 1, check: true, admitted: 1, remaining: 6},
	}},

	{"precision: a part counts whole for one part longer than the window", algorithms.Spec{Strategy: algorithms.SlidingWindow, Requests: 10, Window: time.Minute, Precision: 6}, false, []event{
		{at: 9 * time.Second, hits: 1, cost: 4, admitted: 1, remaining: 6, reset: 61 * time.Second},
		{at: 12 * time.Second, hits: 1, cost: 5, admitted: 1, remaining: 1},
		{at: 13 * time.Second, hits: 1, cost: 1, admitted: 1, remaining: 0, reset: 67 * time.Second},
		{at: 14 * time.Second, hits: 1, cost: 5, admitted: 0, remaining: 0, retry: 66 * time.Second},
		{at: 14 * time.Second, hits: 1, cost: 4, admitted: 0, remaining: 0, retry: 56 * time.Second},
		{at: 69999 * time.Millisecond, hits: 1, check: true, admitted: 1, remaining: 0},
		{at: 70 * time.Second, hits: 1, check: true, admitted: 1, remaining: 4},
		{at: 70 * time.Second, hits: 1, cost: 3, admitted: 1, remaining: 1},
		{at: 71 * time.Second, hits: 1, cost: 4, refund: true, admitted: 1, remaining: 5}, // the newest
		{at: 80 * time.Second, hits: 1, check: true, admitted: 1, remaining: 10},
	}},
	{"precision: with a reservation", algorithms.Spec{Strategy: algorithms.SlidingWindow, Requests: 10, Window: time.Minute, Precision: 6, Reserve: algorithms.DefaultReserve}, false, []event{
		{at: 9 * time.Second, hits: 1, cost: 4, id: "a", admitted: 1, remaining: 6, hold: backends.Held},
		{at: 12 * time.Second, hits: 1, cost: 5, admitted: 1, remaining: 1},
		{at: 13 * time.Second, hits: 1, cost: 1, id: "a", admitted: 1, remaining: 4, hold: backends.Settled},
		{at: 70 * time.Second, hits: 1, check: true, admitted: 1, remaining: 5},
	}},
}
