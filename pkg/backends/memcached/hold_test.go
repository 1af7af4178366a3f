package memcached_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/bradfitz/gomemcache/memcache"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/memcached"
	"example.org/rls/test/backendtest"
)

const ttlOfHolds = 640 * second

// reserving is an operation of so many hits on a counter of an hour, with the reservation id. With
// the id "" it has no reservation.
func reserving(key, id string, hits int64, giveBack bool) backends.Op {
	op := hit(key, hits, 100)
	op.Unit.Whole = 1
	op.Hold = &backends.Hold{Key: key + "|hold", ID: id, TTL: ttlOfHolds, GiveBack: giveBack}
	if id == "" && !giveBack {
		op.Hold = nil
	}
	return op
}

func cancelling(op backends.Op) backends.Op {
	op.Verb = backends.Refund
	return op
}

// later is op after the end of reservations.
func later(op backends.Op) backends.Op {
	op.Now += ttlOfHolds + ttlOfHolds/32
	return op
}

// interrupt has f called at each nth request that goes through the relay from now on.
func interrupt(network *testenv.Relay, f func(n int64, request string)) {
	var n atomic.Int64
	network.Watch(func(request []byte) {
		if !strings.HasPrefix(string(request), "version") {
			f(n.Add(1), string(request))
		}
	})
}

// pair is two operations at the same moment, on a counter after others.
type pair struct {
	name   string
	before []backends.Op
	a, b   backends.Op
}

func pairs(key string, giveBack bool) []pair {
	op := func(hits int64) backends.Op { return reserving(key, "a", hits, giveBack) }
	plain := reserving(key, "", 3, giveBack)
	all := []pair{
		{"two reserve", nil, op(5), op(7)},
		{"two settle below", []backends.Op{op(5)}, op(2), op(3)},
		{"two settle above", []backends.Op{op(5)}, op(8), op(9)},
		{"one settles above what fits, one below", []backends.Op{op(5)}, op(150), op(2)},
		{"one settles below, one above", []backends.Op{op(5)}, op(2), op(9)},
		{"one settles above, one below", []backends.Op{op(5)}, op(9), op(2)},
		{"one reserves, one cancels", nil, op(5), cancelling(op(1))},
		{"one settles, one cancels", []backends.Op{op(5)}, op(9), cancelling(op(1))},
		{"one cancels, one settles", []backends.Op{op(5)}, cancelling(op(1)), op(9)},
		{"one reserves, another one, too", nil, op(5), reserving(key, "b", 5, giveBack)},
		{"one settles, another one, too", []backends.Op{op(5), reserving(key, "b", 5, giveBack)}, op(2), reserving(key, "b", 3, giveBack)},
		{"one settles, another hit", []backends.Op{op(5)}, op(2), plain},
		{"a reservation is given back, the id is used", nil, op(5), op(5).Inverse(0)},
	}
	if giveBack {
		all = append(all,
			pair{"one reserves, later it lapses", nil, op(5), later(plain)},
			pair{"one settles below, later it lapses", []backends.Op{op(5)}, op(2), later(plain)},
			pair{"one settles above, later it lapses", []backends.Op{op(5)}, op(8), later(plain)},
			pair{"it lapses late, one settles before", []backends.Op{op(5)}, later(plain), op(2)},
			pair{"two see it lapse", []backends.Op{op(5)}, later(plain), later(plain)},
			pair{"one settles, one resets", []backends.Op{op(5)}, op(2), op(0).Reset()},
			pair{"one reserves, one resets", nil, op(5), op(0).Reset()},
			pair{"one resets, one settles", []backends.Op{op(5)}, op(0).Reset(), op(9)},
		)
	}
	return all
}

// outcome is the replies to the operations of a pair, and what their counter holds in the end.
func outcome(t *testing.T, apply func(backends.Op) backends.Reply, p pair, both func() (a, b backends.Reply)) string {
	t.Helper()
	for _, op := range p.before {
		apply(op)
	}
	a, b := both()
	settled := reserving(p.a.Key, "a", 0, p.a.Hold.GiveBack)
	after := apply(p.a.Look())
	if p.a.Verb == backends.Reset || p.b.Verb == backends.Reset {
		return "" // a reservation beside a reset may stay charged and be unknown
	}
	return fmt.Sprintf("%d %d, then %d, and settled with 0 %d", a.HoldState(), b.HoldState(), after.Value.Whole, apply(settled).Value.Whole)
}

// TestTwoAtTheSameMoment runs one operation in the midst of another one, before each of its
// requests. The outcome is that of one before the other.
func TestTwoAtTheSameMoment(t *testing.T) {
	server := testenv.Memcached(t)
	network := testenv.NewRelay(t, server.Addr)
	far, near := open(t, memcached.Options{Servers: []string{network.Addr}}), open(t, memcached.Options{Servers: []string{server.Addr}})
	run := 0
	for _, giveBack := range []bool{false, true} {
		for i := range pairs("", giveBack) {
			t.Run(fmt.Sprint(pairs("", giveBack)[i].name, ", give back ", giveBack), func(t *testing.T) {
				for at, ended := int64(1), false; !ended; at++ {
					run++
					p := pairs(fmt.Sprint("pair", run), giveBack)[i]
					var allowed []string
					for _, aFirst := range []bool{true, false} {
						m := backendtest.NewModel()
						inModel := func(op backends.Op) backends.Reply {
							b := batch(op)
							_ = m.Apply(context.Background(), b)
							return b.Replies[0]
						}
						allowed = append(allowed, outcome(t, inModel, p, func() (a, b backends.Reply) {
							if aFirst {
								a = inModel(p.a)
								return a, inModel(p.b)
							}
							b = inModel(p.b)
							return inModel(p.a), b
						}))
					}
					got := outcome(t, func(op backends.Op) backends.Reply { return apply(t, near, op) }, p, func() (a, b backends.Reply) {
						ended = true
						interrupt(network, func(n int64, _ string) {
							if n == at {
								ended = false
								b = apply(t, near, p.b)
							}
						})
						a = apply(t, far, p.a)
						interrupt(network, func(int64, string) {})
						if ended {
							b = apply(t, near, p.b)
						}
						return a, b
					})
					if !slices.Contains(allowed, got) {
						t.Errorf("before request %d of the first: %s; want one of %q", at, got, allowed)
					}
				}
			})
		}
	}
}

// TestOneOfThreeReserves: two calls reserve at once. Before the slower one writes the cell, a third call has
// settled the reservation, but not yet written its record. The slower one finds it settled.
func TestOneOfThreeReserves(t *testing.T) {
	server := testenv.Memcached(t)
	near := open(t, memcached.Options{Servers: []string{server.Addr}})
	var far [2]*memcached.Store
	var networks [2]*testenv.Relay
	for i := range far {
		networks[i] = testenv.NewRelay(t, server.Addr)
		far[i] = open(t, memcached.Options{Servers: []string{networks[i].Addr}})
	}
	op := reserving("three", "a", 5, true)
	record := memcached.StoredKey(op.Hold.RecordKey())
	reached, ended := make(chan struct{}), make(chan struct{})
	third := make(chan backends.Reply, 1)
	var once, alsoOnce sync.Once
	interrupt(networks[1], func(_ int64, request string) {
		if strings.HasPrefix(request, "cas "+record) {
			once.Do(func() {
				close(reached)
				<-ended
			})
		}
	})
	interrupt(networks[0], func(_ int64, request string) {
		if strings.HasPrefix(request, "add three ") {
			alsoOnce.Do(func() {
				apply(t, near, op)
				go func() { third <- apply(t, far[1], op) }()
				<-reached
			})
		}
	})
	slower := apply(t, far[0], op)
	close(ended)
	last := <-third
	if n := apply(t, near, op.Look()).Value.Whole; slower.HoldState() != backends.Unchanged || last.HoldState() != backends.Settled || n != 5 {
		t.Errorf("the slower one gets %+v, the third one %+v, and %d hits are charged", slower.Account, last.Account, n)
	}
}

// TestWriterStopsBetweenItsWrites: a call has written the cell, and its write of the record does not arrive. The
// next calls find the record as if it had, also after a call with another ID, and after one whose clock is ahead, for
// which the reservation has ended. When the write arrives in the end, it changes nothing.
func TestWriterStopsBetweenItsWrites(t *testing.T) {
	near, server := start(t)
	run := 0
	for _, giveBack := range []bool{false, true} {
		op := func(id string, hits int64) backends.Op {
			return reserving(fmt.Sprint("stops", run), id, hits, giveBack)
		}
		for _, between := range []string{"no call", "a call with another ID", "a call whose clock is ahead"} {
			for _, c := range []struct {
				name   string
				before []int64
				stops  func() backends.Op
			}{
				{"reserves", nil, func() backends.Op { return op("a", 5) }},
				{"reserves anew", []int64{5, 5}, func() backends.Op { return later(op("a", 6)) }},
				{"settles below", []int64{5}, func() backends.Op { return op("a", 2) }},
				{"settles above", []int64{5}, func() backends.Op { return op("a", 9) }},
				{"cancels", []int64{5}, func() backends.Op { return op("a", 5).Inverse(0) }},
			} {
				run++
				m := backendtest.NewModel()
				asInModel := func(op backends.Op, now int64) {
					t.Helper()
					op.Now = now
					b := batch(op)
					_ = m.Apply(context.Background(), b)
					if got := apply(t, near, op); !backendtest.Same(&op, got, b.Replies[0]) {
						t.Errorf("%s, give back %v, %s: %d hits get %s, want %s", c.name, giveBack, between, op.By.Whole, show(got), show(b.Replies[0]))
					}
				}
				for _, hits := range c.before {
					asInModel(op("a", hits), epoch)
				}
				stops := c.stops()
				arrives := stop(t, server, stops)
				_ = m.Apply(context.Background(), batch(stops))
				now := stops.Now
				switch ends := stops.Hold.Ends(now); between {
				case "a call with another ID":
					asInModel(op("b", 4), now)
				case "a call whose clock is ahead":
					asInModel(op("", 7), ends)
					now = ends - 1
				}
				asInModel(op("a", 3), now)
				arrives()
				asInModel(op("a", 8), now)
				asInModel(op("a", 1), now+2*ttlOfHolds)
			}
		}
	}
}

// stop applies op, whose write of the record only arrives with the call of arrives.
func stop(t *testing.T, server *testenv.Server, op backends.Op) (arrives func()) {
	t.Helper()
	network := testenv.NewRelay(t, server.Addr)
	far, err := memcached.Open(memcached.Options{Servers: []string{network.Addr}, Timeout: patience, Watch: &breaker.Watch{Slow: patience}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, gone := context.WithCancel(context.Background())
	goesOn := make(chan struct{})
	interrupt(network, func(_ int64, request string) {
		if record := " " + memcached.StoredKey(op.Hold.RecordKey()); strings.HasPrefix(request[3:], record) {
			gone()
			<-goesOn
		}
	})
	if err := far.Apply(ctx, batch(op)); !errors.Is(err, backends.ErrUnavailable) {
		t.Errorf("error %v", err)
	}
	return func() {
		close(goesOn)
		if err := far.Close(); err != nil { // after its calls
			t.Error(err)
		}
	}
}

// TestCellOfAnOlderWindow: the record of a reservation was evicted when its ID is used again, in the next window. A
// caller whose clock is behind does not bring it back.
func TestCellOfAnOlderWindow(t *testing.T) {
	s, server := start(t)
	op := func(window int, id string, hits int64) backends.Op {
		op := reserving(fmt.Sprint("{windows}", window), id, hits, false)
		op.Hold.Key = "{windows}|hold"
		op.Until += int64(window)
		return op
	}
	apply(t, s, op(1, "a", 5))
	apply(t, s, op(1, "a", 4))
	if err := memcache.New(server.Addr).Delete(op(1, "a", 5).Hold.RecordKey()); err != nil {
		t.Fatal(err)
	}
	next := op(2, "a", 7)
	next.Now++
	apply(t, s, next)
	apply(t, s, op(1, "b", 1))
	next.By.Whole = 3
	if r := apply(t, s, next); r.HoldState() != backends.Settled || r.Value.Whole != 3 {
		t.Errorf("the reservation of the next window: %s", show(r))
	}
}

// TestCrashesGiveNothingAway loses the answer to each write of an operation in turn, as if
// the process had ended there. The 10 hits of other callers stay charged, and so do the hits that
// the second settlement of the reservation has charged.
func TestCrashesGiveNothingAway(t *testing.T) {
	network := testenv.NewRelay(t, testenv.Memcached(t).Addr)
	s := open(t, memcached.Options{Servers: []string{network.Addr}})
	run := 0
	must := func(op backends.Op) (r backends.Reply) {
		testenv.Eventually(t, patience, func() bool { // a connection may still be broken
			b := batch(op)
			err := s.Apply(context.Background(), b)
			r = b.Replies[0]
			return err == nil
		}, "the store answers")
		return r
	}
	for _, giveBack := range []bool{false, true} {
		for _, c := range []struct {
			name            string
			reserved, fails int64 // hits that are reserved before, and of the operation that fails
			cancels         bool
			again, least    int64 // hits of the settlement after that, and the least count then
		}{
			{name: "reserves", fails: 5, again: 0, least: 10},
			{name: "settles above", reserved: 5, fails: 8, again: 8, least: 18},
			{name: "settles below", reserved: 5, fails: 2, again: 2, least: 12},
			{name: "cancels", reserved: 5, fails: 1, cancels: true, again: 0, least: 10},
		} {
			t.Run(fmt.Sprint(c.name, ", give back ", giveBack), func(t *testing.T) {
				lost := true
				for at := int64(1); lost; at++ {
					run++
					key := fmt.Sprint("crash", run)
					must(reserving(key, "", 10, giveBack))
					if c.reserved > 0 {
						must(reserving(key, "a", c.reserved, giveBack))
					}
					op := reserving(key, "a", c.fails, giveBack)
					if c.cancels {
						op.Verb = backends.Refund
					}
					lost = false
					var writes atomic.Int64
					interrupt(network, func(_ int64, request string) {
						if !strings.HasPrefix(request, "get") && writes.Add(1) == at {
							lost = true
							network.Cut()
						}
					})
					err := s.Apply(context.Background(), batch(op))
					interrupt(network, func(int64, string) {})
					if (err != nil) != lost || lost && !errors.Is(err, backends.ErrUnavailable) {
						t.Fatalf("write %d is lost: %v, error %v", at, lost, err)
					}
					if at == 1 && !lost {
						t.Error("nothing was written")
					}
					if got := must(reserving(key, "a", c.again, giveBack)); got.Value.Whole < c.least {
						t.Errorf("write %d is lost: %d hits are charged in the end, want at least %d", at, got.Value.Whole, c.least)
					}
					if got := must(later(reserving(key, "", 0, giveBack))); got.Value.Whole < c.least {
						t.Errorf("write %d is lost: %d hits are charged when all has lapsed, want at least %d", at, got.Value.Whole, c.least)
					}
				}
			})
		}
	}
}

// TestManyWithOneID: of calls with one ID at the same moment, one reserves, one settles and
// the others change nothing.
func TestManyWithOneID(t *testing.T) {
	s, _ := start(t)
	for _, giveBack := range []bool{false, true} {
		const ids, callers = 20, 6
		key := fmt.Sprint("many", giveBack)
		var states [4]atomic.Int64
		for _, err := range together(callers, func(i int) error {
			for id := range ids {
				op := reserving(key, fmt.Sprint("id", id), 3, giveBack)
				op.Max.Whole = 100_000
				b := batch(op)
				if err := s.Apply(context.Background(), b); err != nil {
					return err
				}
				states[b.Replies[0].HoldState()].Add(1)
			}
			return nil
		}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		got := fmt.Sprint(states[0].Load(), states[backends.Held].Load(), states[backends.Settled].Load(), states[backends.Unchanged].Load())
		if want := fmt.Sprint(0, ids, ids, ids*(callers-2)); got != want {
			t.Errorf("give back %v: %s calls held nothing, reserved, settled and changed nothing; want %s", giveBack, got, want)
		}
		if n := apply(t, s, reserving(key, "", 0, giveBack)).Value.Whole; n != 3*ids {
			t.Errorf("give back %v: %d hits are charged, want %d", giveBack, n, 3*ids)
		}
	}
}

// TestRefusedReservationIsGone: another limit of an all-or-nothing batch is full when its
// write fails and its cell is read again. The reservation, which is written by then, goes back.
func TestRefusedReservationIsGone(t *testing.T) {
	server := testenv.Memcached(t)
	network := testenv.NewRelay(t, server.Addr)
	far, near := open(t, memcached.Options{Servers: []string{network.Addr}}), open(t, memcached.Options{Servers: []string{server.Addr}})
	for _, giveBack := range []bool{false, true} {
		op, other := reserving(fmt.Sprint("first", giveBack), "a", 5, giveBack), hit(fmt.Sprint("other", giveBack), 1, 1)
		b := batch(op, other)
		b.AllOrNothing = true
		interrupt(network, func(_ int64, request string) {
			if strings.HasPrefix(request, "add other") {
				apply(t, near, other)
			}
		})
		if err := far.Apply(context.Background(), b); err != nil || !b.Refused || b.Replies[0].HoldState() != backends.NoHold {
			t.Errorf("give back %v: refused %v, reservation %v, error %v", giveBack, b.Refused, b.Replies[0].HoldState(), err)
		}
		if r := apply(t, near, op); r.HoldState() != backends.Held || r.Value.Whole != 5 {
			t.Errorf("give back %v: the next use of the ID gets %+v of %d hits", giveBack, r.Account, r.Value.Whole)
		}
	}
}

// TestAmongOthers runs a batch and lets others act before each of its requests.
func TestAmongOthers(t *testing.T) {
	server := testenv.Memcached(t)
	network := testenv.NewRelay(t, server.Addr)
	far, near := open(t, memcached.Options{Servers: []string{network.Addr}}), open(t, memcached.Options{Servers: []string{server.Addr}})
	run := 0
	for _, c := range []struct {
		name        string
		before      []int64 // settlements and reservations before
		hits        []int64 // of the operations of the batch, with one ID
		others      func(key string, giveBack bool) []backends.Op
		least, most int64 // hits that are charged in the end, also when all has lapsed
	}{
		{"an ID twice in a batch, beside another call", nil, []int64{5, 2}, func(key string, giveBack bool) []backends.Op {
			return []backends.Op{reserving(key, "a", 7, giveBack)}
		}, 2, 7},
		{"a settlement beside a reset", []int64{5}, []int64{2}, afterReset, 7, 9},
		{"a reservation beside a reset", nil, []int64{5}, afterReset, 7, 12},
	} {
		for _, giveBack := range []bool{false, true} {
			for at, ended := int64(1), false; !ended; at++ {
				run++
				key := fmt.Sprint("among", run)
				for _, hits := range c.before {
					apply(t, near, reserving(key, "a", hits, giveBack))
				}
				var ops []backends.Op
				for _, hits := range c.hits {
					ops = append(ops, reserving(key, "a", hits, giveBack))
				}
				ended = true
				interrupt(network, func(n int64, _ string) {
					if n == at {
						ended = false
						for _, op := range c.others(key, giveBack) {
							apply(t, near, op)
						}
					}
				})
				if err := far.Apply(context.Background(), batch(ops...)); err != nil {
					t.Fatal(err)
				}
				interrupt(network, func(int64, string) {})
				look := reserving(key, "", 0, giveBack)
				if n, m := apply(t, near, look).Value.Whole, apply(t, near, later(look)).Value.Whole; !ended && (min(n, m) < c.least || n > c.most) {
					t.Errorf("%s, give back %v, before request %d: %d hits are charged, and %d in the end; want %d to %d", c.name, giveBack, at, n, m, c.least, c.most)
				}
			}
		}
	}
}

// afterReset is a reset, and 7 hits after it.
func afterReset(key string, giveBack bool) []backends.Op {
	look := reserving(key, "a", 7, giveBack)
	look.Hold.ID = ""
	return []backends.Op{look.Reset(), look}
}

// TestSettlementStaysWhenItsBatchFails: the answer to a write of another limit is lost. The
// hits of the reservation stay charged.
func TestSettlementStaysWhenItsBatchFails(t *testing.T) {
	network := testenv.NewRelay(t, testenv.Memcached(t).Addr)
	s := open(t, memcached.Options{Servers: []string{network.Addr}})
	warm(t, s, 5)
	for i := range 10 {
		op, other := reserving(fmt.Sprint("settled", i), "a", 5, false), hit(fmt.Sprint("other", i), 1, 5)
		apply(t, s, op)
		network.Watch(func(request []byte) {
			if strings.HasPrefix(string(request), "add other") {
				network.Cut()
			}
		})
		op.By.Whole = 8
		b := batch(op, other)
		b.AllOrNothing = true
		if err := s.Apply(context.Background(), b); !errors.Is(err, backends.ErrUnavailable) {
			t.Fatalf("error %v", err)
		}
		testenv.Eventually(t, patience, func() bool {
			b := batch(op.Look())
			return s.Apply(context.Background(), b) == nil && b.Replies[0].Value.Whole >= 5
		}, "the hits stay charged")
	}
}

// TestRoundTripsOfReservations: the reads are one request, and each item that changes is another one. Once the
// cell has the records of four other IDs, these are read, too. The record ends with the reservation, and so does
// the cell if it has no hits. Later the cell has digits again.
func TestRoundTripsOfReservations(t *testing.T) {
	server := testenv.Memcached(t)
	network := testenv.NewRelay(t, server.Addr)
	s := open(t, memcached.Options{Servers: []string{network.Addr}})
	for _, giveBack := range []bool{false, true} {
		key := fmt.Sprint("trips", giveBack)
		apply(t, s, reserving(key, "", 1, giveBack))
		for i := range 12 { // six reservations and their settlements
			op := reserving(key, string(rune('a'+i/2)), []int64{5, 2}[i%2], giveBack)
			want := int64(3)
			if i == 8 { // the cell has the records of four others
				want = 4
			}
			var requests atomic.Int64
			interrupt(network, func(int64, string) { requests.Add(1) })
			if apply(t, s, op); requests.Load() != want {
				t.Errorf("give back %v, %d hits of %s: %d requests, want %d", giveBack, op.By.Whole, op.Hold.ID, requests.Load(), want)
			}
		}
		most := ttlOfHolds / second
		if giveBack {
			most += most / 64
		}
		apply(t, s, reserving(key, "", 0, giveBack).Reset())
		for _, item := range []string{key, reserving(key, "a", 0, giveBack).Hold.RecordKey()} {
			if got := ttl(t, server.Addr, item); got < ttlOfHolds/second || got > most+3 {
				t.Errorf("give back %v: %s is kept for %d s", giveBack, item, got)
			}
		}
		next := later(reserving(key, "", 1, giveBack))
		next.Now += backends.Skew
		apply(t, s, next)
		if item, err := memcache.New(server.Addr).Get(key); err != nil || string(item.Value) != "1" {
			t.Errorf("give back %v: the cell has %+v (%v)", giveBack, item, err)
		}
	}
}

// TestReservationsOverTwoServers: a refused batch leaves no reservation on either server.
func TestReservationsOverTwoServers(t *testing.T) {
	a, b := testenv.Memcached(t), testenv.Memcached(t)
	s := open(t, memcached.Options{Servers: []string{a.Addr, b.Addr}})
	here, there := twoKeys(t, s, a)
	first, second := reserving("{"+here+"}", "a", 5, true), reserving("{"+there+"}", "a", 5, true)
	ask := func(hits, max int64) *backends.Batch {
		first.By.Whole, second.By.Whole, second.Max.Whole = hits, hits, max
		both := batch(first, second)
		both.AllOrNothing = true
		if err := s.Apply(context.Background(), both); err != nil {
			t.Fatal(err)
		}
		return both
	}
	for _, c := range []struct {
		hits, max, want int64
		state           backends.HoldState
	}{{5, 4, 0, backends.NoHold}, {6, 10, 6, backends.Held}, {2, 0, 2, backends.Settled}} {
		got := ask(c.hits, c.max)
		if n, m := apply(t, s, first.Look()).Value.Whole, apply(t, s, second.Look()).Value.Whole; n != c.want || m != c.want {
			t.Errorf("%d hits with room for %d: %d and %d are charged, want %d", c.hits, c.max, n, m, c.want)
		}
		for _, r := range got.Replies {
			if r.HoldState() != c.state {
				t.Errorf("%d hits with room for %d: %+v, want %v", c.hits, c.max, r.Account, c.state)
			}
		}
	}
}

// TestRacedReservationOfASlot: another call with the ID comes before one of the requests, and then
// one with another ID. The hits of the other ID are not taken back.
func TestRacedReservationOfASlot(t *testing.T) {
	server := testenv.Memcached(t)
	network := testenv.NewRelay(t, server.Addr)
	far, near := open(t, memcached.Options{Servers: []string{network.Addr}}), open(t, memcached.Options{Servers: []string{server.Addr}})
	for at, ended := int64(1), false; !ended; at++ {
		slot := func(id string, hits int64) backends.Op {
			op := reserving(fmt.Sprint("slot", at), id, hits, false)
			op.Kind, op.Window, op.Oldest = backends.List, 3600*second, true
			return op
		}
		ended = true
		interrupt(network, func(n int64, _ string) {
			if n == at {
				ended = false
				apply(t, near, slot("a", 1))
				apply(t, near, slot("c", 2))
			}
		})
		if err := far.Apply(context.Background(), batch(slot("a", 1))); err != nil {
			t.Fatal(err)
		}
		interrupt(network, func(int64, string) {})
		if got := apply(t, near, slot("c", 0)).Value.Whole; got != 1 {
			t.Errorf("before request %d: %d slots are taken, want 1", at, got)
		}
	}
}
