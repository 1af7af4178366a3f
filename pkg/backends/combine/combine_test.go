package combine_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/backendtest"
	"example.org/rls/pkg/backends/combine"
	"example.org/rls/pkg/backends/memory"
)

// slow is a memory store that takes its time and counts what it is asked.
type slow struct {
	*memory.Store
	gate    chan struct{} // Apply waits for it when not nil
	applied atomic.Int64
	ops     atomic.Int64
}

func (s *slow) Apply(ctx context.Context, b *backends.Batch) error {
	s.applied.Add(1)
	s.ops.Add(int64(len(b.Ops)))
	if s.gate != nil {
		select {
		case <-s.gate:
		case <-ctx.Done():
			return errors.Join(backends.ErrUnavailable, ctx.Err())
		}
	}
	return s.Store.Apply(ctx, b)
}

func newSlow(t *testing.T) (*slow, *combine.Store) {
	t.Helper()
	m, err := memory.New(memory.Options{MaxKeys: 100_000})
	if err != nil {
		t.Fatal(err)
	}
	next := &slow{Store: m}
	s, err := combine.New(next, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return next, s
}

func TestConformance(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backends.Store {
		_, s := newSlow(t)
		return s
	})
}

func ops(now int64) map[string]backends.Op {
	second := int64(1_000_000)
	return map[string]backends.Op{
		"always counted": {Kind: backends.Counter, Max: backends.NoMax, By: backends.Amount{Whole: 2}, Until: now + 60*second},
		"counter":        {Kind: backends.Counter, Max: backends.Amount{Whole: 101}, By: backends.Amount{Whole: 2}, Until: now + 60*second},
		"first hit":      {Kind: backends.Counter, Span: backends.FirstHit, Max: backends.Amount{Whole: 101}, By: backends.Amount{Whole: 2}, Until: now + 60*second},
		"meter":          {Kind: backends.Meter, Max: backends.Amount{Whole: now + 50*second, Frac: 5}, By: backends.Amount{Whole: second, Frac: 3}, Den: 7},
		"list":           {Kind: backends.List, Max: backends.Amount{Whole: 101}, By: backends.Amount{Whole: 2}, Window: 60 * second},
	}
}

// TestHotKey: the store sees few operations, and callers together get the very
// replies that they would have got one after the other.
func TestHotKey(t *testing.T) {
	for name, op := range ops(1_800_000_000_000_000) {
		t.Run(name, func(t *testing.T) {
			op.Key, op.Now, op.Times, op.Den = "hot", 1_800_000_000_000_000, 1, max(op.Den, 1)
			next, s := newSlow(t)
			next.gate = make(chan struct{})
			const callers = 200
			replies := make([]backends.Reply, callers)
			var wg sync.WaitGroup
			for i := range callers {
				wg.Go(func() {
					b := backends.Batch{Ops: []backends.Op{op}, Replies: replies[i : i+1]}
					if err := s.Apply(context.Background(), &b); err != nil {
						t.Error(err)
					}
				})
			}
			stop := time.AfterFunc(20*time.Second, func() { t.Error("callers are stuck"); close(next.gate) })
			defer stop.Stop()
			finished := make(chan struct{})
			go func() { wg.Wait(); close(finished) }()
			for open := true; open; {
				select {
				case next.gate <- struct{}{}:
				case <-finished:
					open = false
				}
			}

			alone, err := memory.New(memory.Options{MaxKeys: 10})
			if err != nil {
				t.Fatal(err)
			}
			want := make([]backends.Reply, callers)
			for i := range want {
				b := backends.Batch{Ops: []backends.Op{op}, Replies: want[i : i+1]}
				if err := alone.Apply(context.Background(), &b); err != nil {
					t.Fatal(err)
				}
			}
			byValue := func(a, b backends.Reply) int {
				if a.Admitted != b.Admitted {
					return int(b.Admitted - a.Admitted)
				}
				if a.Value == b.Value {
					return 0
				}
				if a.Value.Less(b.Value) {
					return -1
				}
				return 1
			}
			slices.SortFunc(replies, byValue)
			for i, got := range replies {
				if got.Admitted != want[i].Admitted || got.Value != want[i].Value {
					t.Fatalf("caller %d: merged %+v, alone %+v", i, got, want[i])
				}
			}
			if n := next.ops.Load(); n > callers/2 {
				t.Errorf("%d operations for %d callers of one key", n, callers)
			}
		})
	}
}

// TestDifferent operations on one key are not mixed up.
func TestDifferent(t *testing.T) {
	next, s := newSlow(t)
	next.gate = make(chan struct{})
	var wg sync.WaitGroup
	var sum atomic.Int64
	for i := range 60 {
		op := ops(1_800_000_000_000_000)["always counted"]
		op.Key, op.Now, op.Times, op.Den = "hot", 1_800_000_000_000_000, 1, 1
		op.By.Whole = int64(rand.IntN(3))
		op.Refund = i%20 == 19
		if !op.Refund {
			sum.Add(op.By.Whole)
		} else {
			op.By.Whole = 0
		}
		wg.Go(func() {
			b := backends.Batch{Ops: []backends.Op{op}, Replies: make([]backends.Reply, 1)}
			if err := s.Apply(context.Background(), &b); err != nil {
				t.Error(err)
			}
		})
	}
	close(next.gate)
	wg.Wait()
	look := ops(1_800_000_000_000_000)["always counted"]
	look.Key, look.Now, look.Times, look.Den, look.By.Whole = "hot", 1_800_000_000_000_000, 1, 1, 0
	b := backends.Batch{Ops: []backends.Op{look}, Replies: make([]backends.Reply, 1)}
	if err := s.Apply(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
	if got := b.Replies[0].Value.Whole; got != sum.Load() {
		t.Fatalf("charged %d, want %d", got, sum.Load())
	}
}

// TestGivingUp: those who leave while they wait are not charged, and disturb
// nobody.
func TestGivingUp(t *testing.T) {
	next, s := newSlow(t)
	next.gate = make(chan struct{})
	op := ops(1_800_000_000_000_000)["counter"]
	op.Key, op.Now, op.Times, op.Den = "hot", 1_800_000_000_000_000, 1, 1
	first := make(chan error, 1)
	go func() {
		b := backends.Batch{Ops: []backends.Op{op}, Replies: make([]backends.Reply, 1)}
		first <- s.Apply(context.Background(), &b)
	}()
	testenv.Eventually(t, 10*time.Second, func() bool { return next.applied.Load() == 1 }, "the first caller's operation is on its way")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			b := backends.Batch{Ops: []backends.Op{op}, Replies: make([]backends.Reply, 1)}
			if err := s.Apply(ctx, &b); !errors.Is(err, backends.ErrUnavailable) {
				t.Errorf("gave up and got %v", err)
			}
		})
	}
	wg.Wait()
	close(next.gate)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	b := backends.Batch{Ops: []backends.Op{op}, Replies: make([]backends.Reply, 1)}
	if err := s.Apply(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
	if got := b.Replies[0].Value.Whole; got != 4 {
		t.Fatalf("two callers of cost 2 stayed, and %d were charged", got)
	}
}

func BenchmarkApply(b *testing.B) {
	m, err := memory.New(memory.Options{MaxKeys: 100_000})
	if err != nil {
		b.Fatal(err)
	}
	s, err := combine.New(m, time.Second)
	if err != nil {
		b.Fatal(err)
	}
	op := backends.Op{Kind: backends.Counter, Key: "k", Now: 1, Den: 1, Times: 1, By: backends.Amount{Whole: 1}, Max: backends.NoMax, Until: 1 << 60}
	b.ReportAllocs()
	for b.Loop() {
		batch := backends.Batch{Ops: []backends.Op{op}, Replies: make([]backends.Reply, 1)}
		if err := s.Apply(context.Background(), &batch); err != nil {
			b.Fatal(err)
		}
	}
}
