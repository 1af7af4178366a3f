package metrics

import (
	"sync"
	"sync/atomic"
	"time"

	"example.org/rls/pkg/descriptors"
)

// forgetAfter is how long counts are kept after their rule is gone. A rule that
// comes back sooner goes on counting where it stopped.
const forgetAfter = time.Hour

// lifetime says whether a rule, or for overrides their domain, is in force, and since when
// it is not. Only decisions.Rules changes it.
type lifetime struct {
	gone atomic.Int64 // when rules without it came in force, in ns since the epoch; 0 while it is there
	seen bool         // in the rules that came last; decisions.mu guards it
}

// InForce reports whether the rules in force have the rule, or for overrides the domain.
func (l *lifetime) InForce() bool { return l.gone.Load() == 0 }

// over reports whether it has been gone for long enough to be forgotten.
func (l *lifetime) over(now time.Time) bool {
	gone := l.gone.Load()
	return gone != 0 && now.UnixNano()-gone >= int64(forgetAfter)
}

// Rules notes which of the counted rules are still there, and forgets those that
// have been gone for an hour. Counts of the others go on.
func (d *decisions) Rules(tree *descriptors.Tree) {
	d.mu.Lock()
	for _, r := range d.rules {
		r.seen = false
	}
	see := func(name RuleName) {
		if r := d.rules[name]; r != nil {
			r.seen = true
		}
	}
	for _, domain := range tree.Domains() {
		see(overridesOf(domain.Name))
	}
	tree.Each(func(domain *descriptors.Domain, r *descriptors.Rule) { see(RuleName{domain.Name, r.Path}) })
	now := d.clock().UnixNano()
	for _, r := range d.rules {
		if r.seen {
			r.gone.Store(0)
		} else {
			r.gone.CompareAndSwap(0, now)
			d.someGone = true
		}
	}
	d.mu.Unlock()
	// Only now, because a rule that is found anew takes over a key whose rule is
	// gone.
	d.found.Store(new(sync.Map))
	d.forget()
}

// forget removes the counts of rules that have been gone for an hour.
func (d *decisions) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.someGone {
		return
	}
	now := d.clock()
	d.paths.forget(now)
	d.someGone = false
	for name, r := range d.rules {
		if r.over(now) {
			delete(d.rules, name)
		} else if !r.InForce() {
			d.someGone = true
		}
	}
}
