package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// mostPercent is the collector's GOGC while the heap is small: a sixth of
	// the process's CPU for a few MiB.
	mostPercent = 400
	// leastPercent bounds how hard the collector works for a large heap.
	leastPercent = 10
	// headroom is how much garbage a large heap may gather, in bytes.
	headroom = 32 << 20
)

// collectRarely lets garbage gather up to 400 % of a small heap and up to a
// fixed amount beside a large one: counters in memory would otherwise be paid
// for several times over. GOGC, where it is set, keeps its meaning.
func collectRarely(ctx context.Context) error {
	if os.Getenv("GOGC") != "" {
		return nil
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	percent := 0
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		metrics.Read(live)
		if p := percentFor(live[0].Value.Uint64()); p != percent {
			debug.SetGCPercent(p)
			percent = p
		}
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
	}
}

// percentFor is the GOGC for a live heap, in steps of a quarter so that it
// seldom changes.
func percentFor(live uint64) int {
	p := mostPercent
	for p > leastPercent && uint64(p)*live > 100*headroom {
		p = p * 3 / 4
	}
	return max(p, leastPercent)
}
