package denycache_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/denycache"
)

func TestStats(t *testing.T) {
	r := start(t)
	want := func(when string, want denycache.Stats) {
		t.Helper()
		got := r.store.Stats()
		if (got.MeanTime > 0) != (got.Entries > 0) {
			t.Errorf("%s: %d entries, mean time %d", when, got.Entries, got.MeanTime)
		}
		got.MeanTime = 0
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", when, diff)
		}
	}
	want("at first", denycache.Stats{})
	for range 5 { // 2 pass, the third fills the cache, 2 are answered from it
		r.charge(bucket, one)
	}
	want("over the limit", denycache.Stats{Hits: 2, Misses: 3, Entries: 1})
	r.now += 1_000_000
	r.charge(bucket, one)
	want("asked again after a second", denycache.Stats{Hits: 2, Misses: 4, Entries: 1, Overwritten: 1})
	r.now += 24 * 3600 * 1_000_000
	r.charge(bucket, one)
	want("when the bucket has filled again", denycache.Stats{Hits: 2, Misses: 5, Expired: 1, Overwritten: 1})
}

// A key that does not fit takes the place of another one.
func TestEvictionsAreCounted(t *testing.T) {
	r := start(t)
	small, err := denycache.New(r.next, 1) // one cell
	if err != nil {
		t.Fatal(err)
	}
	l, err := algorithms.New(fixed)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		b := backends.Batch{Ops: make([]backends.Op, 1), Replies: make([]backends.Reply, 1)}
		l.Plan(&b.Ops[0], algorithms.Identity{ID: fmt.Appendf(nil, "d|%d", i)}, algorithms.Charge{Cost: 3, Now: epoch})
		if err := small.Apply(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}
	if got := small.Stats(); got.Entries != 1 || got.Evicted != 2 {
		t.Errorf("got %+v, want 1 entry and 2 evicted", got)
	}
}
