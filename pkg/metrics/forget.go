package metrics

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// forgetAfter is how long counts are kept after their rule is gone. A rule that
// comes back sooner goes on counting where it stopped.
const forgetAfter = time.Hour

// presence says whether a rule, its limit, or for overrides the domain, is in force.
type presence struct {
	held bool         // by the rules that come into force; only decisions.inForce uses it
	gone atomic.Int64 // the time in ns since the epoch at which it went out of force; 0 while it is in force
}

// InForce reports whether the rules in force have the rule, or for overrides the domain.
func (p *presence) InForce() bool { return p.gone.Load() == 0 }

// over reports whether it has been gone for forgetAfter.
func (p *presence) over(now time.Time) bool {
	return !p.InForce() && now.UnixNano()-p.gone.Load() >= int64(forgetAfter)
}

func (p *presence) settle(now time.Time) {
	if p.held {
		p.gone.Store(0)
	} else {
		p.gone.CompareAndSwap(0, now.UnixNano())
	}
	p.held = false
}

// inForce notes which of the counted rules the tree has, and forgets rules that have been
// gone for an hour.
func (d *decisions) inForce(tree *descriptors.Tree) {
	d.mu.Lock()
	for _, domain := range tree.Domains() {
		d.hold(domain.Name, service.OverridePath(domain.Name), nil)
		d.holdOverrides(domain.Name, ownTitle)
		for _, pool := range domain.Pools {
			d.hold(domain.Name, pool.Path, pool.Limits)
		}
	}
	tree.Each(func(domain *descriptors.Domain, r *descriptors.Rule) {
		for _, v := range r.Variants() {
			d.hold(domain.Name, r.Path, v.Limits)
		}
	})
	now := d.clock()
	for _, r := range d.rules {
		r.settle(now)
	}
	for _, l := range d.limits {
		l.settle(now)
	}
	d.mu.Unlock()
	// Only now, because a rule that find sees for the first time takes over a key whose
	// rule is gone.
	d.found.Store(new(sync.Map))
	d.forget()
}

// hold marks the counts of a rule and of its limits, and of the overrides in their place. The
// caller holds d.mu.
func (d *decisions) hold(domain, path string, limits []descriptors.Limit) {
	of := d.rules[RuleName{domain, path}]
	if of == nil {
		return
	}
	of.held = true
	for i := range limits {
		l := &limits[i]
		title := l.Title()
		if counts := d.limits[limitLabels{of, l.Strategy, title}]; counts != nil {
			counts.held = true
		}
		if i == 0 {
			d.holdOverrides(domain, title)
		}
	}
}

// holdOverrides marks the counts of overrides with the title. Their strategy is not always that
// of the rule's limit. The caller holds d.mu.
func (d *decisions) holdOverrides(domain, title string) {
	of := d.rules[RuleName{domain, service.OverridePath(domain)}]
	if of == nil {
		return
	}
	for strategy := range of.strategies {
		if counts := d.limits[limitLabels{of, algorithms.Strategy(strategy), title}]; counts != nil {
			counts.held = true
		}
	}
}

// forget removes the counts of rules, and of limits, that have been gone for an hour.
func (d *decisions) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, before := d.clock(), len(d.rules)
	maps.DeleteFunc(d.limits, func(labels limitLabels, l *limitCounts) bool {
		return labels.of.over(now) || l.over(now)
	})
	maps.DeleteFunc(d.rules, func(_ RuleName, r *RuleCounts) bool { return r.over(now) })
	if len(d.rules) < before {
		d.paths.forget(now)
	}
}
