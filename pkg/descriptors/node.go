package descriptors

import (
	"slices"

	"example.org/rls/pkg/descriptors/match"
)

// Descriptor is one descriptor of the rules, as [Node.Add] takes it.
type Descriptor struct {
	Entry // as written; '*' makes it a wildcard, the value "" matches any value
	// Match says which values match, in the place of a value in Entry; nil without one.
	Match *match.Match
	// Mask lets all addresses of a network share one counter.
	Mask Mask
	Pos  Position
	// Shared lets all values that match the wildcard, or Match, share one counter.
	Shared bool
	// ValueToMetric puts the request's value into metric keys where the
	// descriptor has a wildcard or no value.
	ValueToMetric bool
	// Rule is nil when the descriptor has no limit of its own. Node.Add sets
	// its Path, Pos and Shared.
	Rule *Rule
}

// HasWildcard reports whether key or value has a wildcard.
func (e Entry) HasWildcard() bool { return match.IsPattern(e.Key) || match.IsPattern(e.Value) }

// Node is the place of one descriptor in a tree, with the descriptors below it.
type Node struct {
	Descriptor
	parent *Node
	path   string // the domain and the descriptors down to this one

	// below are the descriptors below, in the order of the rules. A short list is compared
	// one by one, which is as fast as hashing; index has those of a longer list, and of one
	// with several values in a match, as they are written and by each of the values.
	below []*Node
	index map[Entry]*Node
	// order is the place of the node among those of its parent in the order of the
	// rules, from 1.
	order int
	sets  *sets // of the descriptors below with a wildcard or a match; nil without any
}

// maxFew is the greatest number of descriptors below a node without an index.
const maxFew = 6

// Grow prepares n for that many more descriptors below it.
func (n *Node) Grow(count int) {
	n.below = slices.Grow(n.below, count)
	if len(n.below)+count > maxFew {
		n.makeIndex(count)
	}
}

// makeIndex makes the index, with room for that many more entries.
func (n *Node) makeIndex(count int) {
	if n.index != nil {
		return
	}
	n.index = make(map[Entry]*Node, len(n.below)+count)
	for _, child := range n.below {
		if child.Match == nil {
			n.index[child.Entry] = child
		}
	}
}

// Add puts d below n, after the descriptors that were added before, and returns
// its node. When n has a descriptor with the same key and value, or with the same match, value
// or network among those of d.Match, Add changes nothing and returns nil, the node of the
// other one, and the index of that text of d.Match.
func (n *Node) Add(d Descriptor) (added, repeated *Node, item int) {
	child := &Node{Descriptor: d, parent: n, order: len(n.below) + 1}
	values, fold := []string{d.Value}, false
	if d.Match != nil {
		values, fold = nil, d.Match.Fold
		if d.Match.Exact() && !match.IsPattern(d.Key) {
			values = d.Match.Values
			n.makeIndex(len(values))
		}
	}
	for i, value := range values {
		if other := n.valueOf(d.Key, value, fold); other != nil {
			return nil, other, i
		}
	}
	if other, item := child.put(); other != nil {
		return nil, other, item
	}
	child.path = n.path + "." + d.String()
	if d.Rule != nil {
		d.Rule.place(child)
	}
	if len(n.below) == maxFew {
		n.makeIndex(1)
	}
	n.below = append(n.below, child)
	for _, value := range values {
		n.putValue(value, child)
	}
	return child, nil, 0
}

// seal prepares n and the nodes below it for look-ups.
func (n *Node) seal() {
	if n.sets != nil {
		for _, x := range n.sets.byKey {
			x.Seal()
		}
	}
	for _, child := range n.below {
		child.seal()
	}
}

// child finds a descriptor as it is written, or by one of the values of its match.
func (n *Node) child(e Entry) *Node {
	if n.index != nil {
		return n.index[e]
	}
	for _, child := range n.below {
		if child.Entry == e && child.Match == nil {
			return child
		}
	}
	return nil
}

// walk calls do for the rules of n and of the nodes below it.
func (n *Node) walk(do func(*Rule)) {
	if n.Rule != nil {
		do(n.Rule)
	}
	for _, child := range n.below {
		child.walk(do)
	}
}

// Children lists the descriptors directly below n in the order of their positions in the
// rules.
func (n *Node) Children() []*Node {
	all := slices.Clone(n.below)
	slices.SortStableFunc(all, func(a, b *Node) int { return a.Pos.Compare(b.Pos) })
	return all
}
