package stack_test

import (
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/backends/redis"
	"example.org/rls/pkg/backends/stack"
)

// TestEachStoreHasItsTimeout: the wait for the per-second Redis ends after its
// own timeout, not after the longer one of the main Redis.
func TestEachStoreHasItsTimeout(t *testing.T) {
	seconds := testenv.Redis(t)
	o := stack.Options{Main: onRedis(t, redis.Options{URL: testenv.Redis(t).Addr})}
	s, err := redis.Open(redis.Options{URL: seconds.Addr, Timeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	o.PerSecond = stack.Tier{Store: s, Timeout: 50 * time.Millisecond}
	both := build(t, o)
	second := hit("second")
	second.PerSecond = true
	testenv.Eventually(t, patience, func() bool { return apply(t, both, patience, false, hit("hour"), second).Err() == nil }, "both answer")
	seconds.Pause()
	begin := time.Now()
	b := apply(t, both, patience, false, hit("hour"), second)
	if took := time.Since(begin); b.Replies[0].Err != nil || b.Replies[1].Err == nil || took > patience/2 {
		t.Errorf("%v, %v after %v", b.Replies[0].Err, b.Replies[1].Err, took)
	}
}

// TestPingFindsThePerSecondRedisAway: a per-second Redis that is away when the process
// starts is counted as away before a request needs it, and the process is ready.
func TestPingFindsThePerSecondRedisAway(t *testing.T) {
	seconds := testenv.Redis(t)
	seconds.Kill()
	watch := &breaker.Watch{Slow: patience}
	both := build(t, stack.Options{
		Main:      onRedis(t, redis.Options{URL: testenv.Redis(t).Addr}),
		PerSecond: onRedis(t, redis.Options{URL: seconds.Addr, Watch: watch}),
	})
	testenv.Eventually(t, patience, func() bool { return both.Ping(t.Context()) == nil }, "the main Redis answers")
	if n := watch.Away(); n != 1 {
		t.Errorf("%d per-second servers are away, want 1", n)
	}
}

// TestBuildClosesWhatItIsGiven: when Build fails, it closes the stores that it
// was given.
func TestBuildClosesWhatItIsGiven(t *testing.T) {
	var o stack.Options
	for _, tier := range []*stack.Tier{&o.Main, &o.PerSecond} {
		s, err := memory.New(memory.Options{MaxKeys: 1})
		if err != nil {
			t.Fatal(err)
		}
		tier.Store = s
	}
	o.Main.Timeout = time.Second
	if _, err := stack.Build(o); err == nil {
		t.Fatal("a per-second store without a timeout is accepted")
	}
	if o.Main.Store.Ping(t.Context()) == nil || o.PerSecond.Store.Ping(t.Context()) == nil {
		t.Error("a store is open after Build has failed")
	}
}
