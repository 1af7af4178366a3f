package memcached_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/memcached"
	"example.org/rls/test/backendtest"
)

// terms makes random operations of limits with an overdraft, of windows in parts, and of
// slots, on a few keys.
type terms struct {
	*rand.Rand
	run string
	now int64
}

const minute = 60 * second

func (g *terms) op() backends.Op {
	op := backends.Op{
		Limit: &backends.Limit{Den: 1, Unit: backends.Amount{Whole: 1}, Window: minute}, Now: g.now, Times: 1, By: backends.Amount{Whole: g.Int64N(30)},
		Max: backends.Amount{Whole: 5 + g.Int64N(20)}}
	if g.IntN(5) == 0 {
		op.Verb = testenv.OneOf(g.Rand, backends.Undo, backends.Refund, backends.Refund)
	}
	debt := backends.Amount{Whole: 10 + g.Int64N(50)}
	period := g.now / minute
	op.Until = (period + 1) * minute
	name := ""
	switch g.IntN(5) {
	case 0:
		name, op.Span, op.Mark, op.Debt, op.Carry = "carried", backends.Carried, period, debt, 10
	case 1:
		name, op.Kind, op.Den, op.Until = "meter", backends.Meter, 7, 0
		op.By = backends.Amount{Whole: op.By.Whole * second, Frac: g.Int64N(7)}
		op.Unit = backends.Amount{Whole: second, Frac: 3}
		shift := backends.Amount{Whole: g.Int64N(3) * 10 * second, Frac: g.Int64N(7)}
		op.Max = backends.Amount{Whole: g.now}.Add(shift, op.Den)
		op.Full = shift.Add(backends.Amount{Whole: 2 * minute}, op.Den)
		op.Debt, op.Shift = backends.Amount{Whole: minute}, shift
	case 2:
		name, op.Kind, op.Parts = "parts", backends.List, 7
	case 3:
		name, op.Kind, op.Oldest = "slots", backends.List, true
		if op.Verb.GivesBack() && g.IntN(2) == 0 {
			op.Mark = g.now - g.Int64N(3)*5*second
		}
	case 4:
		name = "fixed"
	}
	op.Key = fmt.Sprint(g.run, name, g.IntN(2))
	if op.Span == backends.Fixed && op.Kind == backends.Counter {
		op.Key += fmt.Sprint("|", period)
	}
	if !op.Verb.GivesBack() && g.IntN(4) == 0 {
		op.Verb = backends.Fill
	}
	if g.IntN(15) == 0 {
		if op = op.Reset(); g.IntN(2) == 0 {
			op.Verb, op.By, op.Max = backends.Grant, backends.Amount{Whole: 7}, backends.Amount{Whole: 20}
			op.Least = backends.Amount{Whole: -5}
			if op.Kind == backends.Meter {
				op.Max, op.By, op.Until = op.Furthest(), backends.Amount{Whole: 90 * second}, g.now+minute
				op.Least = backends.Amount{Whole: -20 * second}
			}
		}
	}
	return op
}

func (g *terms) batch() *backends.Batch {
	b := &backends.Batch{AllOrNothing: g.IntN(2) == 0}
	for d := range 1 + g.IntN(3) {
		role, limits := backends.Role(g.IntN(3)), 1+g.IntN(2)
		for range limits {
			op := g.op()
			if op.Verb.Operates() {
				return batch(op, op.Look())
			}
			if op.Role = role; limits > 1 {
				op.Group = uint8(d + 1)
			}
			b.Ops = append(b.Ops, op)
		}
	}
	b.Replies = make([]backends.Reply, len(b.Ops))
	return b
}

// TestTermsAsDefined runs random batches on the store and on the model.
func TestTermsAsDefined(t *testing.T) {
	s, _ := start(t)
	asDefined(t, backendtest.ByCell(s), 400, func(g *terms) *backends.Batch { return g.batch() })
}

func asDefined(t *testing.T, s backends.Store, batches int, next func(*terms) *backends.Batch) {
	t.Helper()
	for _, seed := range []uint64{1, 2, testenv.Random(t).Uint64()} {
		g := &terms{rand.New(rand.NewPCG(seed, 0)), fmt.Sprint("{", seed, "}"), epoch}
		m := backendtest.ModelOf(s)
		for n := range batches {
			switch g.IntN(10) {
			case 0, 1, 2, 3:
				g.now += g.Int64N(6) * 5 * second
			case 4:
				g.now += g.Int64N(4) * minute
			case 5: // the clock is set back: a store need not write what a denial would change
				g.now -= g.Int64N(4) * 10 * second
				g.run += "-"
			}
			b := next(g)
			want := &backends.Batch{Ops: slices.Clone(b.Ops), AllOrNothing: b.AllOrNothing, Replies: make([]backends.Reply, len(b.Ops))}
			_ = m.Apply(context.Background(), want)
			if err := s.Apply(context.Background(), b); err != nil {
				t.Fatalf("seed %d, batch %d: %v", seed, n, err)
			}
			for i := range want.Ops {
				if !backendtest.Same(&b.Ops[i], b.Replies[i], want.Replies[i]) || b.Refused != want.Refused {
					t.Fatalf("seed %d, batch %d, refused %v, want %v; operation %d:\n%+v\n%+v\ngot  %s\nwant %s\nall %+v\nwant %+v", seed, n, b.Refused, want.Refused, i,
						b.Ops[i], *b.Ops[i].Limit, show(b.Replies[i]), show(want.Replies[i]), b, want)
				}
			}
		}
	}
}

func show(r backends.Reply) string {
	if r.Account == nil {
		return fmt.Sprintf("%+v", r)
	}
	return fmt.Sprintf("%+v %+v", r, *r.Account)
}

// overdrawn is a charge of 3 hits to a counter that hands its debt on.
func overdrawn(key string) backends.Op {
	op := hit(key, 3, 5)
	op.Span, op.Unit, op.Window = backends.Carried, backends.Amount{Whole: 1}, minute
	op.Debt, op.Carry = backends.Amount{Whole: 1_000_000}, 5
	return op
}

// TestOverdraftIsChargedWhateverOthersDo: a charge that overdraws stays when its batch is
// refused, also if that needs several rounds.
func TestOverdraftIsChargedWhateverOthersDo(t *testing.T) {
	s, _ := start(t)
	const callers, each = 8, 20
	for _, room := range []int64{0, callers * each / 2} {
		debtor := overdrawn(fmt.Sprint("debtor", room))
		for _, err := range together(callers, func(i int) error {
			for range each {
				b := batch(debtor, hit(fmt.Sprint("other", room), 1, room))
				b.AllOrNothing = true
				if err := s.Apply(context.Background(), b); err != nil {
					return err
				}
			}
			return nil
		}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		if got := apply(t, s, debtor.Look()).Value.Whole; got != callers*each*3 {
			t.Errorf("%d hits are charged, want %d", got, callers*each*3)
		}
	}
}

// TestOverdraftStaysWhenItsBatchFails: the answer to a write of another limit is lost.
func TestOverdraftStaysWhenItsBatchFails(t *testing.T) {
	network := testenv.NewRelay(t, testenv.Memcached(t).Addr)
	s := open(t, memcached.Options{Servers: []string{network.Addr}})
	warm(t, s, 5)
	for i := range 10 {
		debtor, other := overdrawn(fmt.Sprint("debtor", i)), hit(fmt.Sprint("other", i), 1, 5)
		network.Watch(func(request []byte) {
			if strings.HasPrefix(string(request), "add other") {
				network.Cut()
			}
		})
		b := batch(debtor, other)
		b.AllOrNothing = true
		if err := s.Apply(context.Background(), b); !errors.Is(err, backends.ErrUnavailable) {
			t.Fatalf("error %v", err)
		}
		testenv.Eventually(t, patience, func() bool {
			b := batch(debtor.Look())
			return s.Apply(context.Background(), b) == nil && b.Replies[0].Value.Whole == 3
		}, "the charge that overdraws stays")
	}
}

// TestClockSetBack: a count of a window that is far ahead moves to the window of the next
// operation, even if that is denied.
func TestClockSetBack(t *testing.T) {
	s, _ := start(t)
	m := backendtest.NewModel()
	for i, windows := range []int64{5, 4, 3, 2, 3, 1, 0, 1, 2} {
		op := hit("carried", 25, 10)
		op.Span, op.Unit, op.Window, op.Carry = backends.Carried, backends.Amount{Whole: 1}, minute, 10
		op.Now += windows * minute
		op.Mark, op.Until = op.Now/minute, op.Now+minute
		if i == 0 {
			op.Max = backends.NoMax
		}
		b := batch(op)
		_ = m.Apply(context.Background(), b)
		if got := apply(t, s, op); got != b.Replies[0] {
			t.Errorf("in window %d: %+v, want %+v", windows, got, b.Replies[0])
		}
	}
}

// TestCarriedItemsLive: the item of a counter with debt lives until a tenth of its limit would have paid it.
func TestCarriedItemsLive(t *testing.T) {
	s, server := start(t)
	op := hit("carried", 35, 10)
	op.Span, op.Unit, op.Window = backends.Carried, backends.Amount{Whole: 1}, minute
	op.Mark, op.Until = epoch/minute, epoch+minute
	op.Debt, op.Carry = backends.Amount{Whole: 100}, 10
	apply(t, s, op)
	if got := ttl(t, server.Addr, op.Key); got < 2100 || got > 2103 {
		t.Errorf("kept for %d s, want 2100", got)
	}
	meter := backends.Op{
		Limit: &backends.Limit{Kind: backends.Meter, Den: 1, Full: backends.Amount{Whole: 200 * second}, Shift: backends.Amount{Whole: 90 * second}},
		Key:   "meter", Now: epoch, Times: 1, By: backends.Amount{Whole: 100 * second}, Max: backends.NoMax,
	}
	if r := apply(t, s, meter); r.Until != epoch+100*second { // with a shift of 90 s
		t.Errorf("the meter ends at %d, want %d", r.Until, epoch+100*second)
	}
	if got := ttl(t, server.Addr, "meter"); got < 100 || got > 103 {
		t.Errorf("kept for %d s, want 100", got)
	}
}
