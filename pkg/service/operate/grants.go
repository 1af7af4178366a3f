package operate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// maxGrants bounds the grants that a process remembers. Beyond it the grant that ends
// first is forgotten.
const maxGrants = 10_000

// oneOffs remembers the grants of this process that have not ended, without those until a time. A cell has only the
// difference between the hits in use and the hits granted; with the grant that led to
// it, both can be told.
type oneOffs struct {
	mu    sync.Mutex
	byKey map[string]grant // the key of the cell
}

// maxGrantKey bounds the key of a cell whose grants are remembered, in bytes.
const maxGrantKey = 4096

// GrantInForce is a grant until a time, or the grants to a cell that are not used up, ended or reset.
type GrantInForce struct {
	ID     string    `json:"id,omitempty"` // only until a time
	Time   time.Time `json:"time"`         // of the last one
	Who    string    `json:"who"`          // made the last one
	Domain string    `json:"domain"`
	Rule   string    `json:"rule"` // path; domain.override if no rule matches
	// Entries are as of [Change].
	Entries []descriptors.Entry `json:"entries,omitempty"`
	Key     string              `json:"key"` // in the store
	// Hits is what the last one gave, and what was left of those before it; until a time, what it gives in
	// each window. Limit stands in place of the rule's, and Hits are 0 then.
	Hits  int64             `json:"hits,omitempty"`
	Limit *descriptors.Rate `json:"limit,omitempty"`
	Left  int64             `json:"left,omitempty"` // of Hits; not of a grant until a time
	Ends  time.Time         `json:"ends"`
	Until time.Time         `json:"until"` // Ends
	// Error says why the grant does not act, such as because its limit is gone.
	Error string `json:"error,omitempty"`
	// Replica is the address of the process that made them, where several are asked.
	Replica string `json:"replica,omitempty"`
}

// Words say in words what the grant gives.
func (g *GrantInForce) Words() string {
	if g.ID == "" {
		return fmt.Sprintf("%d hits", g.Hits)
	}
	return (&descriptors.Grant{Hits: g.Hits, Rate: g.Limit}).Words()
}

// grant is what a cell was left with by its last grant.
type grant struct {
	GrantInForce // without Left
	limit        *descriptors.Limit
	id           algorithms.Identity
	key          string // of the cell

	count int64 // Usage.Count
	until int64 // the end of the grant in µs since the epoch, on the store's clock
	// credit says that the cell is a bucket with more hits than fit it. The grant ends when
	// these are used: the bucket is full again.
	credit bool
}

// add remembers a grant at a time in µs since the epoch, on the store's clock.
func (g *oneOffs) add(given grant, now int64) {
	if len(given.key) > maxGrantKey {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.byKey, func(_ string, old grant) bool { return old.until <= now })
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
	g.byKey[given.key] = given
}

// forget forgets the grants to a cell that was reset.
func (g *oneOffs) forget(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.byKey, key)
}

// all returns the grants that are remembered, by the keys of their cells.
func (g *oneOffs) all() map[string]grant {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.byKey)
}

// last is what the last grant left a cell with; the zero grant if none is remembered.
func (g *oneOffs) last(key string) grant {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.byKey[key]
}

// left is how many granted hits are left in the cell of op, which has value hits in use,
// less the hits granted. Of a grant that is not remembered, such as another process's,
// only the hits beyond the limit can be told.
func (last *grant) left(op *backends.Op, value int64) int64 {
	if last.until <= op.Now || last.credit && value >= 0 {
		return max(0, -value)
	}
	return max(0, -value, min(last.Hits, last.count-value))
}

// Grants returns the grants in force, those until a time first, and then the newest. It asks the store how
// many hits are left of each other grant of this process. Its error is Unavailable if the store cannot tell;
// grants that are known nevertheless are returned with it.
func (o *Operator) Grants(ctx context.Context) ([]GrantInForce, error) {
	now := o.cfg.Store.Now()
	all := slices.SortedFunc(maps.Values(o.grants.all()), func(a, b grant) int { return b.Time.Compare(a.Time) })
	inForce, err := o.untilTimes(ctx)
	if err != nil {
		return nil, err
	}
	for some := range slices.Chunk(all, maxBatch) {
		cells := make([]*cell, len(some))
		for i, g := range some {
			cells[i] = &cell{Limit: g.limit}
			g.limit.Plan(&cells[i].op, g.id, algorithms.Charge{Now: now})
		}
		o.look(ctx, cells)
		for i, c := range cells {
			g := &some[i]
			switch {
			case c.Err != nil:
				return inForce, service.Errorf(codes.Unavailable, "the store cannot tell the unused hits of a grant to %s: %v", g.Rule, c.Err)
			case g.until > now && c.op.Key == g.key && c.Before.Granted > 0:
				g.Left, g.Until = c.Before.Granted, g.Ends
				inForce = append(inForce, g.GrantInForce)
			}
		}
	}
	return inForce, nil
}
