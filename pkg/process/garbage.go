package process

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"example.org/rls/internal/pace"
)

const (
	// maxPercent is GOGC while the heap is small. With GOGC=100 the garbage
	// collector would take a sixth of the process's CPU, to save a few MiB.
	maxPercent = 400
	// minPercent is the lowest GOGC, which bounds the CPU that the garbage
	// collector takes with a large heap.
	minPercent = 10
	// headroom is the garbage, in bytes, that a large heap may hold.
	headroom = 32 << 20
	// loadingHeadroom is headroom while rules are loaded: 10,000 rules make 45 MB of
	// garbage. If the garbage collector ran during the load, it would take the processors
	// from requests and have requests do a part of its work.
	loadingHeadroom = 96 << 20
)

// garbage sets GOGC, as docs/adr/0013-by-hand.md explains: garbage may be 400 % of a small
// heap, but only a fixed amount beside a large one, because otherwise counters in memory would cost
// several times their size. It does nothing if the operator sets GOGC.
type garbage struct {
	loading atomic.Bool
	mu      sync.Mutex
	percent int
}

// Run looks at the heap once a second, until ctx ends.
func (c *garbage) Run(ctx context.Context) error {
	for range pace.Every(ctx, time.Second) {
		c.adjust()
	}
	return nil
}

// RulesLoading says that rules are being loaded, or that the load has ended.
func (c *garbage) RulesLoading(loading bool) {
	c.loading.Store(loading)
	c.adjust()
}

// adjust sets GOGC for the size of the heap now.
func (c *garbage) adjust() {
	if os.Getenv("GOGC") != "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	room := uint64(headroom)
	if c.loading.Load() {
		room = loadingHeadroom
	}
	if p := percentFor(live[0].Value.Uint64(), room); p != c.percent {
		debug.SetGCPercent(p)
		c.percent = p
	}
}

// percentFor is GOGC for a heap with so many live bytes, beside which about
// room bytes of garbage may stand. It changes in steps of a quarter, and so seldom.
func percentFor(live, room uint64) int {
	p := maxPercent
	for p > minPercent && uint64(p)*live > 100*room {
		p = p * 3 / 4
	}
	return max(p, minPercent)
}
