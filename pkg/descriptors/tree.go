// Package descriptors finds the limits that a request's descriptors are
// subject to.
//
// [Load] reads rules in YAML, the language of envoyproxy/ratelimit and a little
// more, reports every problem with file, line and column, and compiles them
// into an immutable [Tree]. [Domain.Match] finds the rule of one descriptor
// without allocating and without looking at rules that cannot match.
// [AppendID] names whom a limit counts.
//
// The package does not read files, does not know when rules change, and does
// not decide: that is left to pkg/sources, pkg/service and pkg/algorithms.
package descriptors

import (
	"fmt"
	"slices"
	"strings"
)

// File is one file of rules.
type File struct {
	Name    string // for messages
	Content []byte // YAML; only the first document counts
	// Places is set when Content was written from a control plane's message
	// instead of by a person: it has what each line stands for, and messages
	// name that instead of line and column. Such rules carry the fields that
	// the message lacks in metadata.rls.
	Places []string
}

// Options changes how rules are loaded.
type Options struct {
	// MergeDomains lets several files add descriptors to one domain.
	MergeDomains bool
	// Charge is that of domains that do not say.
	Charge Charge
	// SkipWrong leaves out what has a problem, with what is below it, and keeps
	// the rest: a descriptor, or a file when the problem is outside of its
	// descriptors.
	SkipWrong bool
}

// Tree is a compiled set of rules, immutable and safe for concurrent use. A
// nil Tree has no domains.
type Tree struct {
	domains map[string]*Domain
	sorted  []*Domain
}

// Domain is the rules of one domain. A nil Domain has none.
type Domain struct {
	Name   string
	Charge Charge

	pos       Position
	chargePos *Position // where the charge is given, if it is
	root      node
}

// Domain finds a domain by its name; nil when there is none.
func (t *Tree) Domain(name string) *Domain {
	if t == nil {
		return nil
	}
	return t.domains[name]
}

// Domains lists the domains by name.
func (t *Tree) Domains() []*Domain {
	if t == nil {
		return nil
	}
	return t.sorted
}

// Match finds the rule of a request's descriptor, nil when no limit applies.
//
// At each depth the descriptor with the entry's key and value wins, then the
// first in the order of the rules whose wildcards match, then the one with the
// key and no value. What won is not given up again when nothing below it
// matches. The request must be exactly as deep as the rule. Match does not
// allocate.
func (d *Domain) Match(entries []Entry) *Rule {
	if d == nil {
		return nil
	}
	n := &d.root
	for _, e := range entries {
		if n = n.next(e); n == nil {
			return nil
		}
	}
	return n.rule
}

// Dump lists every limit on a line of its own as the reference's /rlconfig
// does, sorted. What the reference does not have is added at the end of a line
// where a rule uses it.
func (t *Tree) Dump() string {
	var lines []string
	for _, d := range t.Domains() {
		d.root.walk(func(r *Rule) { lines = append(lines, r.dump()...) })
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func (r *Rule) dump() []string {
	line := func(unit Unit, requests uint32, rest string) string {
		return fmt.Sprintf("%s: unit=%s requests_per_unit=%d, shadow_mode: %t, quota_mode: %t%s\n",
			r.Path, unit, requests, r.Shadow, r.Quota, rest)
	}
	if r.Unlimited {
		return []string{line(UnitUnknown, r.requests, "")}
	}
	var lines []string
	for _, l := range r.Limits {
		lines = append(lines, line(l.Unit, l.Requests, l.dumpOptions()))
	}
	return lines
}

// dumpOptions lists what differs from the reference's only kind of limit.
func (l *Limit) dumpOptions() string {
	var b strings.Builder
	if l.Multiplier != 1 {
		fmt.Fprintf(&b, ", %s: %d", keyUnitMultiplier, l.Multiplier)
	}
	if l.Strategy != 0 {
		fmt.Fprintf(&b, ", %s: %s", keyStrategy, l.Strategy)
	}
	if l.Burst != 0 {
		fmt.Fprintf(&b, ", %s: %d", keyBurst, l.Burst)
	}
	if l.FromFirstHit {
		fmt.Fprintf(&b, ", %s: from_first_hit", keyWindow)
	}
	if l.Extend {
		fmt.Fprintf(&b, ", %s: true", keyExtend)
	}
	if l.MaxDelay != 0 {
		fmt.Fprintf(&b, ", %s: %s", keyMaxDelay, l.MaxDelay)
	}
	return b.String()
}
