package backendtest

import (
	"math/rand/v2"
	"slices"
	"testing"

	"example.org/rls/pkg/backends"
)

// model is what a store should do: the Go steps over maps.
type model struct {
	cells map[string]backends.Cell
	logs  map[string]backends.Log
}

func newModel() *model {
	return &model{map[string]backends.Cell{}, map[string]backends.Log{}}
}

func (m *model) step(op *backends.Op) backends.Reply {
	if op.Kind == backends.List {
		log, r := slices.Clone(m.logs[op.Key]).Step(op)
		m.logs[op.Key] = log
		return r
	}
	var prev int64
	if c := m.cells[op.Prev]; op.Prev != "" && op.Now < c.Until {
		prev = c.Value.Whole
	}
	c, r := m.cells[op.Key].Step(op, prev)
	m.cells[op.Key] = c
	return r
}

func (m *model) clone() *model {
	n := newModel()
	for k, v := range m.cells {
		n.cells[k] = v
	}
	for k, v := range m.logs {
		n.logs[k] = slices.Clone(v)
	}
	return n
}

func (m *model) apply(b *backends.Batch) (replies []backends.Reply, refused bool) {
	before := m.clone()
	for i := range b.Ops {
		r := m.step(&b.Ops[i])
		refused = refused || b.AllOrNothing && !b.Ops[i].Soft && r.Admitted < b.Ops[i].Times
		replies = append(replies, r)
	}
	if refused {
		*m = *before
		for i := range b.Ops {
			look := b.Ops[i].Look()
			r := m.step(&look)
			r.Admitted = replies[i].Admitted
			replies[i] = r
		}
	}
	return replies, refused
}

// testSteps runs random batches on the store and on the model.
func testSteps(t *testing.T, s backends.Store) {
	for _, seed := range []uint64{1, 2, rand.Uint64()} {
		rng := rand.New(rand.NewPCG(seed, 0))
		m, now := newModel(), epoch()
		g := newGenerator(rng)
		for i := range 250 {
			if rng.IntN(4) == 0 {
				now += rng.Int64N(20) * second
			}
			b := backends.Batch{AllOrNothing: rng.IntN(2) == 0}
			for range 1 + rng.IntN(4) {
				op := g.op(now)
				if b.AllOrNothing {
					op.Times = 1
				}
				b.Ops = append(b.Ops, op)
			}
			got := apply(t, s, &b)
			want, refused := m.apply(&b)
			if b.Refused != refused {
				t.Fatalf("seed %d, batch %d: refused %v, want %v\nops %+v", seed, i, b.Refused, refused, b.Ops)
			}
			for j := range want {
				compare(t, seed, i, &b, j, got[j], want[j])
			}
		}
	}
}

func compare(t *testing.T, seed uint64, i int, b *backends.Batch, j int, got, want backends.Reply) {
	t.Helper()
	op := &b.Ops[j]
	ok := got.Admitted == want.Admitted && got.Value == want.Value
	if op.Prev != "" {
		ok = ok && got.Prev == want.Prev
	}
	switch {
	case op.Kind == backends.Counter && op.Span != backends.Fixed, op.Kind == backends.List:
		ok = ok && got.Until == want.Until
	}
	if op.Kind == backends.List && want.Admitted < op.Times && !b.Refused {
		ok = ok && got.RetryAt == want.RetryAt
	}
	if !ok {
		t.Fatalf("seed %d, batch %d, operation %d:\nop   %+v\ngot  %+v\nwant %+v", seed, i, j, *op, got, want)
	}
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
}

func newGenerator(rng *rand.Rand) *generator {
	g := &generator{rng: rng}
	for i := range 2 {
		g.fixed[i], g.first[i], g.every[i] = fresh("fixed"), fresh("first"), fresh("every")
		g.slide[i], g.meters[i], g.lists[i] = fresh("slide"), fresh("meter"), fresh("list")
	}
	return g
}

func (g *generator) op(now int64) backends.Op {
	r := g.rng
	op := backends.Op{
		Now: now, Den: 1, Times: 1,
		Soft: r.IntN(4) == 0, Refund: r.IntN(8) == 0,
		By: backends.Amount{Whole: r.Int64N(4)},
	}
	if !op.Refund && r.IntN(5) == 0 {
		op.Times = 1 + r.Int64N(5)
	}
	window := 60 * second
	bucket := now / window
	op.Max.Whole = r.Int64N(40)
	which := r.IntN(2)
	switch r.IntN(6) {
	case 0: // charges always
		op.Key, op.Max, op.Until = bucketKey(g.fixed[which], bucket), backends.NoMax, (bucket+1)*window
	case 1: // the same cells, charged conditionally
		op.Key, op.Until = bucketKey(g.fixed[which], bucket), (bucket+1)*window
	case 2:
		op.Key, op.Span, op.Until = g.first[which], backends.FirstHit, now+window
		if r.IntN(2) == 0 {
			op.Key, op.Span = g.every[which], backends.EveryHit
		}
		if r.IntN(2) == 0 {
			op.Max = backends.NoMax
		}
	case 3:
		op.Key, op.Prev = bucketKey(g.slide[which], bucket), bucketKey(g.slide[which], bucket-1)
		op.Until = (bucket + 2) * window
		op.WeightDen = window / 1000
		op.WeightNum = ((bucket+1)*window - now) / 1000
	case 4:
		op.Kind, op.Key, op.Den = backends.Meter, g.meters[which], 7
		op.By = backends.Amount{Whole: op.By.Whole * 3 * second, Frac: r.Int64N(7)}
		op.Max = backends.Amount{Whole: now + r.Int64N(60)*second, Frac: r.Int64N(7)}
	case 5:
		op.Kind, op.Key, op.Window, op.Until = backends.List, g.lists[which], window, now+window
	}
	return op
}

func bucketKey(name string, bucket int64) string {
	return name + string(rune('a'+bucket%26)) + string(rune('a'+bucket/26%26))
}
