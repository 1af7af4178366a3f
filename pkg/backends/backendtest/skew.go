package backendtest

import (
	"testing"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
)

// testSkew has two processes, the clock of one of which is behind, charge one
// bucket in turn. Together they get what one process would get.
func testSkew(t *testing.T, s backends.Store) {
	for _, behind := range []time.Duration{time.Millisecond, 50 * time.Millisecond, time.Second} {
		l := limited(t, algorithms.Spec{Strategy: algorithms.TokenBucket, Window: time.Second, Burst: 50}, 1000)
		id := algorithms.Identity{ID: []byte(fresh("skew"))}
		const hits, every = 300, 100 // µs: ten times the rate
		admitted := 0
		for i := range int64(hits) {
			now := epoch() + i*every
			if i%2 == 1 {
				now -= behind.Microseconds()
			}
			var op backends.Op
			l.Plan(&op, id, algorithms.Charge{Now: now, Cost: 1})
			if r := applyOne(t, s, op); r.Admitted == 1 {
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
	op := backends.Op{Kind: backends.List, Key: fresh("times"), Now: now, Den: 1, Times: 1,
		By: backends.Amount{Whole: 2}, Max: backends.Amount{Whole: 3}, Window: window, Until: now + window}
	applyOne(t, s, op)
	before, after := op, op
	before.Now, after.Now = now+window-second, now+window
	r := apply(t, s, &backends.Batch{Ops: []backends.Op{before, after, before.Look()}})
	if r[0].Admitted != 0 || r[1].Admitted != 1 || r[1].Value.Whole != 2 || r[2].Value.Whole != 2 {
		t.Errorf("a second before the first hits leave, and then: %+v", r)
	}
}
