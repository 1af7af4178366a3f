// Package descriptors finds the limits that apply to a request's descriptors.
//
// A [Tree] holds compiled rules and does not change. [Domain.Match] finds the
// rule of one descriptor without allocating and without looking at rules that
// cannot match; [Domain.Explain] also says how. [AppendID] names the caller
// that a limit counts.
//
// The package knows neither YAML nor protobuf: package rules compiles a Tree.
// It does not decide requests either: that is left to pkg/service and
// pkg/algorithms.
package descriptors

import (
	"encoding/binary"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"

	"example.org/rls/pkg/descriptors/match"
)

// Tree is a compiled set of rules. It does not change and is safe for
// concurrent use. A nil Tree has no domains.
type Tree struct {
	contents Contents
	domains  map[string]*Domain
	sorted   []*Domain
	hash     func() uint64
}

// NewTree returns the tree of domains, whose names differ. Neither the domains
// nor their nodes may be changed afterwards. Tree.Hash is made of contents.
func NewTree(contents Contents, domains ...*Domain) *Tree {
	t := &Tree{contents: contents, domains: make(map[string]*Domain, len(domains)), sorted: slices.Clone(domains)}
	for _, d := range domains {
		t.domains[d.Name] = d
		d.Root().seal()
	}
	t.hash = sync.OnceValue(t.sum)
	slices.SortFunc(t.sorted, func(a, b *Domain) int { return strings.Compare(a.Name, b.Name) })
	return t
}

// Domain finds a domain by its name. It returns nil when there is none.
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

// Each calls do for every rule, in the order of the rules.
func (t *Tree) Each(do func(*Domain, *Rule)) {
	t.EachWithPools(func(d *Domain, r *Rule) {
		if r.Pool == "" {
			do(d, r)
		}
	})
}

// EachWithPools calls do for every pool and every rule: in each domain for its pools first.
func (t *Tree) EachWithPools(do func(*Domain, *Rule)) {
	for _, d := range t.Domains() {
		for _, name := range slices.Sorted(maps.Keys(d.Pools)) {
			do(d, d.Pools[name])
		}
		d.root.walk(func(r *Rule) { do(d, r) })
	}
}

// Rules is the number of rules.
func (t *Tree) Rules() (n int) {
	t.Each(func(*Domain, *Rule) { n++ })
	return n
}

// Contents appends the fields of a descriptor n of d to b, or with a nil n the fields
// of d itself, without positions.
type Contents func(b []byte, d *Domain, n *Node) []byte

// Hash is the same for trees that hold the same rules in any order, wherever the
// rules were read from. Other trees have the same hash only by chance. A tree
// without domains has the hash 0. The first call takes as long as a load.
func (t *Tree) Hash() uint64 {
	if t == nil {
		return 0
	}
	return t.hash()
}

func (t *Tree) sum() uint64 {
	var sum uint64 // of the hashes of all parts, so that their order does not matter
	h := fnv.New64a()
	var part []byte
	var turn Turns
	var add func(d *Domain, n *Node, above uint64)
	add = func(d *Domain, n *Node, above uint64) {
		turn.Next()
		part = t.contents(binary.BigEndian.AppendUint64(part[:0], above), d, n)
		h.Reset()
		_, _ = h.Write(part)
		own := h.Sum64()
		sum += own
		if n == nil {
			n = &d.root
		}
		for _, child := range n.below {
			add(d, child, own)
		}
	}
	for _, d := range t.Domains() {
		add(d, nil, 0)
	}
	return sum
}

// Domain holds the rules of one domain. A nil Domain has no rules.
type Domain struct {
	Name   string
	Charge Charge
	// Default is the limit whose strategy, burst and OnError an override gets when
	// no rule matches. Without an algorithms.Limit it stands for a fixed_window.
	Default Limit
	// Pools are the pools by name. Each is a rule that matches no descriptor.
	Pools map[string]*Rule

	root Node
}

// Root is the node above the outermost descriptors. In a Tree it only reads.
func (d *Domain) Root() *Node {
	if d.root.path == "" {
		d.root.path = Printable(d.Name)
	}
	return &d.root
}

// Match finds the rule for the entries of a request's descriptor. It returns
// nil when no limit applies.
//
// At each depth one descriptor of the rules takes the entry: the one with the
// entry's key and value, else the one with the longest network that has the value,
// else the first wildcard or other match in the order of the rules that matches, else
// the one with the entry's key and no value. The choice is final:
// when nothing below the chosen descriptor matches the next entry, Match does
// not try another descriptor. A rule applies only to requests that have as many
// entries as there are descriptors on the way to the rule. If the rule has a table, Match
// returns the variant of the entries' row. Match does not allocate, except for a value of more
// than 512 bytes where a match ignores case, and for a variant that it makes.
func (d *Domain) Match(entries []Entry) *Rule { return d.MatchWithin(nil, entries) }

// Work is the work of finding the rules of one request, which ends with the request's context.
type Work = match.Work

// MatchWithin is Match. Once w has ended, what it returns means nothing.
func (d *Domain) MatchWithin(w *Work, entries []Entry) *Rule {
	if d == nil {
		return nil
	}
	return d.root.find(w, entries).of(entries)
}

// Override returns the limit that a request brings for a descriptor that
// matched rule, which is nil when none matched. See [Limit.Override], which
// gets the rule's [Rule.Main], or else Default.
func (d *Domain) Override(rule *Rule, requests uint32, unit Unit, multiplier uint32) (Limit, error) {
	if rule != nil && len(rule.Limits) > 0 {
		return rule.Main().Override(requests, unit, multiplier)
	}
	return d.Default.Override(requests, unit, multiplier)
}

// Identifies reports whether entries, as [ParseID] has them, are those of a descriptor of d
// that r limits.
func (r *Rule) Identifies(d *Domain, entries []Entry) bool {
	n := &d.root
	for i, e := range entries {
		next := n
		switch {
		case NamingOf(r.Shared, i).Shared():
			next = r.way[i]
		case maskedAddress(e.Value) != e.Value: // may be of a mask
			next = n.named(e)
		default:
			next = n.next(nil, e)
		}
		if next == nil || next.parent != n {
			return false
		}
		n = next
	}
	return n.Rule == r
}

// Caller reads the name of a caller whom r limits, as [AppendID] makes it, at the start of a text or in
// braces there: the entries as [ParseID] has them, and r's variant for them. Of another text the
// variant is nil.
func (d *Domain) Caller(r *Rule, text string) (entries []Entry, variant *Rule) {
	id, _, _ := strings.Cut(strings.TrimPrefix(text, "{"), "}")
	depth := int(r.depth)
	parts := strings.SplitN(id, "|", depth+2)
	id = strings.Join(parts[:min(len(parts), depth+1)], "|")
	name, entries, ok := ParseID(id)
	if !ok || name != d.Name || len(entries) != depth || !r.Identifies(d, entries) {
		return nil, nil
	}
	if string(AppendID(nil, name, entries, r.Shared)) != id {
		return nil, nil
	}
	return entries, r.of(entries)
}
