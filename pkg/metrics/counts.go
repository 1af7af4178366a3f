package metrics

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
)

// The ways in which requests end, and descriptors of requests.
const (
	EndPassed = iota
	EndDenied
	EndFailed // refused or not decided
	Ends
)

// The possible decisions of a limit.
const (
	allowed  = iota
	denied   // and the rule is enforced
	shadowed // denied, by a rule in shadow mode or in a process in shadow mode
	decisionCount
)

var decisionNames = [decisionCount]string{"allowed", "denied", "shadow"}

// RuleName has the labels of a rule. Plan is that of rows of its table ([descriptors.Rule.RowPlan]),
// which are counted apart.
type RuleName struct{ Domain, Path, Plan string }

// RuleCounts has the counts of a rule, or of the limits that requests to a domain bring. Those of a Plan
// have only what Ended returns.
type RuleCounts struct {
	RuleName
	ended    [Ends]atomic.Uint64
	accounts accountCounts
	lifetime
	// counts.mu guards the maps.
	strategies map[algorithms.Strategy]*strategyCounts
	reached    map[algorithms.Percent]*atomic.Uint64
}

// Ended is the number of descriptors that the limits of the rule have decided, by how they
// ended: if one limit denies, the descriptor is denied.
func (r *RuleCounts) Ended() (n [Ends]uint64) {
	for end := range r.ended {
		n[end] = r.ended[end].Load()
	}
	return n
}

// forgetAfter is how long counts are kept after their rule is gone. A rule that
// comes back sooner goes on counting where it stopped.
const forgetAfter = time.Hour

// lifetime says whether a rule, its limit, or for overrides the domain, is in force.
type lifetime struct {
	gone atomic.Int64 // the time in ns since the epoch at which it went out of force; 0 while it is in force
}

// InForce reports whether the rules in force have the rule, or for overrides the domain.
func (l *lifetime) InForce() bool { return l.gone.Load() == 0 }

// Over reports whether it has been gone for forgetAfter.
func (l *lifetime) Over(now time.Time) bool {
	return !l.InForce() && now.UnixNano()-l.gone.Load() >= int64(forgetAfter)
}

func (l *lifetime) settle(inForce bool, now time.Time) {
	if inForce {
		l.gone.Store(0)
	} else {
		l.gone.CompareAndSwap(0, now.UnixNano())
	}
}

// accountCounts has the hits of a rule's reservations and overdrafts.
type accountCounts struct{ reserved, charged, givenBack, uncharged, cut atomic.Uint64 }

// strategyCounts has the counts of a rule's limits of one strategy.
type strategyCounts struct {
	near      atomic.Uint64
	exhausted atomic.Uint64
	burst     bool // the limits have a burst
}

// ownTitle stands in place of a title for limits that requests bring where no rule has one.
const ownTitle = "override"

// limitLabels are the labels of a limit. Limits of one rule that have the same are counted as one.
type limitLabels struct {
	of       *RuleCounts
	strategy algorithms.Strategy
	title    string
	plan     string
}

// limitCounts has the counts of the decisions of one limit.
type limitCounts struct {
	// decisions counts the store's decisions at 0, and the decisions of policy p at 1+p.
	decisions [1 + descriptors.Policies][decisionCount]atomic.Uint64
	lifetime
}

// counts has the counts of the rules and limits that are in force, or were an hour ago.
type counts struct {
	clock  func() time.Time
	mu     sync.Mutex
	rules  map[RuleName]*RuleCounts
	limits map[limitLabels]*limitCounts
}

// rule finds or makes the counts of a rule. The caller holds c.mu.
func (c *counts) rule(name RuleName) *RuleCounts {
	r := c.rules[name]
	if r == nil {
		name = RuleName{strings.Clone(name.Domain), strings.Clone(name.Path), strings.Clone(name.Plan)}
		r = &RuleCounts{RuleName: name, strategies: map[algorithms.Strategy]*strategyCounts{}, reached: map[algorithms.Percent]*atomic.Uint64{}}
		c.rules[name] = r
	}
	return r
}

// limit finds or makes the counts of a limit of r, which is from a plan unless that is "", with those
// of its strategy. The caller holds c.mu.
func (c *counts) limit(r *RuleCounts, l *descriptors.Limit, title, plan string) (*limitCounts, *strategyCounts) {
	strategy := r.strategies[l.Strategy]
	if strategy == nil {
		strategy = &strategyCounts{burst: l.Burst > 0}
		r.strategies[l.Strategy] = strategy
	}
	limit := c.limits[limitLabels{r, l.Strategy, title, plan}]
	if limit == nil {
		limit = new(limitCounts)
		c.limits[limitLabels{r, l.Strategy, strings.Clone(title), strings.Clone(plan)}] = limit
	}
	return limit, strategy
}

// thresholds finds or makes the counts of the thresholds of a limit of r. The caller holds
// counts.mu.
func (r *RuleCounts) thresholds(l *descriptors.Limit) (all []*atomic.Uint64) {
	for i := range l.Thresholds {
		at := l.Thresholds[i].At
		if r.reached[at] == nil {
			r.reached[at] = new(atomic.Uint64)
		}
		all = append(all, r.reached[at])
	}
	return all
}
