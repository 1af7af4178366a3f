package descriptors

import (
	"math"
	"sync/atomic"
)

// Grants has the grants in force by their callers. It does not change and is safe for concurrent use.
type Grants struct {
	callers map[string]*caller
}

// caller has the grants to one caller.
type caller struct {
	grants []*Grant
	made   atomic.Pointer[made]
}

// made is the rule that the grants have made of another one, and when one of them ends.
type made struct {
	of, rule *Rule
	until    int64
}

// NewGrants returns the grants, nil without any: a request pays one atomic load then, and one look-up
// otherwise.
func NewGrants(all []*Grant) *Grants {
	if len(all) == 0 {
		return nil
	}
	m := &Grants{callers: make(map[string]*caller, len(all))}
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
func (m *Grants) Rule(name []byte, r *Rule, now int64) *Rule {
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

func (c *caller) make(r *Rule, now int64) *made {
	m := &made{of: r, until: math.MaxInt64}
	var inForce []*Grant
	for _, g := range c.grants {
		if until := g.Until.UnixMicro(); until > now {
			inForce, m.until = append(inForce, g), min(m.until, until)
		}
	}
	m.rule = r.Granted(inForce)
	return m
}
