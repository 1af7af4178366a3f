package metrics

import (
	"maps"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// inForce notes which of the counted rules and limits the tree has.
func (c *counts) inForce(tree *descriptors.Tree) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, domain := range tree.Domains() {
		if overrides := c.overrides(domain.Name); overrides != nil {
			overrides.held = true
			c.hold(overrides, ownTitle, "")
		}
		for _, pool := range domain.Pools {
			c.holdRule(domain.Name, pool)
		}
	}
	tree.Each(func(domain *descriptors.Domain, r *descriptors.Rule) {
		for _, v := range r.Variants() {
			c.holdRule(domain.Name, v)
		}
	})
	now := c.clock()
	for _, r := range c.rules {
		r.settle(now)
	}
	for _, l := range c.limits {
		l.settle(now)
	}
}

// overrides is the counts of the limits that requests to a domain bring; nil without any.
func (c *counts) overrides(domain string) *RuleCounts {
	return c.rules[RuleName{domain, service.OverridePath(domain), ""}]
}

// holdRule says that a rule is in force with its limits, and overrides in place of the first.
func (c *counts) holdRule(domain string, rule *descriptors.Rule) {
	if part := c.rules[RuleName{domain, rule.Path, rule.RowPlan}]; part != nil {
		part.held = true
	}
	r, limits := c.rules[RuleName{domain, rule.Path, ""}], rule.Limits
	if r == nil {
		return
	}
	r.held = true
	for i := range limits {
		c.hold(r, limits[i].Title(), rule.Plan)
	}
	if len(limits) > 0 {
		c.hold(c.overrides(domain), limits[0].Title(), "")
	}
}

// hold says that the limits of r with a title and a plan are in force: the strategy of an override is not
// always that of the limit in whose place it is.
func (c *counts) hold(r *RuleCounts, title, plan string) {
	if r == nil {
		return
	}
	for strategy := range r.strategies {
		if l := c.limits[limitLabels{r, algorithms.Strategy(strategy), title, plan}]; l != nil {
			l.held = true
		}
	}
}

// forget removes the counts of rules, and of limits, that have been gone for an hour at now. It
// reports whether there were such rules.
func (c *counts) forget(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := len(c.rules)
	maps.DeleteFunc(c.limits, func(labels limitLabels, l *limitCounts) bool {
		return labels.of.Over(now) || l.Over(now)
	})
	maps.DeleteFunc(c.rules, func(_ RuleName, r *RuleCounts) bool { return r.Over(now) })
	return len(c.rules) < before
}
