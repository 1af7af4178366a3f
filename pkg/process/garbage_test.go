package process

import "testing"

func TestPercentFor(t *testing.T) {
	for _, room := range []uint64{headroom, loadingHeadroom} {
		for _, live := range []uint64{1 << 20, 8 << 20, 64 << 20, 200 << 20, 1 << 30, 64 << 30} {
			p := percentFor(live, room)
			garbage := live * uint64(p) / 100
			if live <= room/4 && p != maxPercent {
				t.Errorf("%d bytes live: %d %%, want %d", live, p, maxPercent)
			}
			if p < minPercent || p > minPercent && garbage > room {
				t.Errorf("%d bytes live: %d %% lets %d bytes gather", live, p, garbage)
			}
		}
	}
}
