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

// lifetime is the time in which a rule, or for overrides their domain, is in force. Only
// decisions.Rules changes a lifetime.
type lifetime struct {
	gone atomic.Int64 // its end, in ns since the epoch; 0 while the rule is in force
	seen bool         // the newest rules have the rule; decisions.mu guards seen
}

// InForce reports whether the rules in force have the rule, or for overrides the domain.
func (l *lifetime) InForce() bool { return l.gone.Load() == 0 }

// over reports whether the lifetime ended at least forgetAfter ago.
func (l *lifetime) over(now time.Time) bool {
	gone := l.gone.Load()
	return gone != 0 && now.UnixNano()-gone >= int64(forgetAfter)
}

// Rules ends the lifetimes of counted rules that the tree does not have, resumes the
// lifetimes of the others, and forgets rules that ended an hour ago.
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
	// Only now, because a rule that find sees for the first time takes over a key whose
	// rule is gone.
	d.found.Store(new(sync.Map))
	d.forget()
}

// forget removes the counts of rules that ended an hour ago.
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
