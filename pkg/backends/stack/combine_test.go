package stack_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/backends/stack"
	"example.org/rls/test/backendtest"
)

const (
	second = int64(1_000_000)
	start  = 1_800_000_000 * second
)

// slow is a memory store that answers when its gate is open, and counts the
// batches and operations that it gets.
type slow struct {
	backends.Store
	gate    chan struct{} // nil: always open
	batches atomic.Int64
	ops     atomic.Int64
}

func (s *slow) Apply(ctx context.Context, b *backends.Batch) error {
	s.batches.Add(1)
	s.ops.Add(int64(len(b.Ops)))
	if s.gate != nil {
		select {
		case <-s.gate:
		case <-ctx.Done():
			return b.Fail(errors.Join(backends.ErrUnavailable, ctx.Err()))
		}
	}
	return s.Store.Apply(ctx, b)
}

func inMemory(t testing.TB) backends.Store {
	t.Helper()
	m, err := memory.New(memory.Options{MaxKeys: 100_000})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func over(t testing.TB, next backends.Store) backends.Store {
	t.Helper()
	return stack.Combine(next, 10*time.Second)
}

// gated is a slow store whose gate is shut, and a combining one over it.
func gated(t *testing.T) (*slow, backends.Store) {
	next := &slow{Store: inMemory(t), gate: make(chan struct{})}
	return next, over(t, next)
}

// try applies ops as one batch.
func try(ctx context.Context, s backends.Store, ops ...backends.Op) ([]backends.Reply, error) {
	b := backends.Batch{Ops: ops, Replies: make([]backends.Reply, len(ops))}
	err := s.Apply(ctx, &b)
	return b.Replies, err
}

func answers(t *testing.T, s backends.Store, ops ...backends.Op) []backends.Reply {
	t.Helper()
	replies, err := try(t.Context(), s, ops...)
	if err != nil {
		t.Error(err)
	}
	return replies
}

// charge costs 2 of 101.
func charge(key string) backends.Op {
	return backends.Op{Limit: &backends.Limit{Kind: backends.Counter, Den: 1}, Key: key, Now: start, Times: 1,
		By: backends.Amount{Whole: 2}, Max: backends.Amount{Whole: 101}, Until: start + 60*second}
}

func TestCombineConformance(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backends.Store { return over(t, inMemory(t)) })
}

// TestHotKey: the callers that come while an operation is with the store are
// merged into one operation, and get the replies that they would have got one
// after the other.
func TestHotKey(t *testing.T) {
	kinds := map[string]func(*backends.Op){
		"counter":                    func(*backends.Op) {},
		"counter that has no limit":  func(op *backends.Op) { op.Max = backends.NoMax },
		"counter of denied hits too": func(op *backends.Op) { op.Verb = backends.Count },
		"counter from the first hit": func(op *backends.Op) { op.Span = backends.FirstHit },
		"meter": func(op *backends.Op) {
			op.Kind, op.By, op.Den = backends.Meter, backends.Amount{Whole: second, Frac: 3}, 7
			op.Max, op.Full = backends.Amount{Whole: start + 50*second, Frac: 5}, backends.NoMax
		},
		"list": func(op *backends.Op) { op.Kind, op.Window = backends.List, 60*second },
	}
	for name, set := range kinds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				op := charge("hot")
				set(&op)
				next, s := gated(t)
				const callers = 200
				replies := make([]backends.Reply, callers)
				for i := range callers {
					go func() { replies[i] = answers(t, s, op)[0] }()
				}
				synctest.Wait()
				close(next.gate)
				synctest.Wait()

				alone := inMemory(t)
				var want []backends.Reply
				for range callers {
					want = append(want, answers(t, alone, op)[0])
				}
				slices.SortFunc(replies, inOrder)
				for i, got := range replies {
					if got.Admitted != want[i].Admitted || got.Value != want[i].Value {
						t.Fatalf("caller %d: merged %+v, alone %+v", i, got, want[i])
					}
				}
				if n := next.ops.Load(); n != 2 {
					t.Errorf("%d operations for one caller and %d that waited, want 2", n, callers-1)
				}
			})
		})
	}
}

// inOrder sorts replies as callers got them one after the other.
func inOrder(a, b backends.Reply) int {
	switch {
	case a.Admitted != b.Admitted:
		return int(b.Admitted - a.Admitted)
	case a.Value == b.Value:
		return 0
	case a.Value.Less(b.Value):
		return -1
	}
	return 1
}

// TestTheReplyTellsWhen: operations with different Op.Now that are merged are
// decided at the latest of them, and the callers' own operations do not change.
func TestTheReplyTellsWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next, s := gated(t)
		go answers(t, s, charge("hot"))
		synctest.Wait()
		batches := make([]backends.Batch, 3)
		for i := range batches {
			op := charge("hot")
			op.Now += int64(i) * 1000
			batches[i] = backends.Batch{Ops: []backends.Op{op}, Replies: make([]backends.Reply, 1)}
			go func() {
				if err := s.Apply(t.Context(), &batches[i]); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		close(next.gate)
		synctest.Wait()
		for i, b := range batches {
			if want := charge("hot"); b.Ops[0].Now != want.Now+int64(i)*1000 || b.Ops[0].Times != 1 {
				t.Errorf("caller %d's operation was changed to %+v", i, b.Ops[0])
			}
			if b.Replies[0].Now != start+2000 {
				t.Errorf("caller %d is told %d, want %d", i, b.Replies[0].Now, start+2000)
			}
		}
	})
}

// TestDifferent: different operations on one key are not merged.
func TestDifferent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next, s := gated(t)
		var sum int64
		for i := range 60 {
			op := charge("hot")
			op.Max = backends.NoMax
			if op.By.Whole = int64(i % 3); i%20 == 19 {
				op.By.Whole, op.Verb = 0, backends.Refund
			}
			sum += op.By.Whole
			go answers(t, s, op)
		}
		synctest.Wait()
		close(next.gate)
		synctest.Wait()
		if got := answers(t, s, charge("hot").Look())[0].Value.Whole; got != sum {
			t.Fatalf("charged %d, want %d", got, sum)
		}
	})
}

// TestPartial: operations that charge what fits are not merged, because each is told what fitted.
func TestPartial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next, s := gated(t)
		for range 5 {
			op := charge("hot")
			op.Verb, op.By.Whole, op.Max.Whole = backends.Fill, 3, 10
			go answers(t, s, op)
		}
		synctest.Wait()
		close(next.gate)
		synctest.Wait()
		if got := answers(t, s, charge("hot").Look())[0].Value.Whole; got != 10 {
			t.Fatalf("charged %d, want 10", got)
		}
	})
}

// TestGivingUp: callers that leave while they wait are not charged.
func TestGivingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next, s := gated(t)
		go answers(t, s, charge("hot"))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if r, err := try(ctx, s, charge("hot")); !errors.Is(err, backends.ErrUnavailable) || !errors.Is(err, r[0].Err) {
					t.Errorf("gave up and got %v, reply %+v", err, r[0])
				}
			})
		}
		wg.Wait()
		close(next.gate)
		if got := answers(t, s, charge("hot"))[0].Value.Whole; got != 4 {
			t.Fatalf("two callers of cost 2 stayed, and %d were charged", got)
		}
	})
}

// TestOneKeyTwice: two operations of a batch on one key go to the store in one
// batch, in order.
func TestOneKeyTwice(t *testing.T) {
	next := &slow{Store: inMemory(t)}
	s := over(t, next)
	for round := range int64(3) {
		r := answers(t, s, charge("twice"), charge("other"), charge("twice"))
		if r[0].Value.Whole != 4*round+2 || r[2].Value.Whole != 4*round+4 || next.batches.Load() != round+1 {
			t.Fatalf("got %+v with %d trips", r, next.batches.Load())
		}
	}
}

// TestGroupsDoNotWait: a group does not wait for its busy keys, and stays a group
// when another operation of the batch waits.
func TestGroupsDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next, s := gated(t)
		go answers(t, s, charge("hot"))
		synctest.Wait()
		full := charge("full")
		full.Max.Whole = 1
		one, two := charge("one"), charge("two")
		one.Group, full.Group, two.Group = 1, 1, 1
		var replies []backends.Reply
		go func() { replies = answers(t, s, one, full, charge("hot"), two) }()
		synctest.Wait()
		if n := next.batches.Load(); n != 2 {
			t.Errorf("the store was asked %d times, want 2: the group did not wait for the key beside it", n)
		}
		close(next.gate)
		synctest.Wait()
		if got := answers(t, s, charge("one").Look(), charge("two").Look()); got[0].Value.Whole != 0 || got[1].Value.Whole != 2 {
			t.Errorf("counted %d in a group that does not fit and %d in one that does: %+v", got[0].Value.Whole, got[1].Value.Whole, replies)
		}
	})
}

// TestRoles: an all-or-nothing batch of one operation that waited is refused by
// its role.
func TestRoles(t *testing.T) {
	for role, refused := range map[backends.Role]bool{backends.Firm: true, backends.Quota: true, backends.Lenient: false} {
		synctest.Test(t, func(t *testing.T) {
			next, s := gated(t)
			full := charge("full")
			full.Max.Whole, full.Role = 1, role
			go answers(t, s, full)
			synctest.Wait()
			b := backends.Batch{AllOrNothing: true, Ops: []backends.Op{full}, Replies: make([]backends.Reply, 1)}
			go func() {
				if err := s.Apply(t.Context(), &b); err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
			close(next.gate)
			synctest.Wait()
			if b.Refused != refused {
				t.Errorf("role %d: refused %v, want %v", role, b.Refused, refused)
			}
		})
	}
}

// servers is a memory store that plays several servers. The servers of keys
// with "frozen" in them do not answer.
type servers struct{ backends.Store }

func (s servers) ApplyEach(ctx context.Context, b *backends.Batch, decided func(*backends.Op)) error {
	for i := range b.Ops {
		if !strings.Contains(b.Ops[i].Key, "frozen") {
			one := backends.Batch{Ops: b.Ops[i : i+1], Replies: b.Replies[i : i+1]}
			_ = s.Store.Apply(ctx, &one)
			decided(&b.Ops[i])
		}
	}
	for i := range b.Ops {
		if strings.Contains(b.Ops[i].Key, "frozen") {
			<-ctx.Done()
			b.Replies[i] = backends.Reply{Err: backends.ErrUnavailable}
			decided(&b.Ops[i])
		}
	}
	return b.Err()
}

// TestAFrozenServerHoldsItsOwnKeys: while a batch waits for one server, its keys
// on a server that has answered are free for other callers.
func TestAFrozenServerHoldsItsOwnKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := over(t, servers{inMemory(t)})
		ctx, cancel := context.WithCancel(t.Context())
		var both []backends.Reply
		go func() {
			var err error
			if both, err = try(ctx, s, charge("frozen"), charge("hot")); !errors.Is(err, backends.ErrUnavailable) {
				t.Errorf("got %v, want ErrUnavailable", err)
			}
		}()
		synctest.Wait()
		soon, give := context.WithTimeout(t.Context(), time.Second)
		defer give()
		if other, err := try(soon, s, charge("hot")); err != nil || other[0].Value.Whole != 4 {
			t.Errorf("a key of a live server: %v, %+v", err, other[0])
		}
		cancel()
		synctest.Wait()
		if both[0].Err == nil || both[1].Err != nil || both[1].Value.Whole != 2 {
			t.Errorf("the batch with both keys got %+v", both)
		}
	})
}

func BenchmarkApply(b *testing.B) {
	s := over(b, inMemory(b))
	op := charge("k")
	op.Max, op.Until = backends.NoMax, 1<<60
	b.ReportAllocs()
	for b.Loop() {
		batch := backends.Batch{Ops: []backends.Op{op}, Replies: make([]backends.Reply, 1)}
		if err := s.Apply(context.Background(), &batch); err != nil {
			b.Fatal(err)
		}
	}
}

// distant is a store that takes a while for each call.
type distant struct {
	backends.Store
	takes func() time.Duration
	calls atomic.Int64
}

func (d *distant) Apply(_ context.Context, b *backends.Batch) error {
	d.calls.Add(1)
	<-time.After(d.takes()) // of the bubble's fake clock
	for i := range b.Replies {
		b.Replies[i].Admitted = b.Ops[i].Times
	}
	return nil
}

// visit has n callers come to one key, each after a pause, and calls answered with the
// time for which each has waited.
func visit(t *testing.T, s backends.Store, n int, pause func() time.Duration, answered func(time.Duration)) {
	var callers sync.WaitGroup
	for range n {
		<-time.After(pause())
		callers.Go(func() {
			start := time.Now()
			answers(t, s, backends.Op{Limit: &backends.Limit{}, Key: "hot", Times: 1, Now: start.UnixMicro()})
			answered(time.Since(start))
		})
	}
	callers.Wait()
}

// TestAHotKeyOfADistantStore: at 500 operations a second on one key, with 5 ± 5 ms
// each way, callers do not wait for the round trip of others.
func TestAHotKeyOfADistantStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := testenv.Random(t)
		way := func() time.Duration { return time.Duration(rng.Int64N(int64(10 * time.Millisecond))) }
		store := &distant{takes: func() time.Duration { return way() + way() }}
		pause := func() time.Duration { return time.Duration(rng.ExpFloat64() * float64(2*time.Millisecond)) }
		var inTime atomic.Int64
		const n = 5000 // in time are 91.9 ± 0.5 % of them
		visit(t, over(t, store), n, pause, func(took time.Duration) {
			if took < 18*time.Millisecond {
				inTime.Add(1)
			}
		})
		share := float64(inTime.Load()) / n
		t.Logf("%.1f %% in time, %d calls", 100*share, store.calls.Load())
		if share < 0.88 {
			t.Errorf("%.1f %% of the callers had their answer within 18 ms, want 88", 100*share)
		}
		if calls := store.calls.Load(); calls > n*3/4 {
			t.Errorf("%d calls for %d operations: too few were merged", calls, n)
		}
	})
}

// TestASilentStore: the callers who come to a hot key while the store is silent are
// merged, whether they wait or have given up.
func TestASilentStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next, s := gated(t)
		crowd, giveUp := context.WithCancel(t.Context())
		for range 1000 {
			<-time.After(time.Millisecond)
			op := charge("hot")
			op.Now = time.Now().UnixMicro()
			go func() { _, _ = try(crowd, s, op) }()
		}
		if n := next.batches.Load(); n > 8 {
			t.Errorf("%d calls for one key while the store is silent, want 8 at most", n)
		}
		giveUp()
		synctest.Wait()
		close(next.gate)
	})
}

// TestAHotKeyOfAStoreFarAway: with a round trip of 100 ms, callers wait a little for
// others and not for another round trip.
func TestAHotKeyOfAStoreFarAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, trip = 1000, 100 * time.Millisecond
		s := over(t, &distant{takes: func() time.Duration { return trip }})
		pause := func() time.Duration { return time.Millisecond }
		visit(t, s, n, pause, func(time.Duration) {}) // it learns the round trip
		var total atomic.Int64
		visit(t, s, n, pause, func(took time.Duration) { total.Add(int64(took)) })
		if mean := time.Duration(total.Load() / n); mean > trip+20*time.Millisecond {
			t.Errorf("callers waited %v on average for a round trip of %v", mean, trip)
		}
	})
}

// far is a memory store behind a round trip of some time.
type far struct{ backends.Store }

func (f far) Apply(ctx context.Context, b *backends.Batch) error {
	<-time.After(50 * time.Microsecond)
	return f.Store.Apply(ctx, b)
}

// BenchmarkHotKey is one operation of each of 64 callers at a time on one key.
func BenchmarkHotKey(b *testing.B) {
	s := over(b, far{inMemory(b)})
	b.SetParallelism(32)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		op := charge("hot")
		op.Max = backends.NoMax
		batch := backends.Batch{Ops: []backends.Op{op}, Replies: make([]backends.Reply, 1)}
		for pb.Next() {
			if err := s.Apply(b.Context(), &batch); err != nil {
				b.Error(err)
			}
		}
	})
}
