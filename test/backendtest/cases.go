package backendtest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
)

func testBatches(t *testing.T, s backends.Store) {
	now := epoch()
	t.Run("empty", func(t *testing.T) { apply(t, s, &backends.Batch{}) })

	t.Run("each on its own", func(t *testing.T) {
		full, free := fresh("full"), fresh("free")
		applyOne(t, s, counter(full, now, 5, 5))
		b := backends.Batch{Ops: []backends.Op{counter(full, now, 1, 5), counter(free, now, 1, 5)}}
		r := apply(t, s, &b)
		if r[0].Admitted != 0 || r[1].Admitted != 1 || b.Refused {
			t.Fatalf("got %+v, refused %v", r, b.Refused)
		}
		holds(t, s, counter(free, now, 0, 5), 1)
	})

	t.Run("one key twice", func(t *testing.T) {
		key := fresh("twice")
		b := backends.Batch{AllOrNothing: true, Ops: []backends.Op{counter(key, now, 3, 5), counter(key, now, 3, 5)}}
		r := apply(t, s, &b)
		if !b.Refused || r[0].Admitted != 1 || r[1].Admitted != 0 {
			t.Fatalf("got %+v, refused %v: 3 + 3 do not fit 5", r, b.Refused)
		}
		b = backends.Batch{Ops: []backends.Op{counter(key, now, 1, -1), counter(key, now, 1, -1)}}
		r = apply(t, s, &b)
		if r[0].Value.Whole != 1 || r[1].Value.Whole != 2 {
			t.Fatalf("charged one after the other: got %d, %d, want 1, 2", r[0].Value.Whole, r[1].Value.Whole)
		}
	})

	t.Run("sixty-four operations", func(t *testing.T) {
		var b backends.Batch
		for range 64 {
			b.Ops = append(b.Ops, counter(fresh("many"), now, 1, -1))
		}
		for i, r := range apply(t, s, &b) {
			if r.Value.Whole != 1 {
				t.Fatalf("operation %d: %d, want 1", i, r.Value.Whole)
			}
		}
	})
}

func testBounds(t *testing.T, s backends.Store) {
	now := epoch()
	t.Run("above 32 bits", func(t *testing.T) {
		for _, span := range []backends.Span{backends.Fixed, backends.FirstHit, backends.EveryHit} {
			for _, max := range []int64{-1, 1 << 40} {
				op := counter(fresh("big"), now, 1<<33, max)
				op.Span = span
				holds(t, s, op, 1<<33)
				holds(t, s, op, 1<<34)
			}
		}
	})
	t.Run("saturates", func(t *testing.T) {
		key := fresh("saturated")
		for range 20 {
			op := counter(key, now, backends.MaxCost, -1)
			op.Times = backends.MaxTimes
			applyOne(t, s, op)
		}
		holds(t, s, counter(key, now, 0, -1), backends.MaxValue)
		holds(t, s, counter(key, now, 1, -1), backends.MaxValue)
	})
	t.Run("a refund stops at nothing", func(t *testing.T) {
		key := fresh("refund")
		applyOne(t, s, counter(key, now, 2, -1))
		holds(t, s, counter(key, now, 5, -1).Inverse(0), 0)
		if got := applyOne(t, s, counter(key, now, 3, 3)); got.Admitted != 1 || got.Value.Whole != 3 {
			t.Fatalf("the full quota is back, not more: got %+v", got)
		}
	})
	t.Run("a charge that is given back late leaves the next window", func(t *testing.T) {
		op := counter(fresh("late"), now, 3, -1)
		op.Span, op.Until = backends.FirstHit, now+10*second
		ended := applyOne(t, s, op).Until
		op = op.At(now + 11*second)
		runs := applyOne(t, s, op).Until
		for until, want := range map[int64]int64{ended: 3, runs: 2} {
			back := op.Inverse(until)
			back.By.Whole = 1
			holds(t, s, back, want)
			applyOne(t, s, op.Reset())
			applyOne(t, s, op)
		}
	})
	t.Run("a read by a clock that is behind dates no cost back", func(t *testing.T) {
		for _, parts := range []int64{0, 12} {
			op := backends.Op{
				Limit: &backends.Limit{Kind: backends.List, Den: 1, Window: 60 * second, Parts: parts},
				Key:   fresh("list"), By: backends.Amount{Whole: 1}, Max: backends.Amount{Whole: 5}, Times: 1, Now: epoch(),
			}
			charged := applyOne(t, s, op)
			behind, look := op.Look(), op.Look()
			behind.Now, look.Now = op.Now-10*second, op.Now+tick
			if r := apply(t, s, &backends.Batch{Ops: []backends.Op{behind, look}})[1]; r.Until != charged.Until || r.Value.Whole != 1 {
				t.Errorf("%d parts: %+v, want an end at %d", parts, r, charged.Until)
			}
		}
	})
	t.Run("a charge and its refund in one batch leave the charge after them", func(t *testing.T) {
		for _, oldest := range []bool{false, true} {
			op := backends.Op{
				Limit: &backends.Limit{Kind: backends.List, Den: 1, Window: 60 * second, Oldest: oldest},
				Key:   fresh("list"), By: backends.Amount{Whole: 1}, Max: backends.Amount{Whole: 5}, Times: 1, Now: epoch(),
			}
			back := op.Inverse(0)
			back.Verb = backends.Refund
			apply(t, s, &backends.Batch{Ops: []backends.Op{op, op, back}})
			holds(t, s, op.Look(), 1)
		}
	})
	t.Run("long windows live long enough", func(t *testing.T) {
		for _, days := range []int64{1, 30, 31, 365, 3650} {
			for _, max := range []int64{-1, 10} {
				op, window := counter(fresh("long"), now, 1, max), days*24*3600*second
				op.Until = now + window
				applyOne(t, s, op)
				op.Now += window / 2
				holds(t, s, op, 2)
			}
		}
	})
	t.Run("weights are exact", func(t *testing.T) {
		day := 24 * 3600 * second
		for _, c := range []struct{ prev, num, den, max, want int64 }{
			{1, 1, day / 1000, 1, 0},       // one millisecond left still counts
			{1<<32 - 1, 1, 1 << 26, 64, 0}, // rounds up
			{1<<32 - 1, 1<<26 - 1, 1 << 26, 1<<32 - 63, 1},
			{1<<32 - 1, 1<<26 - 1, 1 << 26, 1<<32 - 64, 0},
			{4294967291, 67108801, 67108859, 4294963579, 0},
			{4294967291, 67108801, 67108859, 4294963580, 1},
			{8, 8, 10, 8, 1},
			{8, 8, 10, 7, 0},
		} {
			key := fresh("weight")
			op := counter(key, now, 1, c.max)
			op.Span, op.Window, op.Mark = backends.Sliding, 1000*c.den, 7
			op.Until = now + 1000*c.num + op.Window
			before := op
			before.Mark, before.Until, before.Now = 6, op.Until-op.Window, op.Until-2*op.Window-1
			before.By.Whole, before.Max = c.prev, backends.NoMax
			applyOne(t, s, before)
			if got := applyOne(t, s, op); got.Admitted != c.want || got.Prev != c.prev {
				t.Errorf("previous %d × %d/%d + 1 <= %d: got %+v, want admitted %d", c.prev, c.num, c.den, c.max, got, c.want)
			}
		}
	})
	t.Run("a window is filled late as far as the rolling window has room", func(t *testing.T) {
		for _, c := range []struct{ value, num, den, max, want int64 }{
			{9, 1, 2, 10, 2},
			{9, 1, 20, 10, 10}, // no more than the limit
			{9, 0, 20, 10, 10},
			{10, 1, 20, 10, 0},
			{11, 1, 20, 10, 0},
			{4, 2, 3, 10, 9},
			{1, 1<<26 - 1, 1 << 26, 1 << 32, 4294967296},
			{4194307, 67076071, 1 << 26, 1<<32 - 5, 4292870711},
		} {
			charge := counter(fresh("late fill"), now+1000*(c.den-c.num), c.value, -1)
			charge.Span, charge.Window, charge.Mark = backends.Sliding, 1000*c.den, 7
			charge.Until = now + 2*charge.Window
			fill := charge
			fill.Verb, fill.Mark, fill.Until = backends.Fill, 6, charge.Until-charge.Window
			fill.By.Whole, fill.Max.Whole = backends.MaxCost, c.max
			applyOne(t, s, charge)
			if got := applyOne(t, s, fill); got.Prev != c.want || got.Value.Whole != c.value {
				t.Errorf("%d and %d/%d of the window before, at most %d: got %+v, want %d", c.value, c.num, c.den, c.max, got, c.want)
			}
		}
	})
	t.Run("an operation that comes two windows late leaves a sliding window as it is", func(t *testing.T) {
		for _, verb := range []backends.Verb{backends.Fill, backends.Refund, backends.Undo} {
			charge := counter(fresh("too late"), now, 4, 10)
			charge.Span, charge.Window, charge.Mark = backends.Sliding, second, 7
			charge.Until = now + 2*second
			applyOne(t, s, charge)
			late := charge
			late.Verb, late.Mark, late.Until, late.Now = verb, 5, now, now-second/2
			applyOne(t, s, late)
			if got := applyOne(t, s, charge); got.Value.Whole != 8 || got.Prev != 0 {
				t.Errorf("verb %d: got %+v, want a value of 8", verb, got)
			}
		}
	})
	t.Run("fractions are exact", func(t *testing.T) {
		// One third of a microsecond, 300 times, is 100 µs; far ahead, so that
		// no store's own clock takes part.
		key := fresh("thirds")
		base := backends.Op{
			Limit: &backends.Limit{Kind: backends.Meter, Den: 3, Full: backends.NoMax},
			Key:   key, Now: now, Times: 1,
			By: backends.Amount{Whole: 3600 * second}, Max: backends.NoMax}
		applyOne(t, s, base)
		op := base
		op.By, op.Times = backends.Amount{Frac: 1}, 100
		var got backends.Amount
		for range 3 {
			got = applyOne(t, s, op).Value
		}
		if want := (backends.Amount{Whole: now + 3600*second + 100}); got != want {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		op.Max = backends.Amount{Whole: now + 3600*second + 102, Frac: 1}
		if r := applyOne(t, s, op); r.Admitted != 7 || r.Value != op.Max {
			t.Fatalf("got %+v, want 7 more up to %+v", r, op.Max)
		}
	})
}

func testKeys(t *testing.T, s backends.Store) {
	now := epoch()
	base := fresh("key")
	long := strings.Repeat("x", 10_000)
	keys := []string{
		base, base + " ", base + "\n", base + "\r\nflush_all\r\n", base + "\x00", base + "\x7f", base + "\xff\xfe",
		base + "%20", base + "}", base + "{", base + "ü", base + long, base + long + "y", base + strings.Repeat("x", 250),
	}
	for _, max := range []int64{-1, 5} {
		var b backends.Batch
		for _, k := range keys {
			b.Ops = append(b.Ops, counter(k, now, 1, max))
		}
		apply(t, s, &b)
	}
	for _, k := range keys {
		holds(t, s, counter(k, now, 0, -1), 2)
	}
}

// testConcurrency has many callers hit one cell of each kind; together they get
// exactly as many admissions as fit.
func testConcurrency(t *testing.T, s backends.Store) {
	now := epoch()
	meter := backends.Op{
		Limit: &backends.Limit{Kind: backends.Meter, Den: 1, Full: backends.Amount{Whole: 50 * second}},
		Key:   fresh("meter"), Now: now, Times: 1,
		By:  backends.Amount{Whole: second},
		Max: backends.Amount{Whole: now + 50*second}}
	list := backends.Op{
		Limit: &backends.Limit{Kind: backends.List, Den: 1, Window: 60 * second},
		Key:   fresh("list"), Now: now, Times: 1,
		By: backends.Amount{Whole: 1}, Max: backends.Amount{Whole: 50}}
	for name, op := range map[string]backends.Op{"counter": counter(fresh("counter"), now, 1, 50), "meter": meter, "list": list} {
		t.Run(name, func(t *testing.T) {
			var wg sync.WaitGroup
			var admitted, failed atomic.Int64
			for range 8 {
				wg.Go(func() {
					for range 10 {
						ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
						r := attempt(ctx, t, s, op)
						cancel()
						if r.Err != nil {
							failed.Add(1)
						}
						admitted.Add(r.Admitted)
					}
				})
			}
			wg.Wait()
			// A store may give up under contention, with an error. Such a hit may
			// have been charged, so each error explains one admission less.
			if n := admitted.Load(); n > 50 || n < 50-failed.Load() {
				t.Fatalf("80 hits against 50: %d admitted, %d failed", n, failed.Load())
			}
		})
	}
}

// testSkew has two processes, the clock of one of which is behind, charge one
// bucket in turn. Together they get what one process would get.
func testSkew(t *testing.T, s backends.Store) {
	for _, behind := range []time.Duration{time.Millisecond, 50 * time.Millisecond, time.Second} {
		c := newSteering(t, s, algorithms.Spec{Strategy: algorithms.TokenBucket, Requests: 1000, Window: time.Second, Burst: 50})
		const hits, every = 300, 100 // µs: ten times the rate
		admitted := 0
		for i := range int64(hits) {
			if c.now = epoch() + i*every; i%2 == 1 {
				c.now -= behind.Microseconds()
			}
			if c.charge(1, false).Allowed {
				admitted++
			}
		}
		if want := 50 + hits*every/1000; admitted > want || admitted < want-1 {
			t.Errorf("%v behind: %d of %d hits pass, want %d", behind, admitted, hits, want)
		}
	}
}

// testTimes has one batch with operations of several times on one list, as callers
// have that were merged: each is decided at its own time.
func testTimes(t *testing.T, s backends.Store) {
	now := epoch()
	op := backends.Op{
		Limit: &backends.Limit{Kind: backends.List, Den: 1, Window: window},
		Key:   fresh("times"), Now: now, Times: 1,
		By: backends.Amount{Whole: 2}, Max: backends.Amount{Whole: 3}, Until: now + window}
	applyOne(t, s, op)
	before, after := op, op
	before.Now, after.Now = now+window-second, now+window
	r := apply(t, s, &backends.Batch{Ops: []backends.Op{before, after, before.Look()}})
	if r[0].Admitted != 0 || r[1].Admitted != 1 || r[1].Value.Whole != 2 || r[2].Value.Whole != 2 {
		t.Errorf("a second before the first hits leave, and then: %+v", r)
	}
}

// attempt applies op, which may fail: with ErrUnavailable, and with an error in the reply,
// because the service reads no other.
func attempt(ctx context.Context, t *testing.T, s backends.Store, op backends.Op) backends.Reply {
	t.Helper()
	b := backends.Batch{Ops: []backends.Op{op}, Replies: make([]backends.Reply, 1)}
	err := s.Apply(ctx, &b)
	if (err != nil) != (b.Err() != nil) || err != nil && !errors.Is(err, backends.ErrUnavailable) {
		t.Errorf("Apply says %v, the reply says %v", err, b.Err())
	}
	return b.Replies[0]
}

func testContext(t *testing.T, s backends.Store) {
	// A caller that has given up gets an answer or an error within a second, and
	// the next caller is served.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	start := time.Now()
	attempt(ctx, t, s, counter(fresh("gone"), epoch(), 1, 5))
	if d := time.Since(start); d > time.Second {
		t.Fatalf("it took %v", d)
	}
	applyOne(t, s, counter(fresh("next"), epoch(), 1, 5))
	if err := s.Ping(context.Background()); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(time.UnixMicro(s.Now())).Abs(); d > time.Minute {
		t.Fatalf("Now is off by %v", d)
	}
}

func testClosed(t *testing.T, s backends.Store) {
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if r := attempt(context.Background(), t, s, counter(fresh("closed"), epoch(), 1, 5)); r.Err == nil {
		t.Error("Apply works after Close")
	}
}
