// Package backendtest is the conformance suite of stores: every strategy works
// on a store that passes [Run]. A new store's test is one call.
//
// The suite compares a store with [Model], the definition in Go, under random
// batches, and plays the timelines of every strategy on it. All decisions are
// made on a fake clock that is also set back; a store must not use its own.
package backendtest

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
)

// Open opens a store for one test and closes it when the test ends. The store
// may hold the cells of other tests, whose keys differ.
type Open func(t *testing.T) backends.Store

// Exceptions are the names of timelines that a store does not follow, each with
// the reason.
type Exceptions map[string]string

// Run runs the whole suite, but for the exceptions.
func Run(t *testing.T, open Open, exceptions ...Exceptions) {
	t.Run("Steps", func(t *testing.T) { testSteps(t, open(t)) })
	t.Run("Batches", func(t *testing.T) { testBatches(t, open(t)) })
	t.Run("Decisions", func(t *testing.T) { testDecisions(t, open(t)) })
	t.Run("Room", func(t *testing.T) { testRoom(t, open(t)) })
	t.Run("Bounds", func(t *testing.T) { testBounds(t, open(t)) })
	t.Run("Skew", func(t *testing.T) { testSkew(t, open(t)) })
	t.Run("Verbs", func(t *testing.T) { testVerbs(t, open(t)) })
	t.Run("Scan", func(t *testing.T) { testScan(t, open(t)) })
	t.Run("Pages", func(t *testing.T) { testPages(t, open(t)) })
	t.Run("Times", func(t *testing.T) { testTimes(t, open(t)) })
	t.Run("Keys", func(t *testing.T) { testKeys(t, open(t)) })
	t.Run("Concurrency", func(t *testing.T) { testConcurrency(t, open(t)) })
	t.Run("Context", func(t *testing.T) { testContext(t, open(t)) })
	t.Run("Timelines", func(t *testing.T) { testTimelines(t, open(t), algorithms.Lease{}, exceptions) })
	t.Run("Further", func(t *testing.T) { testFurther(t, open(t)) })
	t.Run("Closed", func(t *testing.T) { testClosed(t, open(t)) })
}

// RunReads looks at cells of every strategy and checks them, of several limits and at
// several times, and compares what the store keeps for their keys before and after.
// stored is all of it, also when the key expires; "" if there is nothing.
func RunReads(t *testing.T, open Open, stored func(t *testing.T, key string) string) {
	for name, spec := range steered {
		spec.Requests, spec.Window = 10, time.Hour // no key expires meanwhile
		t.Run(name, func(t *testing.T) { testReads(t, open(t), spec, stored) })
	}
}

// RunLeased plays the timelines of every strategy on limits with that lease. The
// store's background work must be done when Apply returns.
func RunLeased(t *testing.T, open Open, lease algorithms.Lease, exceptions ...Exceptions) {
	testTimelines(t, open(t), lease, exceptions)
}

const second = int64(time.Second / time.Microsecond)

var unique atomic.Int64

// fresh is a key that no other test uses, also on a store that is shared.
func fresh(name string) string {
	return fmt.Sprintf("{%s|%d.%d}", name, time.Now().UnixNano(), unique.Add(1))
}

// identity is a fresh one, all of whose keys share a Redis Cluster slot.
func identity(name string) algorithms.Identity {
	return algorithms.Identity{ID: []byte(strings.Trim(fresh(name), "{}")), OneSlot: true}
}

// limited is the limit of spec with so many requests.
func limited(t *testing.T, spec algorithms.Spec, requests uint32) *algorithms.Limit {
	t.Helper()
	spec.Requests = requests
	l, err := algorithms.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// epoch is where the fake clocks start: a round hour near the real time, because
// a store may remove cells that have ended long ago by its own clock, and so far ahead
// that a clock that is set back does not come to the real time.
func epoch() int64 { return started }

var started = time.Now().Add(2 * time.Hour).Truncate(time.Hour).UnixMicro()

// apply applies one batch or fails the test.
func apply(t *testing.T, s backends.Store, b *backends.Batch) []backends.Reply {
	t.Helper()
	b.Replies = make([]backends.Reply, len(b.Ops))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Apply(ctx, b); err != nil {
		t.Fatalf("Apply: %v", err)
	}
	return b.Replies
}

func applyOne(t *testing.T, s backends.Store, op backends.Op) backends.Reply {
	t.Helper()
	return apply(t, s, &backends.Batch{Ops: []backends.Op{op}})[0]
}

// holds applies op and wants that value after it.
func holds(t *testing.T, s backends.Store, op backends.Op, want int64) {
	t.Helper()
	if got := applyOne(t, s, op).Value.Whole; got != want {
		t.Fatalf("%.60q holds %d after %+v, want %d", op.Key, got, op, want)
	}
}

// counter charges cost in a window of a minute that started at epoch.
func counter(key string, now, cost, max int64) backends.Op {
	op := backends.Op{Limit: &backends.Limit{Kind: backends.Counter, Den: 1}, Key: key, Now: now, Times: 1,
		By: backends.Amount{Whole: cost}, Max: backends.Amount{Whole: max}, Until: now - now%(60*second) + 60*second}
	if max < 0 {
		op.Max = backends.NoMax
	}
	return op
}
