package metrics

import (
	"maps"
	"time"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// inForce notes which of the counted rules and limits the tree has. A rule in force has its limits in force,
// and the overrides in place of its first limit. The strategy of an override is not always that of this limit,
// so limits are told apart without it.
func (c *counts) inForce(tree *descriptors.Tree) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rules, limits := map[*RuleCounts]bool{}, map[limitLabels]bool{}
	hold := func(domain string, rule *descriptors.Rule) {
		rules[c.rules[RuleName{domain, rule.Path, rule.RowPlan}]] = true
		r := c.rules[RuleName{domain, rule.Path, ""}]
		if r == nil {
			return
		}
		rules[r] = true
		for i := range rule.Limits {
			title := rule.Limits[i].Title()
			limits[limitLabels{of: r, title: title, plan: rule.Plan}] = true
			if i == 0 {
				limits[limitLabels{of: c.overrides(domain), title: title}] = true
			}
		}
	}
	for _, domain := range tree.Domains() {
		overrides := c.overrides(domain.Name)
		rules[overrides], limits[limitLabels{of: overrides, title: ownTitle}] = true, true
		for _, pool := range domain.Pools {
			hold(domain.Name, pool)
		}
	}
	tree.Each(func(domain *descriptors.Domain, r *descriptors.Rule) {
		for _, v := range r.Variants() {
			hold(domain.Name, v)
		}
	})
	now := c.clock()
	for _, r := range c.rules {
		r.settle(rules[r], now)
	}
	for labels, l := range c.limits {
		labels.strategy = 0
		l.settle(limits[labels], now)
	}
}

// overrides is the counts of the limits that requests to a domain bring; nil without any.
func (c *counts) overrides(domain string) *RuleCounts {
	return c.rules[RuleName{domain, service.OverridePath(domain), ""}]
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
