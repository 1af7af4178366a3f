package metrics

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.org/rls/pkg/descriptors"
)

// forgetAfter is how long counts are kept after their rule is gone. A rule that
// comes back sooner goes on counting where it stopped.
const forgetAfter = time.Hour

// lifetime says whether a rule, one of its limits or a domain is in force, and
// since when it is not. Only decisions.Rules changes it.
type lifetime struct {
	gone atomic.Int64 // when rules without it came in force, in ns since the epoch; 0 while it is there
	seen bool         // in the rules that came last; decisions.mu guards it
}

func (p *lifetime) here() bool { return p.gone.Load() == 0 }

// over reports whether it has been gone for long enough to be forgotten.
func (p *lifetime) over(now time.Time) bool {
	gone := p.gone.Load()
	return gone != 0 && now.UnixNano()-gone >= int64(forgetAfter)
}

// lifetime finds or makes the lifetime of a limit, of a rule (limitName{rule:
// path}) or of a domain (limitName{rule: domain}). The caller holds d.mu.
func (d *decisions) lifetime(name limitName) *lifetime {
	p := d.present[name]
	if p == nil {
		p = new(lifetime)
		name.domain, name.rule = strings.Clone(name.domain), strings.Clone(name.rule)
		d.present[name] = p
	}
	return p
}

// Rules notes which of the counted rules are still there, and forgets those that
// have been gone for an hour. Counts of the others go on.
func (d *decisions) Rules(tree *descriptors.Tree) {
	d.mu.Lock()
	for _, p := range d.present {
		p.seen = false
	}
	see := func(name limitName) {
		if p := d.present[name]; p != nil {
			p.seen = true
		}
	}
	for _, domain := range tree.Domains() {
		see(limitName{rule: domain.Name})
	}
	tree.Each(func(domain *descriptors.Domain, r *descriptors.Rule) {
		see(limitName{rule: r.Path})
		for i := range r.Limits {
			see(limitName{domain.Name, r.Path, r.Limits[i].Strategy})
		}
	})
	now := d.clock().UnixNano()
	for _, p := range d.present {
		if p.seen {
			p.gone.Store(0)
		} else {
			p.gone.CompareAndSwap(0, now)
			d.someGone = true
		}
	}
	d.mu.Unlock()
	// Only now, because a rule that is found anew takes over a key whose rule is
	// gone.
	d.rules.Store(new(sync.Map))
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
	for name, t := range d.tallies {
		if t.of.over(now) {
			delete(d.tallies, name)
		}
	}
	d.someGone = false
	for name, p := range d.present {
		if p.over(now) {
			delete(d.present, name)
		} else if !p.here() {
			d.someGone = true
		}
	}
}
