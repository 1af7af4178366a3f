// Package grants knows the limits that operators have raised for single callers until a time.
//
// It promises that all processes with one store decide by the same grants within a second of a change;
// that a request pays one atomic load while there are none, and one look-up otherwise; that each grant
// ends by its own time on the store's clock, also while the store is away; and that nothing of the store
// is taken for a grant unless it is one, within bounds. It leaves the raised limits to package
// descriptors, and to the service where they act.
package grants

import (
	"cmp"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"example.org/rls/pkg/descriptors"
)

const (
	// Longest is the longest time for which a grant may be in force.
	Longest = 31 * 24 * time.Hour
	// Most is the largest number of grants, and mostBytes that of the bytes of all of them.
	Most      = 10_000
	mostBytes = 8 << 20
	// longestName bounds the name of a caller, and longestText the JSON of a grant, in bytes.
	longestName = 4096
	longestText = 16 << 10
)

// Map has the grants in force. It does not change and is safe for concurrent use.
type Map struct {
	callers map[string]*caller
}

// caller has the grants to one caller.
type caller struct {
	grants []*descriptors.Grant
	made   atomic.Pointer[made]
}

// made is the rule that the grants have made of another one, and when one of them ends.
type made struct {
	of, rule *descriptors.Rule
	until    int64
}

// newMap returns the map of grants, nil without any.
func newMap(all []*descriptors.Grant) *Map {
	if len(all) == 0 {
		return nil
	}
	m := &Map{callers: make(map[string]*caller, len(all))}
	for _, g := range all {
		c := m.callers[g.Caller]
		if c == nil {
			c = new(caller)
			m.callers[g.Caller] = c
		}
		c.grants = append(c.grants, g)
	}
	return m
}

// Rule is r, a rule for the caller of that name, with the limits that grants raise at now, in µs since the
// epoch. It does not allocate, unless a grant was made or has ended, or r has changed.
func (m *Map) Rule(name []byte, r *descriptors.Rule, now int64) *descriptors.Rule {
	c := m.callers[string(name)]
	if c == nil {
		return r
	}
	last := c.made.Load()
	if last == nil || last.of != r || now >= last.until {
		last = c.make(r, now)
		c.made.Store(last)
	}
	return last.rule
}

func (c *caller) make(r *descriptors.Rule, now int64) *made {
	m := &made{of: r, until: math.MaxInt64}
	var inForce []*descriptors.Grant
	for _, g := range c.grants {
		if until := g.Until.UnixMicro(); until > now {
			inForce, m.until = append(inForce, g), min(m.until, until)
		}
	}
	m.rule = r.Granted(inForce)
	return m
}

// field is the name of a grant in the store: there is one for each counter.
func field(g *descriptors.Grant) string { return g.Caller + " " + g.Counter }

// check says why g, which the store has in a field, is no grant.
func check(name string, g *descriptors.Grant, now int64) error {
	longest := time.UnixMicro(now).Add(Longest + time.Minute) // clocks of processes differ
	wrong := ""
	switch {
	case name != field(g):
		wrong = "it stands in the field of another counter"
	case g.ID == "" || g.Domain == "" || g.Rule == "":
		wrong = "id, domain or rule is missing"
	case len(g.ID)+len(g.Who)+len(g.Reason) > longestName:
		wrong = "its texts are too long"
	case g.Until.After(longest):
		wrong = "it ends in more than 31 days"
	case (g.Hits > 0) == (g.Rate != nil):
		wrong = "want either hits or a limit"
	case g.Rate != nil && !g.Rate.Unit.Valid():
		wrong = "its limit has no unit"
	}
	if wrong != "" {
		return fmt.Errorf("the grant %.40q of the store is left out: %s", cmp.Or(g.ID, name), wrong)
	}
	return nil
}
