package split_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/backends/redis"
	"example.org/rls/pkg/backends/split"
)

func inMemory(t *testing.T) *memory.Store {
	t.Helper()
	s, err := memory.New(memory.Options{MaxKeys: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newSplit(t *testing.T, main, perSecond backends.Store) *split.Stores {
	t.Helper()
	s := split.New(main, perSecond, 5*time.Second)
	return s
}

// inTwo is a split store on two stores in memory.
func inTwo(t *testing.T) (main, perSecond *memory.Store, s *split.Stores) {
	t.Helper()
	main, perSecond = inMemory(t), inMemory(t)
	return main, perSecond, newSplit(t, main, perSecond)
}

// charge is one hit of cost 2 in a window with room for max.
func charge(key string, perSecond bool, max int64) backends.Op {
	now := time.Now().UnixMicro()
	return backends.Op{
		Limit: &backends.Limit{PerSecond: perSecond, Den: 1},
		Key:   key, Now: now, Until: now + time.Hour.Microseconds(), Times: 1,
		By: backends.Amount{Whole: 2}, Max: backends.Amount{Whole: max}}
}

func apply(t *testing.T, s backends.Store, all bool, ops ...backends.Op) *backends.Batch {
	t.Helper()
	b := &backends.Batch{Ops: ops, Replies: make([]backends.Reply, len(ops)), AllOrNothing: all}
	if err := s.Apply(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	return b
}

// failed applies ops as one batch that fails, and returns it.
func failed(t *testing.T, s backends.Store, timeout time.Duration, all bool, ops ...backends.Op) *backends.Batch {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	b := &backends.Batch{Ops: ops, Replies: make([]backends.Reply, len(ops)), AllOrNothing: all}
	if err := s.Apply(ctx, b); !errors.Is(err, backends.ErrUnavailable) {
		t.Errorf("%v, want ErrUnavailable", err)
	}
	return b
}

func count(t *testing.T, s backends.Store, op backends.Op) int64 {
	t.Helper()
	return apply(t, s, false, op.Look()).Replies[0].Value.Whole
}

func TestRoutesToItsStore(t *testing.T) {
	main, seconds, s := inTwo(t)
	hour, second := charge("hour", false, 9), charge("second", true, 9)
	b := apply(t, s, false, hour, second, hour)
	if b.Replies[0].Value.Whole != 2 || b.Replies[1].Value.Whole != 2 || b.Replies[2].Value.Whole != 4 {
		t.Errorf("got %+v", b.Replies)
	}
	if count(t, main, hour) != 4 || count(t, main, second) != 0 || count(t, seconds, second) != 2 || count(t, seconds, hour) != 0 {
		t.Error("an operation went to the wrong store")
	}
}

func TestGivesBack(t *testing.T) {
	_, _, s := inTwo(t)
	hour, second := charge("hour", false, 9), charge("second", true, 1)
	back := charge("refunded", false, 9)
	apply(t, s, false, back)
	back = back.Inverse(0)
	b := apply(t, s, true, hour, second, back)
	if !b.Refused || b.Replies[0].Admitted != 1 || b.Replies[0].Value.Whole != 0 || b.Replies[1].Admitted != 0 {
		t.Errorf("refused %v, %+v", b.Refused, b.Replies)
	}
	if n := count(t, s, hour); n != 0 {
		t.Errorf("%d stayed charged", n)
	}
	if n := count(t, s, back); n != 2 {
		t.Errorf("a refused batch gave back: %d left, want 2", n)
	}
	second.Max.Whole = 2
	if b := apply(t, s, true, hour, second, back); b.Refused || count(t, s, hour) != 2 || count(t, s, second) != 2 || count(t, s, back) != 0 {
		t.Errorf("refused %v, %+v", b.Refused, b.Replies)
	}
}

// TestGivesBackWithoutItsCaller: the caller's time ends while one store is
// frozen. The charge on the other store is given back at once, and the charge that the frozen
// store makes when it awakes stays.
func TestGivesBackWithoutItsCaller(t *testing.T) {
	server := testenv.Redis(t)
	slow, err := redis.Open(redis.Options{URL: server.Addr})
	if err != nil {
		t.Fatal(err)
	}
	main := inMemory(t)
	s := newSplit(t, main, slow)
	t.Cleanup(func() { _ = s.Close() })
	hour, second := charge("hour", false, 9), charge("second", true, 9)
	apply(t, s, true, hour, charge("warm", true, 9))
	server.Pause()
	failed(t, s, 20*time.Millisecond, true, hour, second)
	testenv.Eventually(t, 5*time.Second, func() bool { return count(t, main, hour) == 2 }, "the hit is given back")
	server.Resume()
	testenv.Eventually(t, 5*time.Second, func() bool { return count(t, slow, second) == 2 }, "the hit that was answered late stays")
}

// hindered is a store that answers charges too late for their callers, and does not send
// give-backs at first.
type hindered struct {
	backends.Store
	answers chan struct{} // closed when the charges are answered
	unsent  atomic.Int64  // give-backs that are not sent
}

func (h *hindered) Apply(ctx context.Context, b *backends.Batch) error {
	switch {
	case b.Ops[0].Verb == backends.Undo && h.unsent.Add(-1) >= 0:
		return b.Fail(backends.NotSent(fmt.Errorf("%w: no room", backends.ErrUnavailable)))
	case h.answers == nil || b.Ops[0].Verb == backends.Undo:
		return h.Store.Apply(ctx, b)
	}
	go func() {
		<-h.answers
		apart := backends.Batch{Ops: b.Ops, AllOrNothing: b.AllOrNothing, Replies: make([]backends.Reply, len(b.Ops))}
		_ = h.Store.Apply(context.Background(), &apart)
	}()
	<-ctx.Done()
	return b.Fail(fmt.Errorf("%w: %w", backends.ErrUnavailable, ctx.Err()))
}

// TestWhatIsAnsweredLateStays: a store is slower than its caller, and the other one refuses the
// batch. The charge that the caller does not see stays; the one that it sees is given back.
func TestWhatIsAnsweredLateStays(t *testing.T) {
	for _, all := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			main, seconds := &hindered{Store: inMemory(t), answers: make(chan struct{})}, inMemory(t)
			s := newSplit(t, main, seconds)
			hour, second, full := charge("hour", false, 9), charge("second", true, 9), charge("full", true, 1)
			if !all {
				hour.Group, second.Group, full.Group = 1, 1, 1
			}
			failed(t, s, 20*time.Millisecond, all, hour, second, full)
			close(main.answers)
			<-time.After(2 * time.Second) // of the bubble's fake clock
			if late, seen := count(t, main.Store, hour), count(t, seconds, second); late != 2 || seen != 0 {
				t.Errorf("all or nothing %v: %d hits that were answered late stay, and %d others, want 2 and 0", all, late, seen)
			}
		})
	}
}

// TestGivesBackAgain: a give-back for which a server has no room is made when there is
// room, and the caller sees the cell after it.
func TestGivesBackAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		main := &hindered{Store: inMemory(t)}
		main.unsent.Store(5)
		s := newSplit(t, main, inMemory(t))
		hour := charge("hour", false, 9)
		b := apply(t, s, true, hour, charge("second", true, 1))
		if n := count(t, main, hour); n != 0 || !b.Refused || b.Replies[0].Value.Whole != 0 {
			t.Errorf("%d hits stay charged, %+v", n, b)
		}
	})
}

func TestNeverAdmitsBeyondALimit(t *testing.T) {
	_, _, s := inTwo(t)
	hour, second := charge("hour", false, 40), charge("second", true, 60)
	var mu sync.Mutex
	var wg sync.WaitGroup
	admitted := int64(0)
	for range 8 {
		wg.Go(func() {
			for range 20 {
				b := apply(t, s, true, hour, second)
				mu.Lock()
				if !b.Refused {
					admitted += 2
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if admitted == 0 || admitted > 40 || count(t, s, hour) != admitted || count(t, s, second) != admitted {
		t.Errorf("admitted %d of 40; counted %d and %d", admitted, count(t, s, hour), count(t, s, second))
	}
}

// TestOneStoreGone: when one store is away, the operations on the other store are
// decided, and the replies for the first have an error.
func TestOneStoreGone(t *testing.T) {
	main, seconds, s := inTwo(t)
	_ = seconds.Close()
	hour, second := charge("hour", false, 9), charge("second", true, 9)
	b := failed(t, s, time.Second, false, second, hour)
	if !errors.Is(b.Replies[0].Err, backends.ErrUnavailable) || b.Replies[1].Err != nil || b.Replies[1].Value.Whole != 2 {
		t.Errorf("got %+v", b.Replies)
	}
	if n := count(t, main, hour); n != 2 {
		t.Errorf("counted %d on the store that is there, want 2", n)
	}
}

// TestOneStoreGoneOfAGroup: neither a group nor an all-or-nothing batch stays
// charged on one store when the other store does not answer. The replies of the
// first store still say whether its limits have room.
func TestOneStoreGoneOfAGroup(t *testing.T) {
	for _, all := range []bool{false, true} {
		main, seconds, s := inTwo(t)
		_ = seconds.Close()
		hour, full, second := charge("hour", false, 9), charge("full", false, 1), charge("second", true, 9)
		lone := charge("lone", false, 9)
		hour.Group, full.Group, second.Group = 1, 2, 2
		again := second
		again.Group = 1
		b := failed(t, s, time.Second, all, hour, again, full, second, lone)
		for i, admitted := range []int64{1, -1, 0, -1, 1} {
			if gone := b.Replies[i].Err != nil; gone != (admitted < 0) || !gone && b.Replies[i].Admitted != admitted {
				t.Errorf("all or nothing %v: operation %d: %+v", all, i, b.Replies[i])
			}
		}
		if b.Refused != all {
			t.Errorf("all or nothing %v: refused %v, though a limit that is known to be full refuses", all, b.Refused)
		}
		want := int64(2)
		if all {
			want = 0
		}
		if n := count(t, main, hour) + count(t, main, full); n != 0 || count(t, main, lone) != want {
			t.Errorf("all or nothing %v: %d stayed charged for groups, %d for the lone limit", all, n, count(t, main, lone))
		}
	}
}

// TestWhatAnUndecidedOperationMeans: an operation that says what it means for the
// others if its store is away leaves them charged (Fits), or keeps them from being
// charged (Refuses), in a group and in an all-or-nothing batch.
func TestWhatAnUndecidedOperationMeans(t *testing.T) {
	for _, c := range []struct {
		means   backends.Undecided
		charged int64
		refused bool // the all-or-nothing batch
	}{{backends.Open, 0, false}, {backends.Fits, 2, false}, {backends.Refuses, 0, true}} {
		for _, all := range []bool{false, true} {
			main, seconds, s := inTwo(t)
			_ = seconds.Close()
			hour, second := charge("hour", false, 9), charge("second", true, 9)
			second.IfUndecided = c.means
			if !all {
				hour.Group, second.Group = 1, 1
			}
			b := failed(t, s, time.Second, all, hour, second)
			if b.Replies[0].Err != nil || b.Replies[0].Admitted != 1 || b.Replies[0].Value.Whole != c.charged || b.Replies[1].Err == nil {
				t.Errorf("%d, all or nothing %v: %+v", c.means, all, b.Replies)
			}
			if n := count(t, main, hour); n != c.charged || b.Refused != (all && c.refused) {
				t.Errorf("%d, all or nothing %v: %d charged, want %d; refused %v", c.means, all, n, c.charged, b.Refused)
			}
		}
	}
}

func TestPingAsksTheMainStore(t *testing.T) {
	main, seconds, s := inTwo(t)
	_ = seconds.Close()
	if err := s.Ping(context.Background()); err != nil {
		t.Errorf("the per-second store is away, the other limits can be decided: %v", err)
	}
	_ = main.Close()
	if err := s.Ping(context.Background()); !errors.Is(err, backends.ErrUnavailable) {
		t.Errorf("%v, want ErrUnavailable", err)
	}
}

// TestResetsGoToTheirStore and to no other one, which may be away.
func TestResetsGoToTheirStore(t *testing.T) {
	_, seconds, s := inTwo(t)
	hour, second := charge("hour", false, 9), charge("second", true, 9)
	apply(t, s, false, hour, second)
	apply(t, s, false, second.Reset())
	if n := count(t, s, second); n != 0 {
		t.Errorf("%d hits after a reset", n)
	}
	_ = seconds.Close()
	apply(t, s, false, hour.Reset())
	if n := count(t, s, hour); n != 0 {
		t.Errorf("%d hits after a reset", n)
	}
}
