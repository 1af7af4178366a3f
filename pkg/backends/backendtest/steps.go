package backendtest

import (
	"context"
	"math/rand/v2"
	"testing"

	"example.org/rls/pkg/backends"
)

// testSteps runs random batches on the store and on the model.
func testSteps(t *testing.T, s backends.Store) {
	for _, seed := range []uint64{1, 2, rand.Uint64()} {
		rng := rand.New(rand.NewPCG(seed, 0))
		m, now := NewModel(), epoch()
		g := newGenerator(rng)
		for i := range 250 {
			switch rng.IntN(16) {
			case 0, 1, 2, 3:
				now += rng.Int64N(20) * second
			case 4: // the clock is set back
				g.leave(m, now)
				now -= rng.Int64N(90) * second
				g.since = [2]int64{min(g.since[0], now), min(g.since[1], now)}
			}
			b := g.batch(now)
			if rng.IntN(8) == 0 {
				b = g.steer(now)
			}
			asked := append([]backends.Op(nil), b.Ops...)
			apply(t, s, &b)
			want := backends.Batch{AllOrNothing: b.AllOrNothing, Ops: append([]backends.Op(nil), asked...), Replies: make([]backends.Reply, len(b.Ops))}
			for j := range want.Ops {
				if b.Replies[j].Recalled { // a denial from memory charges nothing
					want.Ops[j].ChargeDenied = false
				}
			}
			if err := m.Apply(context.Background(), &want); err != nil {
				t.Fatal(err)
			}
			if b.Refused != want.Refused {
				t.Fatalf("seed %d, batch %d: refused %v, want %v\nops %+v\nwant %+v", seed, i, b.Refused, want.Refused, b.Ops, want.Replies)
			}
			for j := range want.Replies {
				if b.Ops[j] != asked[j] {
					t.Fatalf("seed %d, batch %d: the store wrote into operation %d:\nis  %+v\nwas %+v", seed, i, j, b.Ops[j], asked[j])
				}
				if got := b.Replies[j]; !Same(&b.Ops[j], got, want.Replies[j]) {
					t.Fatalf("seed %d, batch %d (all or nothing %v, refused %v), operation %d:\nop   %+v\ngot  %+v\nwant %+v\nops %+v\ngot  %+v\nwant %+v",
						seed, i, b.AllOrNothing, b.Refused, j, b.Ops[j], got, want.Replies[j], b.Ops, b.Replies, want.Replies)
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
	if op.Prev == "" {
		got.Prev, want.Prev = 0, 0
	}
	return got == want
}

// generator makes operations on a few keys, each of one kind as in real use.
type generator struct {
	rng    *rand.Rand
	fixed  [2]string
	first  [2]string
	every  [2]string
	slide  [2]string
	meters [2]string
	lists  [2]string
	since  [2]int64 // no charge in the lists is older
}

func newGenerator(rng *rand.Rand) *generator {
	g := &generator{rng: rng}
	g.leave(nil, epoch())
	return g
}

// leave replaces each key whose cell, or a charge in whose list, has ended by now
// (all keys if m is nil). A store may or may not have forgotten such a cell, and
// the difference would show when the clock is set back.
func (g *generator) leave(m *Model, now int64) {
	for i := range 2 {
		g.fixed[i], g.slide[i] = fresh("fixed"), fresh("slide")
		for name, key := range map[string]*string{"first": &g.first[i], "every": &g.every[i], "meter": &g.meters[i]} {
			if m == nil || m.ended(*key, now) {
				*key = fresh(name)
			}
		}
		if m == nil || g.since[i]+window <= now {
			g.lists[i], g.since[i] = fresh("list"), now
		}
	}
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
			op.Role = role
			if limits > 1 {
				op.Group = group + 1
			}
			if op.Group != 0 || b.AllOrNothing {
				op.Times = 1
			}
			b.Ops = append(b.Ops, op)
		}
	}
	return b
}

func (g *generator) op(now int64) backends.Op {
	r := g.rng
	op := backends.Op{
		Now: now, Den: 1, Times: 1,
		Refund: r.IntN(8) == 0, Undo: r.IntN(2) == 0,
		By: backends.Amount{Whole: r.Int64N(4)},
	}
	if !op.Refund && r.IntN(5) == 0 {
		op.Times = 1 + r.Int64N(5)
	}
	bucket := now / window
	op.Max.Whole = r.Int64N(40)
	which := r.IntN(2)
	switch r.IntN(6) {
	case 0: // charges always
		op.Key, op.Until = bucketKey(g.fixed[which], bucket), (bucket+1)*window
		if op.ChargeDenied = !op.Refund; r.IntN(4) == 0 {
			op.Max = backends.NoMax
		}
	case 1: // the same cells, charged conditionally
		op.Key, op.Until = bucketKey(g.fixed[which], bucket), (bucket+1)*window
	case 2:
		op.Key, op.Span, op.Until = g.first[which], backends.FirstHit, now+window
		if r.IntN(2) == 0 {
			op.Key, op.Span = g.every[which], backends.EveryHit
		}
		op.ChargeDenied = !op.Refund && r.IntN(2) == 0
	case 3:
		op.Key, op.Prev = bucketKey(g.slide[which], bucket), bucketKey(g.slide[which], bucket-1)
		op.Until = (bucket + 2) * window
		op.WeightDen = window / 1000
		op.WeightNum = ((bucket+1)*window - now) / 1000
	case 4:
		op.Kind, op.Key, op.Den = backends.Meter, g.meters[which], 7
		op.By = backends.Amount{Whole: op.By.Whole * 3 * second, Frac: r.Int64N(7)}
		op.Max = backends.Amount{Whole: now + r.Int64N(60)*second, Frac: r.Int64N(7)}
		op.Furthest = op.Max.Add(backends.Amount{Whole: r.Int64N(20) * second, Frac: r.Int64N(7)}, op.Den)
	case 5:
		op.Kind, op.Key, op.Window, op.Until = backends.List, g.lists[which], window, now+window
	}
	return op
}

// steer makes a batch that resets a cell or grants hits.
func (g *generator) steer(now int64) backends.Batch {
	op := g.op(now)
	by, ceiling := op.By, op.Max
	if op = op.Reset(); g.rng.IntN(3) > 0 {
		op.Verb, op.By, op.Max = backends.Grant, by, ceiling
		op.Least = backends.Amount{Whole: -g.rng.Int64N(20)}
		if op.Kind == backends.Meter {
			op.Least = backends.Amount{Whole: -g.rng.Int64N(60) * second, Frac: g.rng.Int64N(7)}
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
