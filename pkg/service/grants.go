package service

import (
	"maps"
	"slices"
	"sync"

	"example.org/rls/pkg/backends"
)

// maxGrants bounds the grants that a process remembers. Beyond it the grant that ends
// first is forgotten.
const maxGrants = 10_000

// grants remembers the grants of this process that have not ended. A cell has only the
// difference between the hits in use and the hits granted; with the grant that led to
// it, both can be told.
type grants struct {
	mu    sync.Mutex
	byKey map[string]grant // the key of the cell
}

// grant is what a cell was left with by its last grant.
type grant struct {
	hits  int64 // granted and not used, also by the grants before
	count int64 // State.Count
	until int64 // the end of the grant in µs since the epoch, on the store's clock
	// credit says that the cell is a bucket with more hits than fit it. The grant ends when
	// these are used: the bucket is full again.
	credit bool
}

// add remembers that the last of hits granted were granted to the cell of op, which r
// left with value hits in use, less the hits granted.
func (g *grants) add(op *backends.Op, r *backends.Reply, hits, value int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.byKey, func(_ string, old grant) bool { return old.until <= op.Now })
	if len(g.byKey) >= maxGrants {
		first := ""
		for key, old := range g.byKey {
			if first == "" || old.until < g.byKey[first].until {
				first = key
			}
		}
		delete(g.byKey, first)
	}
	if g.byKey == nil {
		g.byKey = map[string]grant{}
	}
	g.byKey[op.Key] = grant{hits, value + hits, r.Until, op.Kind == backends.Meter && value < 0}
}

// forget forgets the grants to a cell that was reset.
func (g *grants) forget(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.byKey, key)
}

// keys are the keys of the cells with grants.
func (g *grants) keys() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.byKey))
}

// left is how many granted hits are left in the cell of op, which has value hits in use,
// less the hits granted. Of a grant that is not remembered, such as another process's,
// only the hits beyond the limit can be told.
func (g *grants) left(op *backends.Op, value int64) int64 {
	g.mu.Lock()
	last := g.byKey[op.Key]
	g.mu.Unlock()
	if last.until <= op.Now || last.credit && value >= 0 {
		return max(0, -value)
	}
	return max(0, -value, min(last.hits, last.count-value))
}
