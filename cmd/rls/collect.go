package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// mostPercent is GOGC while the heap is small. With GOGC=100 the garbage
	// collector would take a sixth of the process's CPU, to save a few MiB.
	mostPercent = 400
	// leastPercent is the least GOGC, which bounds the CPU that the garbage
	// collector takes with a large heap.
	leastPercent = 10
	// headroom is the garbage, in bytes, that a large heap may hold.
	headroom = 32 << 20
)

// collectRarely sets GOGC once a second, until ctx ends: garbage may be 400 % of a
// small heap, but only a fixed amount beside a large one, because otherwise counters
// in memory would cost several times their size. It does nothing if the operator
// sets GOGC.
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

// percentFor is GOGC for a heap with so many live bytes. It changes in steps of a
// quarter, and so seldom.
func percentFor(live uint64) int {
	p := mostPercent
	for p > leastPercent && uint64(p)*live > 100*headroom {
		p = p * 3 / 4
	}
	return max(p, leastPercent)
}
