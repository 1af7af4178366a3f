package descriptors

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// Rate is an amount of hits and its window.
type Rate struct {
	RequestsPerUnit uint32 `json:"requests_per_unit"`
	Unit            Unit   `json:"unit"`
	Multiplier      uint32 `json:"unit_multiplier,omitempty"` // the window is Multiplier × Unit
}

// String is the rate in words: "600 per minute".
func (r *Rate) String() string {
	return fmt.Sprintf("%d per %s", r.RequestsPerUnit, Period(r.Unit, max(r.Multiplier, 1)))
}

// Grant raises one limit for one caller until a time. Its JSON is what stores and answers have.
type Grant struct {
	ID     string    `json:"id"`
	Time   time.Time `json:"time"`  // when it was made
	Until  time.Time `json:"until"` // on the store's clock
	Who    string    `json:"who"`   // made it
	Reason string    `json:"reason,omitempty"`
	Domain string    `json:"domain"`
	Rule   string    `json:"rule"` // path
	// Caller is the name of the caller, as AppendID makes it, and Counter the [algorithms.Limit.Counter]
	// of the limit of the rule.
	Caller  string `json:"caller"`
	Counter string `json:"counter"`
	// Hits are let pass in each window besides those of the limit, or Rate stands in its place.
	Hits int64 `json:"hits,omitempty"`
	Rate *Rate `json:"limit,omitempty"`
}

// Words say in words what the grant lets pass.
func (g *Grant) Words() string {
	if g.Rate != nil {
		return g.Rate.String()
	}
	return fmt.Sprintf("%d more hits per window", g.Hits)
}

// String is Words, and until when.
func (g *Grant) String() string {
	return g.Words() + " until " + g.Until.Local().Format("2006-01-02 15:04:05 MST")
}

// Raise is the grant that has raised a limit, and the limit of the rule in whose place that stands.
type Raise struct {
	*Grant
	Of *Limit
}

// Granted returns l as g raises it. Its error says why l cannot be raised so, and what would be right:
// g may have 10 times the hits, or the rate, of l, which is the limit of a rule.
func (l *Limit) Granted(g *Grant) (Limit, error) {
	a := Amounts{Given: true}
	switch {
	case l.Requests == 0:
		return *l, errors.New("a limit of 0 takes no grant")
	case g.Rate != nil:
		a.Requests, a.Unit, a.Multiplier = g.Rate.RequestsPerUnit, g.Rate.Unit, max(g.Rate.Multiplier, 1)
		if !a.Unit.Valid() {
			return *l, errors.New("the limit has no unit: want N/UNIT, such as 600/minute")
		}
		window, wrong := a.Unit.Window(a.Multiplier, l.Calendar.On)
		switch {
		case wrong != nil:
			return *l, wrong
		case a.Requests == 0:
			return *l, errors.New("a limit of 0 grants nothing: want at least 1")
		case float64(l.Share.Of(a.Requests))*l.Window.Seconds() > float64(l.MaxGrant())*window.Seconds():
			return *l, fmt.Errorf("%s is too much: a grant has at most 10 times the rate of the limit of %s", g.Rate, l.rate())
		}
	default:
		if err := l.CheckGrant(g.Hits, 0); err != nil {
			return *l, err
		}
		a.Requests = uint32(min(int64(cmp.Or(l.WrittenRequests, l.Requests))+g.Hits, math.MaxUint32))
	}
	made, err := l.With(a)
	made.As, made.Raise = cmp.Or(l.As, l), &Raise{g, l}
	return made, err
}

// Granted is the variant of r in which grants raise its limits; r itself if none of them is for a limit
// of r and can be made.
func (r *Rule) Granted(grants []*Grant) *Rule {
	variant := r
	for i := range r.Limits {
		at := slices.IndexFunc(grants, func(g *Grant) bool { return g.Counter == r.Limits[i].Counter() })
		if at < 0 {
			continue
		}
		made, err := r.Limits[i].Granted(grants[at])
		if err != nil {
			continue
		}
		if variant == r {
			variant = new(Rule)
			*variant = *r
			variant.Limits, variant.Table, variant.base, variant.ungranted = slices.Clone(r.Limits), nil, r.Base(), r
		}
		variant.Limits[i] = made
	}
	return variant
}

// Ungranted is the variant of r, which may be nil, without grants.
func (r *Rule) Ungranted() *Rule {
	if r != nil && r.ungranted != nil {
		return r.ungranted
	}
	return r
}

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
