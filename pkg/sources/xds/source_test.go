package xds

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestWaits(t *testing.T) {
	for _, tt := range []struct {
		name        string
		backoff     Backoff
		unreachable bool
		want        []time.Duration // in seconds
	}{
		{"the reference's defaults", Backoff{Unreachable: 3, Ended: 10, Max: 60, Factor: 0.5}, false, []time.Duration{10, 20, 40, 60, 60}},
		{"unreachable", Backoff{Unreachable: 3, Ended: 10, Max: 60, Factor: 0.5}, true, []time.Duration{3, 6, 12, 24, 48, 60}},
		{"another factor", Backoff{Ended: 1, Max: 100, Factor: 3}, false, []time.Duration{1, 3, 9, 27, 81, 100}},
		{"never above the longest", Backoff{Ended: 10, Max: 5, Factor: 2}, false, []time.Duration{5, 5}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.backoff.Unreachable *= time.Second
			tt.backoff.Ended *= time.Second
			tt.backoff.Max *= time.Second
			w := waits{Backoff: tt.backoff}
			var got []time.Duration
			for range tt.want {
				got = append(got, w.next(tt.unreachable)/time.Second)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			w.failures = 0
			if first := w.next(tt.unreachable) / time.Second; first != tt.want[0] {
				t.Errorf("%v after a reset, want %v", first, tt.want[0])
			}
		})
	}
}

func TestJitterSpreadsTheWaits(t *testing.T) {
	const first = time.Second
	seen := map[time.Duration]bool{}
	for range 100 {
		w := waits{Backoff: Backoff{Ended: first, Max: time.Minute, Jitter: true}}
		wait := w.next(false)
		if wait < first/2 || wait > first {
			t.Fatalf("waits %v, want %v to %v", wait, first/2, first)
		}
		seen[wait] = true
	}
	if len(seen) < 50 {
		t.Errorf("only %d different waits of 100", len(seen))
	}
}
