package metrics

import (
	"maps"
	"sync"
	"time"

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
		delete(gone, RuleName{domain.Name, overrides(domain.Name)})
	}
	tree.Each(func(domain *descriptors.Domain, r *descriptors.Rule) { delete(gone, RuleName{domain.Name, r.Path}) })
	now := d.clock().UnixNano()
	for name, r := range d.rules {
		if gone[name] == nil {
			r.gone.Store(0)
		} else {
			r.gone.CompareAndSwap(0, now)
		}
	}
	d.mu.Unlock()
	// Only now, because a rule that find sees for the first time takes over a key whose
	// rule is gone.
	d.found.Store(new(sync.Map))
	d.forget()
}

// forget removes the counts of rules that have been gone for an hour.
func (d *decisions) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, before := d.clock(), len(d.rules)
	maps.DeleteFunc(d.rules, func(_ RuleName, r *RuleCounts) bool { return r.over(now) })
	if len(d.rules) < before {
		d.paths.forget(now)
	}
}
