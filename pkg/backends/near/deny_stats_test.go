package near_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends/near"
)

func TestStats(t *testing.T) {
	r := newRig(t)
	want := func(when string, want near.CacheStats) {
		t.Helper()
		got := r.store.Cache()
		if (got.MeanTime > 0) != (got.Entries > 0) {
			t.Errorf("%s: %d entries, mean time %d", when, got.Entries, got.MeanTime)
		}
		got.MeanTime = 0
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", when, diff)
		}
	}
	want("at first", near.CacheStats{})
	for range 5 { // 2 pass, the third fills the cache, 2 are answered from it
		r.charge(bucket, one)
	}
	want("over the limit", near.CacheStats{Hits: 2, Misses: 3, Entries: 1})
	r.next.clock.Add(1_000_000)
	r.charge(bucket, one)
	want("asked again after a second", near.CacheStats{Hits: 2, Misses: 4, Entries: 1, Overwritten: 1})
	r.next.clock.Add(24 * 3600 * 1_000_000)
	r.charge(bucket, one)
	want("when the bucket has filled again", near.CacheStats{Hits: 2, Misses: 5, Expired: 1, Overwritten: 1})
}

// A key that does not fit takes the place of another one.
func TestEvictionsAreCounted(t *testing.T) {
	r := newRig(t)
	small := near.New(r.next, near.Options{Timeout: time.Second, Deny: true, Cells: 64, Go: never})
	l := limit(t, fixed)
	for i := range 1000 {
		b := *batchOf(l, algorithms.Charge{Cost: 3, Now: start}, string(fmt.Appendf(nil, "d|%d", i)))
		if err := small.Apply(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}
	if got := small.Cache(); got.Entries < 32 || got.Entries+got.Evicted != 1000 {
		t.Errorf("got %+v, want about 64 entries and the others evicted", got)
	}
}
