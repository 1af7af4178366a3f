package main

import "testing"

func TestPercentFor(t *testing.T) {
	for _, live := range []uint64{1 << 20, 8 << 20, 64 << 20, 200 << 20, 1 << 30, 64 << 30} {
		p := percentFor(live)
		garbage := live * uint64(p) / 100
		if live <= headroom/4 && p != mostPercent {
			t.Errorf("%d bytes live: %d %%, want %d", live, p, mostPercent)
		}
		if p < leastPercent || p > leastPercent && garbage > headroom {
			t.Errorf("%d bytes live: %d %% lets %d bytes gather", live, p, garbage)
		}
	}
}
