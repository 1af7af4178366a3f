package operate_test

import (
	"testing"
	"time"

	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/service/operate"
)

// TestTheWindowBeforeCountsItsHits, whatever was granted in it: a grant is for its own window alone.
func TestTheWindowBeforeCountsItsHits(t *testing.T) {
	r := start(t, strategies)
	now := func() *explain.Cell { return only(t, r.inspect(operate.Look, request(desc("sliding", "a")))).Cell }
	r.hit(withHits(10, desc("sliding", "a")))
	r.change(operate.Grant(operate.Granting{Hits: 10}), request(desc("sliding", "a")))
	if is := now(); is.Count != 10 || is.Granted != 10 || time.Duration(is.Reset) != 110*time.Second {
		t.Errorf("after the grant %+v", is)
	}
	r.hit(withHits(4, desc("sliding", "a")))
	r.pass(time.Minute) // 10 of 60 s into the next window
	if is := now(); is.Count != 9 || is.Granted != 0 || is.Remaining != 1 {
		t.Errorf("in the next window %+v", is)
	}
	r.pass(time.Minute)
	if is := now(); is.Count != 0 {
		t.Errorf("one window later %+v", is)
	}
}

// TestUntil: each answer of a grant says when it ends, and of a reset when the new window does.
func TestUntil(t *testing.T) {
	r := start(t, strategies)
	for key, want := range map[string][2]time.Duration{
		"fixed": {50 * time.Second, 50 * time.Second}, "first": {time.Minute, time.Minute}, "sliding": {50 * time.Second, 50 * time.Second},
		"log": {time.Minute, time.Minute}, "bucket": {5 * time.Second, time.Minute}, "gcra": {5 * time.Second, time.Minute}, "leaky": {5 * time.Second, time.Minute},
	} {
		r.hit(withHits(10, desc(key, "a")))
		now := time.UnixMicro(r.clock.Load())
		for _, c := range []struct {
			do   operate.Action
			want time.Duration
		}{
			{operate.Grant(operate.Granting{Hits: 5}).DryRun(), want[0]}, {operate.Grant(operate.Granting{Hits: 5}), want[0]},
			{operate.Reset.DryRun(), want[1]}, {operate.Reset, want[1]},
		} {
			if got := changed(t, r.change(c.do, request(desc(key, "a")))); got.Until.Sub(now) != c.want || got.Lasts != c.want {
				t.Errorf("%s, %+v: ends in %v (%v), want %v", key, c.do, got.Until.Sub(now), got.Lasts, c.want)
			}
		}
	}
}
