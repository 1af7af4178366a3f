package stack_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/redis"
	"example.org/rls/pkg/backends/stack"
)

// hit is one hit of a limit that never denies.
func hit(key string) backends.Op {
	now := time.Now().UnixMicro()
	return backends.Op{
		Limit: &backends.Limit{Kind: backends.Counter, Den: 1},
		Key:   key, Now: now, Times: 1, Until: now + 3600_000_000,
		By: backends.Amount{Whole: 1}, Max: backends.Amount{Whole: 1 << 40}}
}

func apply(t *testing.T, s backends.Store, timeout time.Duration, all bool, ops ...backends.Op) *backends.Batch {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	b := &backends.Batch{Ops: ops, Replies: make([]backends.Reply, len(ops)), AllOrNothing: all}
	if err := s.Apply(ctx, b); err != nil && !errors.Is(err, backends.ErrUnavailable) {
		t.Errorf("%v does not wrap ErrUnavailable", err)
	}
	return b
}

// frozen is the stack on a cluster of three masters, one of which is frozen.
type frozen struct {
	store backends.Store
	// beside is a store on the same cluster without decorators.
	beside backends.Store
	// live and frozen are keys of a live master and of the frozen one.
	live, frozen string
}

func freeze(t *testing.T) *frozen {
	t.Helper()
	cluster := testenv.RedisCluster(t, 3, 0)
	// A frozen master is waited for as long as possible.
	o := redis.Options{Type: "cluster", URL: strings.Join(cluster.Addrs(), ","), Watch: &breaker.Watch{Slow: time.Minute}}
	f := &frozen{store: build(t, stack.Options{Main: onRedis(t, o)}), beside: onRedis(t, o).Store}
	t.Cleanup(func() { _ = f.beside.Close() })
	var keys []backends.Op
	for i := range 64 {
		keys = append(keys, hit(fmt.Sprint("key", i)))
	}
	testenv.Eventually(t, patience, func() bool { return apply(t, f.store, patience, false, keys...).Err() == nil }, "the cluster answers")
	master := goredis.NewClient(&goredis.Options{Addr: cluster.Masters[0].Addr})
	defer master.Close()
	for _, op := range keys {
		if err := master.Exists(t.Context(), op.Key).Err(); err == nil {
			f.frozen = op.Key
		} else if strings.HasPrefix(err.Error(), "MOVED") {
			f.live = op.Key
		}
	}
	cluster.Masters[0].Pause()
	if f.live == "" || f.frozen == "" {
		t.Fatalf("key on a live master %q, on the frozen one %q", f.live, f.frozen)
	}
	return f
}

// count is the number of hits in the live key's cell.
func (f *frozen) count(t *testing.T) int64 {
	t.Helper()
	b := apply(t, f.beside, patience, false, hit(f.live).Look())
	if b.Err() != nil {
		t.Fatal(b.Err())
	}
	return b.Replies[0].Value.Whole
}

// TestAFrozenMasterHoldsItsOwnKeys: a frozen master delays only its own keys.
// While one request waits for the frozen master, another request is decided on
// the first request's key on a live master.
func TestAFrozenMasterHoldsItsOwnKeys(t *testing.T) {
	f := freeze(t)
	before := f.count(t)
	waits := make(chan struct{})
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	go func() {
		defer close(waits)
		b := backends.Batch{Ops: []backends.Op{hit(f.live), hit("{" + f.frozen + "}")}, Replies: make([]backends.Reply, 2)}
		_ = f.store.Apply(ctx, &b)
	}()
	testenv.Eventually(t, patience, func() bool { return f.count(t) > before }, "the live master is charged")
	meanwhile := 0
	for range 100 {
		if err := apply(t, f.store, patience, false, hit(f.live)).Err(); err != nil {
			t.Fatalf("a request that needs only a live master: %v", err)
		}
		select {
		case <-waits: // the store no longer waits, as 100 requests may take long on a busy machine
		default:
			meanwhile++
		}
	}
	if meanwhile == 0 {
		t.Error("no request was decided while the other request waited for the frozen master")
	}
	giveUp()
	<-waits
}

// TestNothingPilesUpBehindAFrozenMaster: all-or-nothing batches over a live and
// a frozen master end with their callers, and their charges on the live master
// are given back, unless they were answered too late.
func TestNothingPilesUpBehindAFrozenMaster(t *testing.T) {
	f := freeze(t)
	before, idle := f.count(t), runtime.NumGoroutine()
	var callers sync.WaitGroup
	var late atomic.Int64
	for i := range 100 {
		wait := time.Duration(i%20) * time.Millisecond // 0: the live master answers too late, too
		for range 10 {
			callers.Go(func() {
				b := apply(t, f.store, wait, true, hit(f.live), hit(f.frozen))
				if b.Err() == nil {
					t.Error("a batch with a key on a frozen master is decided")
				}
				if b.Replies[0].Err != nil {
					late.Add(1)
				}
			})
		}
		callers.Wait()
	}
	// The store waits for the frozen master for patience: goroutines that wait with it stay.
	testenv.Eventually(t, patience/2, func() bool { return runtime.NumGoroutine()-idle < 100 }, "the goroutines of 1,000 callers end")
	testenv.Eventually(t, patience, func() bool { return f.count(t) <= before+late.Load() }, "the live master's charges are given back")
}
