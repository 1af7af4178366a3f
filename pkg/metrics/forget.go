package metrics

import (
	"maps"
	"sync"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
)

// forgetAfter is how long counts are kept after their rule is gone. A rule that
// comes back sooner goes on counting where it stopped.
const forgetAfter = time.Hour

// InForce reports whether the rules in force have the rule, or for overrides the domain.
func (r *RuleCounts) InForce() bool { return r.gone.Load() == 0 }

// over reports whether the rule has been gone for forgetAfter.
func (r *RuleCounts) over(now time.Time) bool {
	return !r.InForce() && now.UnixNano()-r.gone.Load() >= int64(forgetAfter)
}

// inForce notes which of the counted rules the tree has, and forgets rules that have been
// gone for an hour.
func (d *decisions) inForce(tree *descriptors.Tree) {
	d.mu.Lock()
	gone := maps.Clone(d.rules)
	for _, domain := range tree.Domains() {
		name := RuleName{domain.Name, overrides(domain.Name)}
		delete(gone, name)
		d.holdOverrides(d.rules[name], ownTitle)
	}
	tree.Each(func(domain *descriptors.Domain, r *descriptors.Rule) {
		name := RuleName{domain.Name, r.Path}
		delete(gone, name)
		d.hold(name, r.Limits)
	})
	at := d.clock()
	now := at.UnixNano()
	for name, r := range d.rules {
		if gone[name] == nil {
			r.gone.Store(0)
		} else {
			r.gone.CompareAndSwap(0, now)
		}
	}
	for _, l := range d.limits {
		if l.held {
			l.gone = time.Time{}
		} else if l.gone.IsZero() {
			l.gone = at
		}
		l.held = false
	}
	d.mu.Unlock()
	// Only now, because a rule that find sees for the first time takes over a key whose
	// rule is gone.
	d.found.Store(new(sync.Map))
	d.forget()
}

// hold marks the counts of a rule's limits, and of the overrides in their place. The caller holds
// d.mu.
func (d *decisions) hold(name RuleName, limits []descriptors.Limit) {
	of := d.rules[name]
	if of == nil {
		return
	}
	for i := range limits {
		l := &limits[i]
		title := l.Title()
		if counts := d.limits[limitLabels{of, l.Strategy, title}]; counts != nil {
			counts.held = true
		}
		if i == 0 {
			d.holdOverrides(d.rules[RuleName{name.Domain, overrides(name.Domain)}], title)
		}
	}
}

// holdOverrides marks the counts of overrides with the title. Their strategy is not always that
// of the rule's limit. The caller holds d.mu.
func (d *decisions) holdOverrides(of *RuleCounts, title string) {
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
		return labels.of.over(now) || !l.gone.IsZero() && now.Sub(l.gone) >= forgetAfter
	})
	maps.DeleteFunc(d.rules, func(_ RuleName, r *RuleCounts) bool { return r.over(now) })
	if len(d.rules) < before {
		d.paths.forget(now)
	}
}
