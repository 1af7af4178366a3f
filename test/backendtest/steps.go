package backendtest

import (
	"context"
	"flag"
	"math/rand/v2"
	"slices"
	"testing"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
)

var steps = flag.Int("steps", 1, "how many random sequences of batches the conformance suite compares, besides two fixed ones")

// tick is the least step of the clocks. It is above backends.Skew: a near cache takes a
// smaller step back for a reply that came late, and a larger one for a clock set back.
const tick = 2 * second

// testSteps runs random batches on the store and on the model.
func testSteps(t *testing.T, s backends.Store) { compare(t, s, false) }

// compare runs random batches, with further the operations of further limits, too.
func compare(t *testing.T, s backends.Store, further bool) {
	random := testenv.Random(t)
	for n := range 2 + *steps {
		seed := uint64(1 + n)
		if n >= 2 {
			seed = random.Uint64()
		}
		rng := rand.New(rand.NewPCG(seed, 0))
		m, now := ModelOf(s), epoch()
		g := newGenerator(rng, further)
		for i := range 250 {
			switch rng.IntN(16) {
			case 0, 1, 2, 3:
				now += rng.Int64N(10) * tick
			case 4: // the clock is set back
				g.leave(m, now)
				now -= rng.Int64N(45) * tick
				g.since = min(g.since, now)
			}
			if further {
				g.reshift(m, now, rng.IntN(16) == 0)
			}
			b := g.batch(now)
			if rng.IntN(8) == 0 {
				b = g.steer(now)
			}
			asked := slices.Clone(b.Ops)
			apply(t, s, &b)
			want := backends.Batch{AllOrNothing: b.AllOrNothing, Ops: slices.Clone(asked), Replies: make([]backends.Reply, len(b.Ops))}
			for j := range want.Ops {
				if b.Replies[j].Recalled && want.Ops[j].Verb == backends.Count { // a denial from memory charges nothing
					want.Ops[j].Verb = backends.Charge
				}
			}
			_ = m.Apply(context.Background(), &want) // never fails
			if !slices.Equal(want.Ops, asked) {
				copy(want.Ops, asked)
				want.Decide() // Reply.Beside is that of the operations that the store was asked for
			}
			if b.Refused != want.Refused {
				t.Fatalf("seed %d, batch %d: refused %v, want %v\nops %+v\nwant %+v", seed, i, b.Refused, want.Refused, b.Ops, want.Replies)
			}
			for j := range want.Replies {
				if b.Ops[j] != asked[j] {
					t.Fatalf("seed %d, batch %d: the store wrote into operation %d:\nis  %+v\nwas %+v", seed, i, j, b.Ops[j], asked[j])
				}
				if got := b.Replies[j]; !Same(&b.Ops[j], got, want.Replies[j]) {
					t.Fatalf("seed %d, batch %d (all or nothing %v, refused %v), operation %d:\nop   %+v, limit %+v, hold %+v\ngot  %+v, account %+v\nwant %+v, account %+v\nops %+v\ngot  %+v\nwant %+v",
						seed, i, b.AllOrNothing, b.Refused, j, b.Ops[j], *b.Ops[j].Limit, b.Ops[j].Hold, got, got.Account, want.Replies[j], want.Replies[j].Account, b.Ops, b.Replies, want.Replies)
				}
			}
		}
	}
}

// Same reports whether two replies to op are equal in the fields that its kind
// defines.
func Same(op *backends.Op, got, want backends.Reply) bool {
	got.Recalled, want.Recalled = false, false
	if got.Err != nil || want.Err != nil {
		return false
	}
	if op.Kind != backends.List || want.Admitted == op.Times {
		got.RetryAt, want.RetryAt = 0, 0
	}
	if op.Span != backends.Sliding {
		got.Prev, want.Prev = 0, 0
	}
	if (got.Account == nil) != (want.Account == nil) || got.Account != nil && *got.Account != *want.Account {
		return false
	}
	got.Account, want.Account = nil, nil
	return got == want
}

// generator makes operations on a few keys, each of one kind as in real use.
type generator struct {
	rng     *rand.Rand
	sets    []keys
	since   int64 // no charge in the lists is older
	further bool  // operations with terms and reservations, too
}

// keys are the keys of cells, one of each kind, and the terms of the meter, in µs.
type keys struct {
	fixed, first, every, slide, meter, list string
	tolerance, queue                        int64
	further                                 furtherKeys
}

func newGenerator(rng *rand.Rand, further bool) *generator {
	g := &generator{rng: rng, sets: make([]keys, 2), further: further}
	if further {
		g.sets = make([]keys, 3)
	}
	g.leave(NewModel(), epoch())
	return g
}

// leave replaces each key whose cell, or a charge in whose list, has ended by now. A
// store may or may not have forgotten such a cell, and the difference would show when
// the clock is set back.
func (g *generator) leave(m *Model, now int64) {
	over := g.since+window <= now
	for i := range g.sets {
		k := &g.sets[i]
		k.fixed, k.slide = fresh("fixed"), fresh("slide")
		if m.ended(k.first, now) {
			k.first = fresh("first")
		}
		if m.ended(k.every, now) {
			k.every = fresh("every")
		}
		if m.ended(k.meter, now) {
			k.meter, k.tolerance, k.queue = fresh("meter"), g.rng.Int64N(60)*second, g.rng.Int64N(20)*second
		}
		if over || m.lapsed(k.list, now) {
			k.list = fresh("list")
		}
		k.further.leave(m, now, over)
	}
	if over {
		g.since = now
	}
	g.reshift(m, now, true)
}

// batch makes a batch of some descriptors, one to three of which may be a group.
func (g *generator) batch(now int64) backends.Batch {
	b := backends.Batch{AllOrNothing: g.rng.IntN(2) == 0}
	for group := range uint8(1 + g.rng.IntN(3)) {
		role := backends.Role(g.rng.IntN(3))
		limits := 1
		if g.rng.IntN(3) == 0 {
			limits = 1 + g.rng.IntN(3)
		}
		for range limits {
			op := g.op(now)
			for slices.ContainsFunc(b.Ops, func(other backends.Op) bool { return sameReservation(&op, &other) }) {
				op = g.op(now)
			}
			op.Role = role
			if limits > 1 {
				op.Group = group + 1
			}
			b.Ops = append(b.Ops, op)
		}
	}
	if b.AllOrNothing || b.Together() {
		b.Each(func(op *backends.Op) { op.Times = 1 })
	}
	return b
}

func sameReservation(a, b *backends.Op) bool {
	return a.Identified() && b.Identified() && a.Hold.Key == b.Hold.Key && a.Hold.ID == b.Hold.ID
}

func (g *generator) op(now int64) backends.Op {
	r := g.rng
	op := backends.Op{
		Limit: &backends.Limit{Den: 1}, Now: now, Times: 1,
	}
	if r.IntN(8) == 0 {
		op.Verb = backends.Refund + backends.Verb(r.IntN(2)) // or Undo
	}
	op.By.Whole = r.Int64N(4)
	if !op.Verb.GivesBack() && r.IntN(5) == 0 {
		op.Times = 1 + r.Int64N(5)
	}
	bucket := now / window
	op.Max.Whole = r.Int64N(40)
	set, kinds := r.IntN(len(g.sets)), 6
	if g.further {
		kinds = 10
	}
	k := &g.sets[set]
	switch kind := r.IntN(kinds); kind {
	case 0, 1:
		op.Key, op.Until = bucketKey(k.fixed, bucket), (bucket+1)*window
		if counts(&op, r) && r.IntN(4) == 0 {
			op.Max = backends.NoMax
		}
	case 2:
		op.Key, op.Span, op.Until = k.first, backends.FirstHit, now+window
		if r.IntN(2) == 0 {
			op.Key, op.Span = k.every, backends.EveryHit
		}
		counts(&op, r)
	case 3:
		op.Key, op.Span, op.Mark = k.slide, backends.Sliding, bucket
		op.Until, op.Window = (bucket+2)*window, window
	case 4:
		op.Kind, op.Key, op.Den = backends.Meter, k.meter, 7
		op.By = backends.Amount{Whole: op.By.Whole * 3 * second, Frac: r.Int64N(7)}
		op.Max = backends.Amount{Whole: now + k.tolerance + r.Int64N(k.queue+1), Frac: 3} // the caller's patience
		op.Full = backends.Amount{Whole: k.tolerance + k.queue, Frac: 3}
	case 5:
		op.Kind, op.Key, op.Window, op.Until = backends.List, k.list, window, now+window
	default:
		g.withTerms(&op, kind, k)
	}
	if g.further {
		g.reserve(&op, k, set == 2)
	}
	return op
}

// counts has every second charge count what does not fit, and reports whether op does.
func counts(op *backends.Op, r *rand.Rand) bool {
	if op.Verb == backends.Charge && r.IntN(2) == 0 {
		op.Verb = backends.Count
	}
	return op.Verb == backends.Count
}

// steer makes a batch that resets a cell or grants hits.
func (g *generator) steer(now int64) backends.Batch {
	op := g.op(now)
	by, ceiling := op.By, op.Max
	if op = op.Reset(); g.rng.IntN(3) > 0 {
		op.Verb, op.By, op.Max = backends.Grant, by, ceiling
		op.Least = backends.Amount{Whole: -g.rng.Int64N(20)}
		if op.Kind == backends.Meter {
			op.Least = backends.Amount{Whole: -g.rng.Int64N(60) * second, Frac: g.rng.Int64N(op.Den)}
			op.Until = now + window
		}
	}
	return backends.Batch{Ops: []backends.Op{op, op.Look()}}
}

// window is that of every operation of the generator.
const window = 60 * second

func bucketKey(name string, bucket int64) string {
	return name + string(rune('a'+bucket%26)) + string(rune('a'+bucket/26%26))
}
