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
		l, err := algorithms.New(algorithms.Spec{Strategy: algorithms.TokenBucket, Requests: 1000, Window: time.Second, Burst: 50})
		if err != nil {
			t.Fatal(err)
		}
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
		if most := 50 + hits*every/1000; admitted > most || admitted < most-1 {
			t.Errorf("%v behind: %d of %d hits pass, want %d", behind, admitted, hits, most)
		}
	}
}
